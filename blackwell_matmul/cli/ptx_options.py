"""Options of `check` for PTX of any compiler, or for a bundle. Launch arguments are texts such as `f16[256,64]`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.cli import options

if TYPE_CHECKING:
    from blackwell_matmul.emulator.order.ptx_findings import PtxReport

CODE_PANEL = "Compiled code: a file of PTX, or the folder of a bundle"
TENSOR = re.compile(r"(\w+)\[(\d+(?:,\d+)*)\]")
ARRAY_TYPES = {
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "i8": "int8", "u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64",
}  # fmt: skip


def is_compiled(kernel: str) -> bool:
    """Return True for a file of PTX and for a folder."""
    return kernel.endswith(".ptx") or Path(kernel).is_dir()


def _known(kernel: str) -> str:
    return kernel if is_compiled(kernel) else options.known_kernel(kernel)


def _option(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=CODE_PANEL)


KernelOrCode = Annotated[
    str,
    typer.Argument(
        metavar="KERNEL",
        help="A rung (v0–v6, h0–h7, g0–g1, blackwell, hopper), a script of your own (my_kernel.py:MyScript), a file of "
        "PTX, or the folder of a bundle.",
        callback=options.checked(_known),
    ),
]
Grid = Annotated[str | None, _option("X,Y,Z", "CTAs of the launch.")]
Block = Annotated[str | None, _option("X,Y,Z", "Threads of a CTA; the code may say its own.")]
Cluster = Annotated[str | None, _option("X,Y,Z", "CTAs of a cluster.")]
Shared = Annotated[str | None, _option("BYTES", "Dynamic shared memory.")]
Entry = Annotated[str | None, _option("NAME", "The kernel, if the file has several.")]
Arg = Annotated[
    list[str] | None,
    _option("WORD", "An argument, in order: f16[256,64] is a tensor of small numbers; a number; null; a file .npy."),
]


@dataclass(frozen=True)
class LaunchOptions:
    """Texts of the launch options on a command line; None for an omitted option."""

    grid: str | None = None
    block: str | None = None
    cluster: str | None = None
    shared: str | None = None
    entry: str | None = None
    args: tuple[str, ...] = ()


def check_compiled(code: str, launch: LaunchOptions) -> PtxReport:
    """Check the order of accesses in a PTX file or a bundle; raise InputError if the options describe no launch."""
    from blackwell_matmul.emulator import check_ptx
    from blackwell_matmul.emulator.emulate import entry_of, text_of
    from blackwell_matmul.emulator.parser import parse

    arguments = [_argument(word) for word in launch.args]
    if Path(code).is_dir():
        return check_ptx(code, *arguments)
    text, block = text_of(Path(code)), _extents("--block", launch.block)
    if block is None:
        block = entry_of(parse(text), launch.entry).directives.get(".reqntid")
    return check_ptx(
        text, *arguments, grid=_extents("--grid", launch.grid), block=block,
        cluster=_extents("--cluster", launch.cluster), kernel=launch.entry,
        shared_bytes=0 if launch.shared is None else options.integer("--shared", launch.shared),
    )  # fmt: skip


def _extents(name: str, words: str | None) -> tuple[int, ...] | None:
    return None if words is None else tuple(options.integer(name, word) for word in words.split(","))


def _argument(word: str) -> object:
    """Return the argument that a text describes: a tensor, a number, a null pointer, or the array in a file."""
    import numpy as np

    if word == "null":
        return None
    if word.endswith(".npy"):
        try:
            return np.load(word, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--arg {shown(word)} is no readable array: {error}.") from error
    tensor = TENSOR.fullmatch(word)
    if tensor is not None and tensor[1] in ARRAY_TYPES:
        return _tensor(ARRAY_TYPES[tensor[1]], tuple(map(int, tensor[2].split(","))))
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise InputError(
        f"--arg is {shown(word)}; it takes a tensor such as f16[256,64] ({', '.join(ARRAY_TYPES)}), a number, null, or "
        "a file .npy."
    )


def _tensor(dtype: str, shape: tuple[int, ...]) -> object:
    import ml_dtypes
    import numpy as np

    kind = getattr(ml_dtypes, dtype, None) or np.dtype(dtype)
    return np.random.default_rng(0).integers(0, 4, shape).astype(kind)
