"""Draws the pictures of the tutorials into images/, from simulator runs and, of the ladder, from a result of bench/.

Usage: python tutorials/pictures.py

A run's events say who did what, in which order, with every asynchronous operation as late as the rules allow; story.py
makes bars of them. The same run always gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import block_scaling
import cycles
import torch
from canvas import (
    COPY,
    COPY_DARK,
    COPY_LIGHT,
    FAINT,
    INK,
    LINE,
    QUIET,
    STORE,
    STYLE,
    TENSOR,
    TENSOR_LIGHT,
    WAIT,
    WARP,
    Canvas,
)
from matplotlib import pyplot as plt
from story import PEER, Bar, Barrier, PairTracer, Story
from tma import swizzle
from tma.copies import CopyByTma

from blackwell_matmul import (
    BlackwellMatmulV0,
    BlackwellMatmulV1,
    BlackwellMatmulV2,
    BlackwellMatmulV3,
    BlackwellMatmulV5,
    BlackwellMatmulV6,
    Run,
    simulate,
)
from blackwell_matmul.simulator.findings import Event
from blackwell_matmul.simulator.listener import Listener

IMAGES = Path(__file__).resolve().parent / "images"
BENCH = Path(__file__).resolve().parents[1] / "bench" / "results"

PARITY = ("#eef2f7", "#c9d7ea")
BAR_COLORS = {"issue": WARP, "copy": COPY, "load": COPY, "mma": TENSOR, "read": STORE, "strip": STORE, "answer": QUIET}
BAR_COLORS |= {"load of the next": COPY_DARK, "mma of the next": TENSOR_LIGHT}


def run_of(
    kernel: type,
    k: int,
    m: int = 128,
    policy: str = "adversarial",
    seed: int = 0,
    listeners: Sequence[Listener] = (),
    **schedule: int,
) -> Run:
    """The first CTA of a kernel on a result of 64 columns; the values are of no interest here."""
    n, tile = 64, {"block_m": 128, "block_n": 64, "block_k": 16}
    a, b = torch.ones(m, k, dtype=torch.float16), torch.ones(n, k, dtype=torch.float16)
    c = torch.empty(m, n, dtype=torch.float16)
    run = simulate(kernel, m, n, k, a, b, c, schedule=tile | schedule, policy=policy, seed=seed, listeners=listeners)
    assert run.ok and run.events
    return run


# --- timelines

LEFT, TOP, ROW, GAP = 1.32, 0.62, 0.27, 0.09


@dataclass(frozen=True)
class Lane:
    """A row of a timeline: its title, and the agents whose bars it shows, or the mbarrier. tx: with its bytes."""

    title: str
    agent: str = ""
    barrier: str = ""
    tx: bool = False

    @property
    def height(self) -> float:
        return ROW * (2.5 if self.tx else 1)


class Timeline:
    """Lanes over the order of events, up to column `last`."""

    def __init__(self, story: Story, lanes: Sequence[Lane], title: str, scale: float, last: int | None = None) -> None:
        self.columns = story.columns if last is None else min(last, story.columns)
        self.scale = scale
        height = TOP + sum(lane.height + GAP for lane in lanes) + 0.36
        self.canvas = Canvas(LEFT + self.columns * scale + 0.25, height, title)
        warps = sum(lane.agent.startswith("warp") for lane in lanes)
        self.syncs(story.syncs, TOP + warps * (ROW + GAP) - GAP)
        y = TOP
        for lane in lanes:
            self.canvas.text(0.16, y + lane.height / 2, lane.title, 8, INK)
            self.canvas.line(LEFT - 0.05, y + lane.height + GAP / 2, self.x(self.columns), y + lane.height + GAP / 2)
            if lane.barrier:
                self.phases(story.barriers[lane.barrier], y)
                if lane.tx:
                    self.bytes_to_come(story.barriers[lane.barrier], y + 2.3 * ROW)
            for bar in story.bars:
                if bar.lane == lane.agent and bar.start < self.columns:
                    self.bar(bar, y)
            y += lane.height + GAP
        legend = "order of events in the simulator  →   (an order, not a time)        ▲ an arrival"
        self.canvas.text(LEFT, height - 0.2, legend, 7)

    def x(self, column: float) -> float:
        return LEFT + min(column, self.columns) * self.scale

    def syncs(self, columns: Sequence[int], bottom: float) -> None:
        for column in columns:
            if column < self.columns:
                x = self.x(column + 0.5)
                self.canvas.line(x, TOP - 0.06, x, bottom + 0.04, INK, 1.2)
                self.canvas.text(x, TOP - 0.13, "sync", 6.5, ha="center")

    def bar(self, bar: Bar, y: float) -> None:
        if bar.kind == "wait":
            self.wait(bar, y)
        elif bar.kind == "write":
            left, right = self.x(bar.start), self.x(bar.end)
            self.canvas.box(left, y + 0.03, right - left, ROW - 0.06, "white", bar.label, ink=INK, edgecolor=STORE,
                            linestyle=(0, (3, 2)))  # fmt: skip
        else:
            shift = 0.5 if bar.kind.startswith(("load", "mma")) else 0
            left, right = self.x(bar.start + shift), self.x(bar.end + shift)
            size = 6.5 if self.scale > 0.25 else 5.6
            label = bar.label if right - left > 0.4 else bar.label.replace("k-tile", "k")
            self.canvas.box(left, y + 0.02, right - left, ROW - 0.04, BAR_COLORS[bar.kind], label, size)

    def wait(self, bar: Bar, y: float) -> None:
        if bar.end == bar.start:
            return
        left, right = self.x(bar.start), self.x(bar.end + 0.5)
        self.canvas.box(left, y + 0.03, right - left, ROW - 0.06, WAIT, hatch="/////", edgecolor=LINE)
        wide = right - left > 0.9
        behind = {"facecolor": WAIT, "edgecolor": "none", "pad": 0.6}
        label = f"wait, parity {bar.label}" if wide else f"wait {bar.label}"
        self.canvas.text(left + 0.05, y + ROW / 2, label, 6.5 if wide else 6, INK, bbox=behind)

    def phases(self, barrier: Barrier, y: float) -> None:
        """A band for each phase, a triangle for each arrival."""
        starts = [0.0, *(end + 0.5 for end in barrier.ends), float("inf")]
        for phase, (start, end) in enumerate(pairwise(starts)):
            width = self.x(end) - self.x(start)
            if width <= 0:
                break
            texts = (f"phase {phase}, parity {phase % 2}", f"{phase}, par. {phase % 2}", f"{phase}")
            text = texts[0 if width > 1.15 else 1 if width > 0.6 else 2]
            self.canvas.box(self.x(start), y, width, ROW, PARITY[phase % 2])
            self.canvas.text(self.x(start) + 0.05, y + 0.4 * ROW, text, 7, INK)
        for column in barrier.arrivals:
            if column < self.columns:
                self.canvas.triangle(self.x(column + 0.5), y + ROW - 0.035)

    def bytes_to_come(self, barrier: Barrier, base: float) -> None:
        """The tx-count over time, standing on y = base."""
        tall, most = 1.05 * ROW, max(count for _, count in barrier.tx)
        for (column, count), (following, _) in pairwise(barrier.tx):
            if count and column < self.columns:
                left, right, share = self.x(column + 0.5), self.x(following + 0.5), tall * count / most
                self.canvas.box(left, base - share, right - left, share, COPY_LIGHT, edgecolor=COPY)
                size = 6.2 if right - left > 0.35 else 5.2
                self.canvas.text((left + right) / 2, base - tall / 2, str(count), size, INK, ha="center")
        self.canvas.line(self.x(0), base, self.x(self.columns), base, COPY)


def v0_time() -> Canvas:
    story = Story(run_of(BlackwellMatmulV0, 48).events)
    lanes = [Lane(f"warp {i}", f"warp {i}") for i in range(4)]
    lanes += [Lane("tensor core", "tensor core"), Lane("mma_barrier", barrier="mma_barrier")]
    title = "V0, three k-tiles: copies, MMA and waits take turns"
    return Timeline(story, lanes, title, 0.3, last=_end_of_loop(story)).canvas


def v1_time() -> Canvas:
    story = Story(run_of(BlackwellMatmulV1, 32, e_block_n=32).events)
    lanes = [
        Lane("warp 0", "warp 0"),
        Lane("warps 1-3", "warp 1"),
        Lane("TMA, tile of A", "TMA s_a tma_barrier"),
        Lane("TMA, tile of B", "TMA s_b tma_barrier"),
        Lane("TMA, strip 0 of C", "TMA store 0"),
        Lane("TMA, strip 1 of C", "TMA store 1"),
        Lane("tensor core", "tensor core"),
        Lane("tma_barrier,\nbytes to come", barrier="tma_barrier", tx=True),
        Lane("mma_barrier", barrier="mma_barrier"),
    ]
    title = "V1, two k-tiles and two strips: the barrier counts bytes; loads and MMAs take turns"
    return Timeline(story, lanes, title, 0.31).canvas


def v2_time() -> Canvas:
    story = Story(run_of(BlackwellMatmulV2, 80, e_block_n=32, stages=3).events, fine=False)
    lanes = [Lane("warp 0", "warp 0"), Lane("warps 1-3", "warp 1")]
    lanes += [Lane(f"TMA, stage {i}", f"TMA s_a tma_barriers[{i}]") for i in range(3)]
    lanes += [Lane("tensor core", "tensor core")]
    lanes += [Lane(f"tma_barriers[{i}]", barrier=f"tma_barriers[{i}]") for i in range(3)]
    lanes += [Lane("mma_barrier", barrier="mma_barrier")]
    title = "V2, five k-tiles on three stages: loads are in flight while the tensor core works"
    return Timeline(story, lanes, title, 0.235, last=_end_of_loop(story)).canvas


def v3_time() -> Canvas:
    story = Story(run_of(BlackwellMatmulV3, 80, e_block_n=32, stages=3).events, fine=False, products=3)
    lanes = [Lane("warp 0: loads", "warp 0"), Lane("warp 1: multiplies", "warp 1")]
    lanes += [Lane(f"TMA, stage {i}", f"TMA s_a full[{i}]") for i in range(3)]
    lanes += [Lane(f"tensor core, stage {i}", f"tensor core {i}") for i in range(3)]
    lanes += [Lane(f"{name}[{i}]", barrier=f"{name}[{i}]") for name in ("full", "empty") for i in range(3)]
    lanes += [Lane("complete", barrier="complete")]
    title = "V3, five k-tiles on three stages: one warp issues loads, the other MMAs"
    return Timeline(story, lanes, title, 0.235, last=_end_of_loop(story)).canvas


SIDES = ("full", "empty")
V5_SEED = 16
"""Of completions in between: as late as the rules allow, no product of the next tile would run beside the stores."""


def v5_time() -> Canvas:
    story = _v5_story(V5_SEED)
    lanes = [Lane("warp 4: loads", "warp 4"), Lane("warp 5: multiplies", "warp 5"), Lane("warp 6: requests", "warp 6")]
    lanes += [Lane("warps 0-3: store", "warp 0"), Lane("CLC response", "launch control")]
    lanes += [Lane(f"TMA, stage {i}", f"TMA s_a ring.full_barriers[{i}]") for i in range(3)]
    lanes += [Lane(f"tensor core, acc. {i}", f"tensor core {i}") for i in range(2)]
    lanes += [Lane(f"sums.{name}[{i}]", barrier=f"sums.{name}_barriers[{i}]") for i in range(2) for name in SIDES]
    lanes += [Lane(f"responses.{name}", barrier=f"scheduler.responses.{name}_barriers") for name in SIDES]
    title = (
        "V5, two tiles of three k-tiles on one CTA: the second (dark load, light MMA) runs while the first is stored"
    )
    return Timeline(story, lanes, title, 0.22).canvas


def _v5_story(seed: int) -> Story:
    """Of two tiles on one CTA, without syncs and without waits that pass at once."""
    run = run_of(BlackwellMatmulV5, 48, m=256, policy="random", seed=seed, e_block_n=32, stages=3, group_m=1)
    events = [event for event, after in pairwise(run.events) if not _is_left_out(event, after)]
    counts = {f"sums.empty_barriers[{i}]": 4 for i in range(2)} | {"scheduler.responses.empty_barriers": 7}
    followers = [f"warp {i}" for i in (1, 2, 3)]
    story = Story(events, fine=False, products=2, in_a_row=3, counts=counts, followers=followers)
    _tell_tiles_apart(story, 3)
    return story


def _is_left_out(event: Event, after: Event) -> bool:
    stored = event.agent == "TMA" and "(store)" in event.what
    return event.kind in ("resume", "exit") or stored or (event.kind == "wait" and after.agent == event.agent)


def _tell_tiles_apart(story: Story, k_tiles: int) -> None:
    """Bars of the second tile get a colour of their own, and k-tiles count from 0 in each; the last answer is no."""
    answers = [bar for bar in story.bars if bar.label == "answer"]
    for bar in answers:
        bar.label = "no" if bar is answers[-1] else "yes"
    for bar in story.bars:
        number = re.search(r"tile (\d+)", bar.label)
        if number:
            tile, k = divmod(int(number[1]), k_tiles)
            bar.kind, bar.label = bar.kind + " of the next" * tile, f"k {k}"


def v6_time() -> Canvas:
    story = _v6_story()
    lanes = [Lane("leader, warp 4", "warp 4"), Lane("leader, warp 5", "warp 5"), Lane("CTA 1, warp 4", f"{PEER}warp 4")]
    for whose, title in (("", "leader"), (PEER, "CTA 1")):
        lanes += [Lane(f"TMA, {title}, stage {i}", f"TMA {whose}s_a ring.full_barriers[{i}]") for i in range(2)]
    lanes += [Lane(f"MMA, stage {i}", f"tensor core {i}") for i in range(2)]
    lanes += [Lane(f"leader, full[{i}]", barrier=f"ring.full_barriers[{i}]") for i in range(2)]
    for whose, title in (("", "leader"), (PEER, "CTA 1")):
        lanes += [Lane(f"{title}, empty[{i}]", barrier=f"{whose}ring.empty_barriers[{i}]") for i in range(2)]
    title = "V6, four k-tiles on two stages of a pair: both load, the leader multiplies for both"
    return Timeline(story, lanes, title, 0.3, last=_end_of_loop(story)).canvas


def _v6_story() -> Story:
    """Of the main loops on one tile. The odd CTA announces nothing, so that its requests follow from its loads."""
    tracer, told = PairTracer(), re.compile("responses|fence|store")
    run_of(BlackwellMatmulV6, 64, m=256, listeners=[tracer], block_m=256, e_block_n=32, stages=2, group_m=1)
    agents = ("warp 4", "warp 5", f"{PEER}warp 4", "TMA", "tensor core")
    events = [event for event in tracer.events if event.agent in agents and not told.search(event.what)]
    story = Story(events, fine=False, products=2)
    asked = [bar.start for bar in story.bars if bar.lane.startswith(f"TMA {PEER}s_a")]
    story.bars += [Bar(f"{PEER}warp 4", column, column + 1, "issue", "load") for column in asked]
    return story


def _end_of_loop(story: Story) -> int:
    return max(bar.end for bar in story.bars if bar.kind == "mma") + 2


# --- other pictures


def tensor_memory() -> Canvas:
    """128 lanes by 512 columns: the accumulator of V0, and which warp may load which lanes."""
    columns = int(run_of(BlackwellMatmulV0, 16).schedule["block_n"])
    canvas = Canvas(7.6, 3.0, "Tensor memory of one SM: 128 lanes x 512 columns of 32 bits")
    left, top, width, height = 1.25, 0.85, 5.9, 1.65
    used, quarter = columns * width / 512, height / 4
    canvas.box(left, top, width, height, "#fafafa", edgecolor=LINE)
    for warp in range(4):
        y, rows = top + warp * quarter, f"{32 * warp}-{32 * warp + 31}"
        canvas.box(left, y, used, quarter, (TENSOR, TENSOR_LIGHT)[warp % 2], f"rows\n{rows}")
        canvas.line(left, y, left + width, y, LINE, dashed=True)
        canvas.text(left - 0.1, y + quarter / 2, f"lanes {rows}\nwarp {warp} loads", ha="right")
    canvas.text(left, top - 0.16, "column 0")
    canvas.text(left + used, top - 0.16, f"{columns}", ha="center")
    canvas.text(left + width, top - 0.16, "511", ha="right")
    about = (
        f"t_acc, 128 x {columns} fp32: lane = row of the tile, column = column of it.\n"
        "An allocation is whole columns, a power of two of them, 32 at least;\n"
        "the rest is free for another CTA on the same SM."
    )
    behind = {"facecolor": "#fafafa", "edgecolor": "none", "pad": 1.5}
    canvas.text(left + used + 0.15, top + height / 2, about, 8, INK, linespacing=1.5, bbox=behind)
    canvas.text(left, top + height + 0.22, "one cell = one float of the accumulator")
    return canvas


def v1_box() -> Canvas:
    """The boxes that V1 asks for along k, and the part of the last one that lies outside of A."""
    m, k, block_k = 128, 40, 16
    canvas = Canvas(7.6, 2.55, f"A is {m} x {k}, a box is {m} x {block_k}: the third box reaches past the end")
    left, top, cell, height = 0.5, 0.75, 0.088, 1.2
    for tile in range(3):
        x, inside = left + tile * block_k * cell, min(block_k, k - tile * block_k)
        canvas.box(x, top, inside * cell, height, COPY, f"k-tile {tile}\nfrom A", 8)
        if inside < block_k:
            outside = (block_k - inside) * cell
            canvas.box(x + inside * cell, top, outside, height, "white", hatch="/////", edgecolor=COPY)
            behind = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            canvas.text(x + inside * cell + outside / 2, top + height / 2, "zeros", 8, INK, ha="center", bbox=behind)
        canvas.text(x, top + height + 0.15, f"offset_k {tile * block_k}")
    canvas.text(left + k * cell, top - 0.13, f"k = {k}", ha="center")
    about = (
        f"Each box counts {m} x {block_k} x 2 = {m * block_k * 2} bytes\non its mbarrier, the zeros included.\n"
        f"The last one reads only {m * (k - 2 * block_k) * 2} from A."
    )
    canvas.text(left + 3 * block_k * cell + 0.25, top + height / 2, about, 8, INK, linespacing=1.5)
    told = "one tensor map describes A: its address, its extents, its row stride, the extents of a box, the type"
    canvas.text(left, top + height + 0.4, told)
    return canvas


def v2_ring() -> Canvas:
    """Which k-tile is in which stage when the tensor core takes it, and the parity that warp 0 waits for."""
    stages, tiles = 3, 7
    run = run_of(BlackwellMatmulV2, 16 * tiles, e_block_n=32, stages=stages)
    waits = [e.what for e in run.events if e.kind == "wait" and e.what.startswith("tma_barriers")]
    assert len(waits) == tiles
    canvas = Canvas(7.6, 2.5, "The ring: seven k-tiles, three stages, and what warp 0 waits for")
    left, top, width, height = 1.05, 0.85, 0.88, 0.34
    bottom = top + stages * height
    for stage in range(stages):
        y = top + stage * height
        canvas.text(0.16, y + height / 2, f"stage {stage}", 8, INK)
        canvas.line(left, y + height, left + tiles * width, y + height)
    for tile, wait in enumerate(waits):
        stage, parity = (int(number) for number in re.findall(r"\d+", wait))
        x, y, text = left + tile * width, top + stage * height, f"k-tile {tile}, parity {parity}"
        canvas.box(x + 0.03, y + 0.03, width - 0.06, height - 0.06, (COPY, COPY_DARK)[parity], text, 6)
        canvas.text(x + width / 2, bottom + 0.16, f"iteration {tile}", ha="center")
        if stage == 0:
            canvas.text(x, top - 0.17, f"lap {tile // stages}", 8, INK)
            canvas.line(x, top - 0.1, x, bottom, QUIET, dashed=True)
    told = "A stage is used once a lap; each use is one phase of its barrier, so the parity changes with the lap."
    canvas.text(0.16, bottom + 0.42, told, 8)
    return canvas


def v4_order() -> Canvas:
    """The tiles that the first CTAs compute, in the order of V3 and in groups of rows."""
    size, ctas, group_m = 16, 36, 6
    canvas = Canvas(
        7.6, 3.85, f"{size} x {size} tiles: what the first {ctas} CTAs compute, and the rows that they need"
    )
    _order(canvas, 0.75, "V3: down each column", lambda tile: (tile % size, tile // size), size, ctas)
    group = group_m * size
    grouped = lambda tile: (tile // group * group_m + tile % group % group_m, tile % group // group_m)  # noqa: E731
    _order(canvas, 4.4, f"V4: down {group_m} rows, then to the next column", grouped, size, ctas)
    return canvas


def _order(
    canvas: Canvas, left: float, title: str, place: Callable[[int], tuple[int, int]], size: int, ctas: int
) -> None:
    top, cell = 0.95, 0.16
    places = [place(tile) for tile in range(ctas)]
    rows, columns = {row for row, _ in places}, {column for _, column in places}
    canvas.text(left, 0.56, title, 8, INK)
    for index in range(size):
        canvas.box(left - 0.2, top + index * cell, 0.12, cell, COPY if index in rows else FAINT)
        canvas.box(left + index * cell, top - 0.2, cell, 0.12, COPY_DARK if index in columns else FAINT)
    canvas.box(left, top, size * cell, size * cell, FAINT)
    for tile, (row, column) in enumerate(places):
        canvas.box(left + column * cell, top + row * cell, cell, cell, TENSOR, str(tile), 4.5)
    told = f"{len(rows)} rows of tiles of A, {len(columns)} of B: {len(rows) + len(columns)} in all"
    canvas.text(left, top + size * cell + 0.2, told, 7.5, INK)


def v6_pair() -> Canvas:
    """A tile of 256 x 256 on two SMs: the halves of A and B in shared memory, those of C in tensor memory."""
    canvas = Canvas(
        7.6, 3.75, "One k-tile of a pair: each CTA loads half of A and half of B, the MMA reads all of both"
    )
    for rank, color in enumerate((COPY, COPY_DARK)):
        _half_of_pair(canvas, rank, 0.3 + 3.6 * rank, color)
    told = (
        "Rows 0-127 of C need both halves of B, and so do rows 128-255: the tensor cores of both SMs get all of B.",
        "Counted in fp16. Not from a run.",
    )
    for line, text in enumerate(told):
        canvas.text(0.3, 3.28 + 0.2 * line, text)
    return canvas


def _half_of_pair(canvas: Canvas, rank: int, left: float, color: str) -> None:
    rows = f"rows {128 * rank}-{128 * rank + 127}"
    canvas.box(left, 0.48, 3.4, 2.6, "#fafafa", edgecolor=LINE)
    canvas.text(left + 0.15, 0.66, f"CTA {rank}{', the leader' * (rank == 0)}, on an SM of its own", 8, INK)
    canvas.text(left + 0.15, 0.93, "shared memory, one stage")
    for i, name in enumerate("AB"):
        canvas.box(left + 0.15 + 1.05 * i, 1.05, 0.95, 0.62, color, f"{name}, {rows}\n64 of k\n16 KB", 6.2)
    canvas.text(left + 2.25, 1.36, "rows of B are\ncolumns of C", 6.5)
    canvas.text(left + 0.15, 1.87, "tensor memory, one accumulator: 128 lanes, 256 columns")
    for half in range(2):
        text = f"C, {rows}\ncolumns {128 * half}-{128 * half + 127}\nA of CTA {rank}, B of CTA {half}"
        canvas.box(left + 0.15 + 1.55 * half, 2.0, 1.55, 0.92, (TENSOR, TENSOR_LIGHT)[half], text, 6.5)


# --- the first lesson


def tma_time() -> Canvas:
    """One tile by TMA: who asks, who waits, and the bytes that the barrier still lacks."""
    x = torch.ones(64, 64, dtype=torch.float16)
    story = Story(simulate(CopyByTma, 64, 64, x, torch.empty_like(x)).events)
    for bar in story.bars:
        if bar.kind == "load":
            bar.label = "tile"
    lanes = [
        Lane("warp 0", "warp 0"),
        Lane("warps 1-3", "warp 1"),
        Lane("TMA", "TMA tile arrived"),
        Lane("arrived,\nbytes to come", barrier="arrived", tx=True),
    ]
    return Timeline(story, lanes, "One tile: one thread issues the load, the last byte ends the phase", 0.82).canvas


def tma_swizzle() -> Canvas:
    """Eight rows of 128 bytes in shared memory, as they are and swizzled; one column of pieces is marked."""
    canvas = Canvas(7.6, 3.35, "Eight rows of 64 fp16 in shared memory: piece (row, i) is 16 bytes, four banks wide")
    _banks(canvas, 0.5, "without a swizzle: a column is one place", False)
    _banks(canvas, 4.15, "with the 128-byte swizzle: a column is all places", True)
    told = (
        "Marked: piece 2 of each row, as eight threads read it at once. A place has the same four banks in every row."
    )
    canvas.text(0.5, 3.08, told)
    return canvas


def _banks(canvas: Canvas, left: float, title: str, swizzled: bool) -> None:
    top, width, height, marked = 1.0, 0.385, 0.21, 2
    canvas.text(left, 0.56, title, 8, INK)
    for place in range(swizzle.PIECES):
        banks = swizzle.banks(place)
        canvas.text(left + (place + 0.5) * width, top - 0.12, f"{banks[0]}-{banks[-1]}", 6.2, ha="center")
    for row in range(swizzle.ROWS):
        canvas.text(left - 0.08, top + (row + 0.5) * height, str(row), 6.5, ha="right")
        for piece in range(swizzle.PIECES):
            place = swizzle.piece_after(row, piece) if swizzled else piece
            color, ink = (TENSOR, "white") if piece == marked else (COPY_LIGHT, INK)
            canvas.box(left + place * width, top + row * height, width, height, color, f"{row},{piece}", 6, ink)
    worst = swizzle.most_in_a_bank(marked, swizzled)
    told = "8 rows, one after the other" if worst == swizzle.ROWS else "all rows at once"
    canvas.text(left, top + 8 * height + 0.17, f"{worst} of 8 in the same banks: {told}", 7.5, INK)


def tma_multicast() -> Canvas:
    """A tile for two CTAs: each loads one half, into both."""
    canvas = Canvas(7.6, 2.75, "Multicast: each CTA of a cluster loads a part of the tile, and all get all of it")
    left, top, size = 0.5, 0.85, 0.55
    canvas.text(left, top - 0.2, "global memory", 8, INK)
    for half, color in enumerate((COPY, COPY_DARK)):
        canvas.box(left, top + half * size, 1.3, size, color, f"half {half}\nread once", 7)
        canvas.box(2.6, top + half * size + 0.08, 1.2, size - 0.16, color, f"TMA load\nof CTA {half}", 6.5)
        canvas.line(left + 1.3, top + (half + 0.5) * size, 2.6, top + (half + 0.5) * size, color, 1.2)
    for cta in range(2):
        x = 4.7 + 1.4 * cta
        canvas.text(x, top - 0.2, f"CTA {cta}, shared", 8, INK)
        for half, color in enumerate((COPY, COPY_DARK)):
            canvas.box(x, top + half * size, 1.1, size, color, f"half {half}", 7)
    for half, color in enumerate((COPY, COPY_DARK)):
        y = top + (half + 0.5) * size
        canvas.line(3.8, y, 4.7, y, color, 1.2)
        canvas.line(5.8, y, 6.1, y, color, 1.2)
    told = (
        "Each CTA's mbarrier expects the bytes of both halves. A half may be overwritten once both CTAs have used it."
    )
    canvas.text(left, top + 2 * size + 0.3, told)
    canvas.text(left, top + 2 * size + 0.52, "Not from a run.")
    return canvas


def ladder_b200() -> Canvas:
    """Cycles of the seven rungs on a B200: NVIDIA's samples as published and as predicted, and ours, predicted."""
    rows = json.loads((BENCH / "time_model.json").read_text(encoding="utf-8"))["samples"]
    canvas = Canvas(7.6, 3.3, "B200, 8192 x 8192 x 8192 fp16: millions of SM cycles, less is better")
    left, bottom, height, step = 0.55, 2.55, 1.75, 1.0
    series = (("published", QUIET), ("predicted", COPY), ("own", TENSOR))
    scale = height / max(row[name] for row in rows for name, _ in series)
    for place, row in enumerate(rows):
        start = left + place * step
        canvas.text(start + 0.4, bottom + 0.15, row["name"].upper(), 8, INK, ha="center")
        for index, (name, color) in enumerate(series):
            tall = row[name] * scale
            canvas.box(start + index * 0.27, bottom - tall, 0.25, tall, color)
            canvas.text(start + index * 0.27 + 0.125, bottom - tall - 0.09, f"{row[name]:.2f}", 5.5, ha="center")
    told = {
        "NVIDIA's sample, measured by its authors": 0,
        "the same, predicted": 2.6,
        "this ladder's rung, predicted": 4.2,
    }
    for (text, offset), (_, color) in zip(told.items(), series, strict=True):
        canvas.box(left + offset, 2.92, 0.13, 0.13, color)
        canvas.text(left + offset + 0.2, 2.985, text, 7)
    return canvas


_DRAWN: tuple[Callable[[], Canvas], ...] = (
    ladder_b200,
    tma_time,
    tma_swizzle,
    tma_multicast,
    tensor_memory,
    v0_time,
    v1_box,
    v1_time,
    v2_ring,
    v2_time,
    v3_time,
    v4_order,
    v5_time,
    v6_pair,
    v6_time,
    cycles.v1_beside_v0,
    block_scaling.scale_atom,
    block_scaling.scale_columns,
    block_scaling.scale_error,
)
PICTURES = {each.__name__: each for each in _DRAWN}
PICTURES |= {f"{name}_cycles": partial(cycles.of_rung, name) for name in cycles.RUNGS}
"""By name of the file, what draws it."""


def draw(folder: Path, names: Iterable[str] = PICTURES) -> list[Path]:
    """Draw pictures, each of them unless names are given, into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with plt.rc_context(STYLE):
        for name in names:
            figure, path = PICTURES[name]().figure, folder / f"{name}.svg"
            figure.savefig(path, metadata={"Date": None})
            plt.close(figure)
            paths.append(path)
    return paths


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES):
        print(path)
