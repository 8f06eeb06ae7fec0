"""Timelines of the rungs on a B200 in cycles, predicted by `trace`, and a rung's place on the ladder in a sentence.

Each rung is one line of RUNGS, at the schedule at which bench/time_model.py compares it with the published sample.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from canvas import COPY, COPY_LIGHT, INK, LINE, QUIET, STORE, TENSOR, WAIT, WARP, Canvas
from edited import edited

from blackwell_matmul import BlackwellMatmulV0, BlackwellMatmulV1, Prediction, Timeline, predict, trace
from blackwell_matmul.simulator.trace.timeline_style import kind_of

RESULTS = Path(__file__).resolve().parents[1] / "bench" / "results" / "time_model.json"
SIZE = (8192, 8192, 8192)
BLOCK_K = 64

TILE = f"block_m=128,block_n=256,block_k={BLOCK_K}"
RING = f"{TILE},stages=4,e_block_n=16"
GROUPS = f"{RING},group_m=8"
PAIRS = GROUPS.replace("block_m=128", "block_m=256")

TWO_CTAS = {"CTA 1, warp 0": "slot 0: warp 0", "CTA 2, warp 0": "slot 1: warp 0"}
TWO_JOBS = {"warp 0: loads": "warp 0", "warp 1: multiplies": "warp 1"}
NEXT_CTA = {"CTA 3, warp 0": "slot 2: warp 0"}
THREE_JOBS = {"warp 4: loads": "warp 4", "warp 5: multiplies": "warp 5", "warps 0-3: store": "warp 0"}
SERVERS = {"cp.async": "copies arrive", "TMA loads": "TMA: loads", "tensor core": "tensor core"}
SERVERS |= {"TMA stores": "TMA: stores", "loads and stores": "stores"}


@dataclass(frozen=True)
class Rung:
    """What a picture shows of its warps, by the title of the row."""

    schedule: str
    warps: Mapping[str, str] = field(default_factory=dict)


RUNGS = {
    "v0": Rung(TILE, TWO_CTAS),
    "v1": Rung(f"{TILE},e_block_n=32", TWO_CTAS | NEXT_CTA),
    "v2": Rung(RING, {"warp 0": "warp 0", "warps 1-3": "warp 1"}),
    "v3": Rung(RING, TWO_JOBS),
    "v4": Rung(GROUPS, TWO_JOBS),
    "v5": Rung(GROUPS, THREE_JOBS),
    "v6": Rung(PAIRS, THREE_JOBS),
}

BEFORE, AFTER = 4_000, 14_000
"""Cycles of a picture: before the last product of a tile is over, and after it."""

LEFT, WIDE, TOP, ROW = 1.32, 4.75, 0.62, 0.3
COLORS = {"run": WARP, "load": COPY, "mma": TENSOR, "store": STORE, "phase": COPY_LIGHT}


def of_rung(name: str) -> Canvas:
    """The end of a tile's main loop, its epilogue, and what comes next; and where the rung stands on the ladder."""
    rung, timeline = RUNGS[name], end_of_a_tile(name)
    busy = {each.track for each in timeline.events}
    rows = {**rung.warps, **{title: track for track, title in SERVERS.items() if track in busy}}
    title = f"{name.upper()} on a B200, predicted: the end of a tile, and what comes next"
    canvas = Canvas(7.6, TOP + ROW * len(rows) + 0.42, title)
    Rows(canvas, timeline, TOP, "cycles from the launch").draw(rows)
    _legend(canvas, TOP + ROW * len(rows) + 0.22)
    _ladder(canvas, name, TOP + ROW * len(rows))
    return canvas


@cache
def end_of_a_tile(name: str, size: tuple[int, int, int] = SIZE) -> Timeline:
    """Of the first CTA's first one."""
    timeline = trace(name, *size, schedule=RUNGS[name].schedule)
    products = [each for each in timeline.events if each.track == "tensor core"]
    whose = products[0].detail.split(", s_a")[0]
    end = [each for each in products if each.detail.startswith(whose)][size[2] // BLOCK_K - 1].end_cycles
    return timeline.between(end - BEFORE, end + AFTER)


class Rows:
    """Tracks of a timeline below each other, with an axis of cycles above, which begins at zero, or when it does."""

    def __init__(
        self, canvas: Canvas, timeline: Timeline, top: float, told: str, zero: float = 0.0, wide: float = WIDE
    ) -> None:
        self.canvas, self.timeline, self.top, self.told, self.zero = canvas, timeline, top, told, zero
        self.scale = wide / (timeline.end_cycles - timeline.start_cycles)

    def draw(self, rows: Mapping[str, str]) -> None:
        self.axis(len(rows))
        for number, (title, track) in enumerate(rows.items()):
            y = self.top + number * ROW
            self.canvas.text(0.16, y + ROW / 2, title, 8, INK)
            self.row([each for each in self.timeline.events if each.track == track], y + 0.04, ROW - 0.08)
            if track == "tensor core":
                self.idle(y + ROW / 2)

    def x(self, cycles: float) -> float:
        return LEFT + (cycles - self.timeline.start_cycles) * self.scale

    def axis(self, rows: int) -> None:
        step = 2_000 if self.timeline.end_cycles - self.timeline.start_cycles > 8_000 else 1_000
        at = self.zero - (self.zero - self.timeline.start_cycles) // step * step
        while at <= self.timeline.end_cycles:
            self.canvas.rule(self.x(at), self.top - 0.05, self.top + rows * ROW)
            if at == self.zero or self.x(at) > LEFT + 0.2:
                self.canvas.text(self.x(at), self.top - 0.13, f"{at - self.zero:,.0f}", 6, ha="center")
            at += step
        self.canvas.text(0.16, self.top - 0.13, self.told, 6)

    def row(self, events: list[Any], y: float, height: float) -> None:
        spans = {kind: _joined(events, kind) for kind in (*COLORS, "wait")}
        for kind, found in spans.items():
            placed = [(self.x(start), self.x(end)) for start, end in found]
            look = {"hatch": "/////", "edgecolor": LINE, "linewidth": 0.5} if kind == "wait" else {}
            self.canvas.boxes(placed, y, height, COLORS.get(kind, WAIT), **look)
        for each in events:
            self.label(each, y + height / 2)

    def label(self, each: Any, y: float) -> None:
        """Of what is wide enough to hold its name."""
        left, right, wait = self.x(each.start_cycles), self.x(each.end_cycles), kind_of(each) == "wait"
        allocates = wait and "tcgen05.alloc" in self.timeline.sources[each.line]
        name = "waits for tensor memory" if allocates else each.name
        if kind_of(each) in ("run", "wait") and right - left > 0.05 * len(name) + 0.1:
            look = {"bbox": {"facecolor": WAIT, "edgecolor": "none", "pad": 0.4}} if wait else {}
            self.canvas.text((left + right) / 2, y, name, 5.6, INK if wait else "white", ha="center", **look)

    def idle(self, y: float) -> None:
        """Where the tensor core has nothing to do for longer than a word takes."""
        ends = [self.timeline.start_cycles]
        for start, end in [*_joined(self._products(), "mma"), (self.timeline.end_cycles,) * 2]:
            if (start - ends[-1]) * self.scale > 0.5:
                text = f"idle for {start - ends[-1]:,.0f}" if (start - ends[-1]) * self.scale > 1 else "idle"
                self.canvas.text((self.x(ends[-1]) + self.x(start)) / 2, y, text, 6.2, TENSOR, ha="center")
            ends.append(end)

    def _products(self) -> list[Any]:
        return [each for each in self.timeline.events if each.track == "tensor core"]


def _joined(events: list[Any], kind: str) -> list[tuple[float, float]]:
    """From when to when events of a kind last; waits that follow each other are one."""
    found: list[tuple[float, float]] = []
    for each in events:
        if kind_of(each) == kind:
            follows = bool(found) and kind == "wait" and each.start_cycles - found[-1][1] < 1
            start = found.pop()[0] if follows else each.start_cycles
            found.append((start, each.end_cycles))
    return found


def _legend(canvas: Canvas, y: float) -> None:
    names = {"an instruction": WARP, "a load": COPY, "an MMA": TENSOR, "a store": STORE}
    for place, (name, color) in enumerate(names.items()):
        canvas.box(LEFT + 1.05 * place, y - 0.06, 0.12, 0.12, color)
        canvas.text(LEFT + 1.05 * place + 0.17, y, name, 6.5)
    canvas.box(LEFT + 4.2, y - 0.06, 0.12, 0.12, WAIT, hatch="/////", edgecolor=LINE)
    canvas.text(LEFT + 4.37, y, "a wait", 6.5)


def _samples() -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in json.loads(RESULTS.read_text(encoding="utf-8"))["samples"]}


def _ladder(canvas: Canvas, name: str, bottom: float) -> None:
    """All rungs as bars, this one dark; a mark where its sample was published."""
    samples, left, step = _samples(), LEFT + WIDE + 0.22, 0.165
    tall = (bottom - TOP - 0.2) / max(each["published"] for each in samples.values())
    canvas.text(left, TOP - 0.13, "cycles of V0 to V6", 6)
    for place, (rung, each) in enumerate(samples.items()):
        x, mine = left + place * step, rung == name
        canvas.box(x, bottom - 0.15 - each["own"] * tall, 0.13, each["own"] * tall, TENSOR if mine else LINE)
        canvas.line(
            x, bottom - 0.15 - each["published"] * tall, x + 0.13, bottom - 0.15 - each["published"] * tall, QUIET
        )
        canvas.text(x + 0.065, bottom - 0.07, rung.upper(), 5, INK if mine else QUIET, ha="center")
    for line, text in enumerate(("bar: predicted", "line: NVIDIA's sample, measured")):
        canvas.text(left, bottom + 0.1 + 0.12 * line, text, 5)


# --- V1 beside V0

RELINQUISH, FENCE = "self.tcgen05.relinquish_alloc_permit(cta_group=1)", 'self.fence.proxy_async(space="shared")'


def alone(name: str) -> type:
    """A copy of V0 or V1 whose CTAs keep the right to allocate tensor memory, so that one works at a time, as in
    NVIDIA's samples; in that of V0 nobody fences, either."""
    kernel = {"v0": BlackwellMatmulV0, "v1": BlackwellMatmulV1}[name]
    copy = edited(kernel, RELINQUISH, "pass")
    return edited(copy, FENCE, "pass") if name == "v0" else copy


def k_tiles(timeline: Timeline, first: int, last: int) -> Timeline:
    """From one product of the run to another."""
    products = [each for each in timeline.events if each.track == "tensor core"]
    return timeline.between(products[first].start_cycles, products[last].start_cycles)


@cache
def k_tiles_alone(name: str, size: tuple[int, int, int] = SIZE) -> Timeline:
    """Three in the middle of a tile's main loop."""
    return k_tiles(trace(alone(name), *size, schedule=RUNGS[name].schedule), 64, 67)


def v1_beside_v0() -> Canvas:
    """Three k-tiles of either, one CTA at a time."""
    canvas = Canvas(7.6, 3.25, "Predicted, with one CTA at a time on an SM: three k-tiles of V0, and of V1")
    rows = {
        "v0": {"V0, warp 0": "slot 0: warp 0", "copies arrive": "cp.async", "tensor core": "tensor core"},
        "v1": {
            "V1, warp 0": "slot 0: warp 0", "bytes in flight": "slot 0: tma_barrier", "TMA: loads": "TMA loads",
            "tensor core": "tensor core",
        },
    }  # fmt: skip
    top = TOP
    for name, tracks in rows.items():
        timeline = k_tiles_alone(name)
        took = timeline.end_cycles - timeline.start_cycles
        told = f"{took / 3:,.0f} cycles a k-tile"
        Rows(canvas, timeline, top, told, timeline.start_cycles, took * 6 / 7_200).draw(tracks)
        top += ROW * len(tracks) + 0.42
    return canvas


# --- on the pages


@cache
def predicted(name: str) -> Prediction:
    return predict(name, *SIZE, schedule=RUNGS[name].schedule, explained=False)


def place(name: str) -> str:
    """Say in a paragraph what is predicted of a rung and why, and what was published of NVIDIA's sample."""
    mine, sample = predicted(name), _samples()[name]
    share = mine.by_resource["tensor core"] / mine.cycles
    why = next(iter(mine.explanation), f"the tensor core multiplies for {share:.0%} of the time.")
    reasons = ". ".join(f"{reason[0].upper()}{reason[1:]}" for reason in why.split("; "))
    return (
        f"Predicted, for 8192 x 8192 x 8192 in fp16 and `{RUNGS[name].schedule}`: {mine.cycles / 1e6:.2f} million "
        f"cycles, {mine.time_us:,.0f} µs. {reasons} NVIDIA's sample of the same design takes "
        f"{sample['published']:.2f} million cycles, measured by its authors, and {sample['predicted']:.2f} predicted."
    )
