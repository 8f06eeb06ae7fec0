"""`verify`: compile, run and compare layer by layer, on the GPU if there is one, else on the CPU.

Each layer runs in its own process (`checks`), so that crashes, hangs and failed imports are outcomes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.processes import end_with_children, left_with
from blackwell_matmul.base.validation import shown

LAYERS = ("simulator", "emulator", "gpu", "triton", "torch.compile")
TIMEOUT_SECONDS = 300.0
MAX_TIMEOUT_SECONDS = 86_400
OUTCOME_PREFIX = "outcome: "
"""Prefix of a line with an outcome as JSON in a layer's output; other lines come from libraries."""

Status = Literal["correct", "wrong", "failed", "not run"]


@dataclass(frozen=True)
class LayerOutcome:
    """Outcome of one check. where: machine that ran it. detail: reason, unless "correct"."""

    layer: str
    what: str
    where: str
    status: Status
    detail: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        """Return `TmaCopy 37x24, in the simulator for sm_100a, 0.3 s` and the reason, if any."""
        took = None if self.seconds is None else f"{self.seconds:.1f} s"
        told = ", ".join(filter(None, (self.what, self.where, took)))
        return f"{told}: {self.detail}" if self.detail else told

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def passed(outcomes: Sequence[LayerOutcome]) -> bool:
    """Return true if something ran, and nothing was wrong or failed."""
    states = {each.status for each in outcomes}
    return "correct" in states and not states & {"wrong", "failed"}


def known_layers(names: Sequence[str]) -> tuple[str, ...]:
    """Return the layers of these names; InputError for any other name."""
    for name in names:
        if name not in LAYERS:
            raise InputError(f"layer is {shown(name)}; the layers are {', '.join(LAYERS)}.")
    return tuple(dict.fromkeys(names))


def verify(
    layers: Sequence[str] = LAYERS, progress: Callable[[str], None] | None = None, timeout_s: float = TIMEOUT_SECONDS
) -> tuple[LayerOutcome, ...]:
    """Run the layers in order, each with a time limit. progress: called with each layer's name before it starts."""
    if not 1 <= timeout_s <= MAX_TIMEOUT_SECONDS:
        raise InputError(f"timeout is {shown(timeout_s)} s; it must be from 1 to {MAX_TIMEOUT_SECONDS} s.")
    return tuple(outcome for layer in layers for outcome in _layer(layer, progress, timeout_s))


def _layer(layer: str, progress: Callable[[str], None] | None, timeout_s: float) -> Iterator[LayerOutcome]:
    if progress is not None:
        progress(layer)
    start = time.perf_counter()
    ended = run_within([sys.executable, "-m", "blackwell_matmul.cli.doctor.checks", layer], timeout_s)
    yield from _outcomes(layer, ended.stdout)
    if ended.code != 0:
        yield LayerOutcome(layer, "the rest", "", "failed", _why(ended, timeout_s), time.perf_counter() - start)


@dataclass(frozen=True)
class ProcessEnd:
    """End of a process. code: None after a timeout."""

    code: int | None
    stdout: str
    stderr: str


def run_within(command: Sequence[str], timeout_s: float) -> ProcessEnd:
    """Run a command; on timeout or interrupt, kill it with its children."""
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=timeout_s)
        return ProcessEnd(process.returncode, stdout, stderr)
    except subprocess.TimeoutExpired:
        end_with_children(process)
        return ProcessEnd(None, *process.communicate())
    finally:
        if process.poll() is None:
            end_with_children(process)


def _outcomes(layer: str, printed: str) -> Iterator[LayerOutcome]:
    for line in printed.splitlines():
        if line.startswith(OUTCOME_PREFIX):
            record: Mapping[str, Any] = json.loads(line.removeprefix(OUTCOME_PREFIX))
            yield LayerOutcome(layer, **record)


def _why(ended: ProcessEnd, timeout_s: float) -> str:
    """Return why a process failed: timeout, signal, or the last line of its stderr."""
    if ended.code is None:
        return f"its time is up: no end after {timeout_s:.0f} s"
    if ended.code < 0:
        return f"its process was ended by signal {-ended.code}"
    return left_with(ended.code, ended.stderr)
