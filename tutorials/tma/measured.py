"""The three copies on the GPU of this machine, beside its own copy. Usage: python -m tma.measured, in tutorials."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import torch

from blackwell_matmul import BlackwellMatmulError
from tma.copies import CopyByCpAsync, CopyByLoads, CopyByTma

WAYS = {"loads": CopyByLoads, "cp.async": CopyByCpAsync, "TMA": CopyByTma}
TILES = ((16, 64), (64, 64), (128, 64))
COLUMNS = 4096
MOST_BYTES = 512 * 2**20
"""Of x, and as many of y: far more than any L2 holds."""

LAUNCHES, ROUNDS = 10, 7
NEEDS = (9, 0)
"""The first compute capability with TMA (PTX, "cp.async.bulk.tensor", Target ISA Notes)."""


def why_not() -> str:
    """Why nothing is measured here, in one sentence; empty where something is."""
    if not torch.cuda.is_available():
        return "No GPU here that torch can use: nothing was measured."
    if torch.cuda.get_device_capability() < NEEDS:
        return f"{torch.cuda.get_device_name()} has no TMA (Hopper and later GPUs have it): nothing was measured."
    return ""


def report() -> None:
    """Print what each way of copying reaches on this GPU; one sentence where there is none with TMA."""
    reason = why_not()
    print(reason) if reason else _report()


def _report() -> None:
    x = _input()
    y = torch.empty_like(x)
    print(f"{torch.cuda.get_device_name()}: copies of {x.nbytes // 2**20} MiB, GB/s of reads and writes together")
    print(f"(median of {ROUNDS} rounds of {LAUNCHES} launches, taken in turns; right: y equals x)")
    copies: dict[str, Callable[[], object]] = {"torch's own copy": lambda: y.copy_(x)}
    for rows, columns in TILES:
        for name, way in WAYS.items():
            copies[f"{rows}x{columns} by {name}"] = _copy(way(rows=rows, columns=columns), x, y)
    right = {name: _is_right(copy, x, y) for name, copy in copies.items()}
    rates = rates_of({name: copy for name, copy in copies.items() if right[name] == "right"}, 2 * x.nbytes)
    own = rates.get("torch's own copy")
    for name in copies:
        share = f"{rates[name]:8.0f}  {rates[name] / own:6.2f}" if name in rates and own else " " * 16
        print(f"{name:22} {share}  {right[name]}")


def _input() -> torch.Tensor:
    free, _ = torch.cuda.mem_get_info()
    rows = min(MOST_BYTES, free // 4) // (2 * COLUMNS)
    return torch.randn(rows, COLUMNS, device="cuda", dtype=torch.float16)


def _copy(kernel: Callable[..., object], x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    return lambda: kernel(*x.shape, x, y)


def _is_right(copy: Callable[[], object], x: torch.Tensor, y: torch.Tensor) -> str:
    """Run it once, which compiles it: "right", "wrong", or why it cannot run."""
    y.fill_(float("nan"))
    try:
        copy()
        torch.cuda.synchronize()
    except BlackwellMatmulError as error:
        return str(error)
    return "right" if torch.equal(x, y) else "WRONG: y is not x"


def rates_of(copies: Mapping[str, Callable[[], object]], nbytes: int) -> dict[str, float]:
    """GB/s of each: the median over rounds in which all take their turn, so that a change of clocks meets all."""
    seconds: dict[str, list[float]] = {name: [] for name in copies}
    for _ in range(ROUNDS):
        for name, copy in copies.items():
            seconds[name].append(_seconds(copy))
    return {name: nbytes / statistics.median(each) / 1e9 for name, each in seconds.items()}


def _seconds(copy: Callable[[], object]) -> float:
    """Of one launch among `LAUNCHES` in a row, on the GPU's own clock."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    copy()  # the first after another kernel is not counted
    start.record()
    for _ in range(LAUNCHES):
        copy()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1000 / LAUNCHES


if __name__ == "__main__":
    report()
