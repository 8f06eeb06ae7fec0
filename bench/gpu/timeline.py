"""What runs when, measured on a GPU beside the prediction: kernels that write when their instructions begin and end.

    python bench/gpu/timeline.py OUT             # on an H100 or H200: h2, h6 and hopper, each on two problems
    python bench/gpu/timeline.py OUT --emulate   # anywhere: the same way at a small size, on the CPU

For each kernel and problem OUT gets a page and a JSON trace with the prediction above and the measurement below, and
summary.json has for each line of the kernel how often its instructions ran on one SM and for how many cycles (median
and 90th percentile), of both, and how long the kernel took: without marks, with them, and predicted. The product must
be right, with marks and without. It takes less than a minute on a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from blackwell_matmul import Bundle, Timeline, compile, emulate, measured_timeline, predict, timeline_buffer, trace
from blackwell_matmul.base.errors import BlackwellMatmulError, UnsupportedError
from blackwell_matmul.base.files import write_whole
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.runtime import load
from blackwell_matmul.simulator.trace.recorder import WAITS

RUNGS = ("h2", "h6", "hopper")
PROBLEMS = ((4096, 4096, 4096), (256, 2112, 7168))
SMALL = ((128, 256, 256),)
TARGET, GPU = "sm_90a", "H200"
RECORDS = 8192
"""Of a warp: h2 at 7168 has the most, 10 for each of 112 k-tiles."""
LAUNCHES, WARM = 20, 5

Launch = Callable[..., None]


class Span(NamedTuple):
    """What one warp did at one line, without a break. name: of the instruction, and of a wait for what."""

    line: str
    name: str
    cycles: float


# --- one kernel on one problem


def operands(m: int, n: int, k: int, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    made = torch.Generator(device).manual_seed(0)
    a, b = (torch.randn(rows, k, generator=made, device=device, dtype=torch.float16) for rows in (m, n))
    return a, b, torch.full((m, n), torch.nan, device=device, dtype=torch.float16)


def compared(rung: str, m: int, n: int, k: int, out: Path, on_gpu: bool) -> dict[str, Any]:
    """The row of the summary; the files of the timeline are written."""
    a, b, c = operands(m, n, k, "cuda" if on_gpu else "cpu")
    plain = compile(rung, m, n, k, a, b, c, target=TARGET)
    marked = compile(rung, m, n, k, a, b, c, target=TARGET, timeline=RECORDS)
    arguments = plain.ordered(m=m, n=n, k=k, a_ptr=a, b_ptr=b, c_ptr=c)
    first = _launched(plain, arguments, on_gpu)
    expected = c.clone()
    c.fill_(torch.nan)
    buffer = timeline_buffer(marked, *arguments)
    second = _launched(marked, (*arguments, buffer), on_gpu)
    verdict = check_matmul(a, b, c)
    buffer.zero_()
    second()
    measured = measured_timeline(marked, buffer)
    pins = {knob: value for knob, value in plain.schedule.items() if knob not in ("dtype", "sm_count")}
    predicted = trace(rung, m, n, k, schedule=pins, gpu=GPU)
    name = f"{rung}_{m}x{n}x{k}"
    for ending in ("json", "html"):
        predicted.above(measured).save(out / f"{name}.{ending}")
    return {
        "kernel": rung, "size": [m, n, k], "schedule": plain.schedule, "gpu": measured.gpu, "sm": measured.part,
        "correct": verdict.ok, "verdict": str(verdict), "same_with_marks": torch.equal(expected, c),
        "ghz": {"measured": measured.ghz, "predicted": predicted.ghz},
        "time_us": {
            "without_marks": _time_us(first, on_gpu), "with_marks": _time_us(second, on_gpu),
            "predicted": predict(rung, m, n, k, schedule=pins, gpu=GPU).time_us,
        },
        "sm_cycles": {"measured": measured.end_cycles, "predicted": predicted.end_cycles - _first_cycle(predicted)},
        "registers": [each.resources and each.resources.registers for each in (plain, marked)],
        "lines": rows(measured, predicted),
    }  # fmt: skip


def _launched(bundle: Bundle, arguments: tuple[Any, ...], on_gpu: bool) -> Callable[[], None]:
    """A launch of these arguments that was done once, to the end."""
    loaded = load(bundle) if on_gpu else None

    def launch() -> None:
        if loaded is not None:
            loaded(*arguments)
        else:
            emulate(bundle, *arguments)

    launch()
    if on_gpu:
        torch.cuda.synchronize()
    return launch


def _time_us(launch: Callable[[], None], on_gpu: bool) -> float | None:
    """The median of some launches in a row, between events; None on a CPU."""
    if not on_gpu:
        return None
    for _ in range(WARM):
        launch()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES + 1)]
    for event in events[:-1]:
        event.record()
        launch()
    events[-1].record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) * 1e3 for start, end in itertools.pairwise(events))


def _first_cycle(timeline: Timeline) -> float:
    return min(each.start_cycles for each in timeline.events if "warp " in each.track)


# --- how long instructions take


def spans(timeline: Timeline) -> Iterator[Span]:
    """Of each warp; an instruction and the wait that follows it at its line are one."""
    running: dict[str, list[Any]] = {}
    for each in timeline.events:
        if "warp " not in each.track:
            continue
        before = running.get(each.track)
        if before is not None and before[0].line == each.line and before[-1].end_cycles == each.start_cycles:
            if each.name not in (other.name for other in before):
                before.append(each)
                continue
        if before is not None:
            yield _span(before)
        running[each.track] = [each]
    yield from map(_span, running.values())


def _span(parts: list[Any]) -> Span:
    """Named after the wait, where there is one, and without the number of an mbarrier in its ring."""
    name = next((each.name for each in parts if each.name.startswith(WAITS)), parts[-1].name)
    return Span(parts[0].line, re.sub(r"\[\d+\]$", "", name), parts[-1].end_cycles - parts[0].start_cycles)


def rows(measured: Timeline, predicted: Timeline) -> list[dict[str, Any]]:
    """For each line of the kernel, in its order: count, median and 90th percentile of the cycles, of both."""
    by_line: dict[str, dict[str, list[float]]] = {}
    names: dict[str, str] = {}
    for kind, timeline in (("predicted", predicted), ("measured", measured)):
        for each in spans(timeline):
            by_line.setdefault(each.line, {}).setdefault(kind, []).append(each.cycles)
            names[each.line] = each.name
    return [
        {"line": line, "name": names[line], "source": measured.sources.get(line) or predicted.sources.get(line, ""),
         **{kind: _lengths(found.get(kind, [])) for kind in ("measured", "predicted")}}
        for line, found in sorted(by_line.items(), key=lambda each: int(each[0].rpartition(":")[2] or 0))
    ]  # fmt: skip


def _lengths(cycles: list[float]) -> dict[str, float] | None:
    if not cycles:
        return None
    ordered = sorted(cycles)
    return {
        "count": len(ordered),
        "median": round(statistics.median(ordered), 1),
        "p90": round(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 1),
    }


# --- what is printed


def told(row: Mapping[str, Any]) -> Iterator[str]:
    times = {name: "-" if us is None else f"{us:.1f} us" for name, us in row["time_us"].items()}
    yield ""
    yield f"{row['kernel']} {'x'.join(map(str, row['size']))} on {row['gpu']}, {row['sm']}: {row['verdict']}"
    yield "  " + ", ".join(f"{name.replace('_', ' ')} {us}" for name, us in times.items())
    yield "  SM cycles: " + ", ".join(f"{name} {cycles:,.0f}" for name, cycles in row["sm_cycles"].items())
    yield f"  {'line':12} {'instruction':42} {'measured':>24} {'predicted':>24}"
    yield f"  {'':12} {'':42} {'count  median     p90':>24} {'count  median     p90':>24}"
    for each in row["lines"]:
        found = [each[kind] for kind in ("measured", "predicted")]
        cells = [f"{c['count']:6} {c['median']:8.0f} {c['p90']:8.0f}" if c else f"{'-':>24}" for c in found]
        yield f"  {each['line']:12} {each['name'][:42]:42} " + " ".join(f"{cell:>24}" for cell in cells)


def require_gpu() -> None:
    """UnsupportedError where torch has no GPU for this code."""
    capability = torch.cuda.get_device_capability() if torch.cuda.is_available() else None
    if capability != (9, 0):
        have = "torch sees no GPU" if capability is None else f"this is an {torch.cuda.get_device_name()}"
        raise UnsupportedError(f"{have}; an H100 or H200 can measure, and --emulate goes the same way on a CPU.")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder for summary.json, pages and traces")
    parser.add_argument("--emulate", action="store_true", help="a small size on the CPU, instructions for cycles")
    parser.add_argument("--rungs", nargs="+", default=RUNGS)
    given = parser.parse_args(words)
    start, on_gpu = time.perf_counter(), not given.emulate
    try:
        if on_gpu:
            require_gpu()
        given.out.mkdir(parents=True, exist_ok=True)
        found = []
        for rung in given.rungs:
            for size in PROBLEMS if on_gpu else SMALL:
                found.append(compared(rung, *size, given.out, on_gpu))
                print("\n".join(told(found[-1])), flush=True)
                write_whole(given.out / "summary.json", json.dumps(found, indent=1, allow_nan=False).encode())
    except BlackwellMatmulError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"\n{time.perf_counter() - start:.0f} s; {given.out / 'summary.json'}")
    return 0 if all(row["correct"] and row["same_with_marks"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
