"""`verify`: compiles, runs and compares, layer by layer, on the GPU if there is one, else on the CPU.

Each layer runs in a new process (`checks`), so that crashes, hangs and failed imports are outcomes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import accepts, number, plain_text, shown
from blackwell_matmul.jobs.worker import Worker

LAYERS = ("simulator", "emulator", "gpu", "triton", "torch.compile")
TIMEOUT_SECONDS = 300.0
MAX_TIMEOUT_SECONDS = 86_400
CHECKS = "blackwell_matmul.cli.doctor.checks"
"""Module whose `run_layer` a worker runs. Each of its steps is an outcome as JSON."""

Status = Literal["correct", "wrong", "failed", "not run"]


@dataclass(frozen=True)
class LayerOutcome:
    """Outcome of one check. where: device that ran the check. detail: reason, unless the status is "correct"."""

    layer: str
    what: str
    where: str
    status: Status
    detail: str = ""
    seconds: float | None = None

    def __str__(self) -> str:
        """Return text such as `TmaCopy 37x24, in the simulator for sm_100a, 0.3 s`, and the reason, if any."""
        took = None if self.seconds is None else f"{self.seconds:.1f} s"
        text = ", ".join(filter(None, (self.what, self.where, took)))
        return f"{text}: {self.detail}" if self.detail else text


def passed(outcomes: Sequence[LayerOutcome]) -> bool:
    """Return True if a check was correct, and no check was wrong or failed."""
    states = {each.status for each in outcomes}
    return "correct" in states and not states & {"wrong", "failed"}


def known_layers(names: Sequence[str]) -> tuple[str, ...]:
    """Return these names without repetitions; raise InputError for a name that is no layer."""
    if not isinstance(names, (list, tuple)) or not names:
        raise InputError(f"layers is {shown(names)}; it must be a list of layers, of {', '.join(LAYERS)}.")
    for name in names:
        if plain_text(name) not in LAYERS:
            raise InputError(f"layer is {shown(name)}; the layers are {', '.join(LAYERS)}.")
    return tuple(dict.fromkeys(map(str, names)))


def verify(
    layers: Sequence[str] = LAYERS, progress: Callable[[str], None] | None = None, timeout_s: float = TIMEOUT_SECONDS
) -> tuple[LayerOutcome, ...]:
    """Run the layers in order, each once, and return all outcomes. progress: called with a layer's name before its
    start.

    timeout_s: time limit of each layer, in seconds. Raises InputError for arguments that do not fit.
    """
    seconds = number(timeout_s)
    if seconds is None or not 1 <= seconds <= MAX_TIMEOUT_SECONDS:
        raise InputError(f"timeout is {shown(timeout_s)} s; it must be from 1 to {MAX_TIMEOUT_SECONDS} s.")
    if progress is not None and not accepts(progress, 1):
        raise InputError(f"progress is {shown(progress)}; it must be a function of a layer's name, or None.")
    return tuple(outcome for layer in known_layers(layers) for outcome in _layer(layer, progress, seconds))


def _layer(layer: str, progress: Callable[[str], None] | None, timeout_s: float) -> Iterator[LayerOutcome]:
    if progress is not None:
        progress(layer)
    start, told = time.perf_counter(), list[str]()
    with Worker(timeout_s, CHECKS) as worker:
        limit = threading.Timer(timeout_s, worker.end)
        limit.daemon = True
        limit.start()
        ended = worker.do({"do": f"{CHECKS}:run_layer", "layer": layer}, told.append)
        limit.cancel()
    yield from (LayerOutcome(layer, **json.loads(each)) for each in told)
    if ended.result is None:
        seconds = time.perf_counter() - start
        why = f"its time is up: no end after {timeout_s:.0f} s" if seconds >= timeout_s else ended.failed
        yield LayerOutcome(layer, "the rest", "", "failed", why or ended.refused, seconds)
