"""`verify`: test each layer of the installation on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from blackwell_matmul.cli.options import Json, integer
from blackwell_matmul.cli.output import finish
from blackwell_matmul.cli.views import doctor_view


def verify(
    layers: Annotated[list[str] | None, typer.Argument(help="The layers to try; all of them by default.")] = None,
    timeout: Annotated[str, typer.Option(metavar="SECONDS", help="The longest that a layer may take.")] = "300",
    as_json: Json = False,
) -> None:
    """Compile, run and compare, layer by layer, and report the device of each layer.

    Exit code 0: all results are right. 1: a result is wrong, or a layer failed. 2: bad input.

    Examples:

    `blackwell-matmul verify`

    `blackwell-matmul verify simulator triton`

    The layers are simulator, emulator, gpu, triton and torch.compile. Each runs in a new process.
    """
    from blackwell_matmul.cli.doctor.verify import LAYERS, passed, verify

    found = verify(layers or LAYERS, None if as_json else doctor_view.starting, integer("--timeout", timeout))
    finish(as_json, lambda: doctor_view.outcomes_record(found), lambda: doctor_view.outcomes(found), passed(found))
