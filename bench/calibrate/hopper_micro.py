"""Microbenchmarks of an H100 or H200, as a table that `blackwell_matmul/hardware/figures/` cites.

    python bench/calibrate/hopper_micro.py bench/calibrate/tables/h200_micro.csv
    python bench/calibrate/hopper_micro.py OUT --emulate   # anywhere: the same kernels, small, on the CPU; no times

Each row is a median over launches and SMs after a first launch that does not count; spread is from the 10th to the
90th percentile. It takes about a minute on a GPU. What failed is left out and told at the end: the others still run, in
a new process, since a kernel that fails takes its process's GPU with it.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from blackwell_matmul.cli.doctor.facts import driver_release
from blackwell_matmul.cli.first_light.cards import Card, EmulatedCard
from blackwell_matmul.cli.first_light.micro import INSTRUCTIONS
from blackwell_matmul.compiler.nvrtc import compile_source, version
from blackwell_matmul.compiler.plan import TensorMap

TARGET = "sm_90a"
KERNELS = Path(__file__).with_name("hopper_kernels.cu")
WIDTHS = (8, 16, 32, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256)
EMULATED_WIDTHS, EMULATED_SMS, EMULATED_SCALE = (8, 64), 8, 16
LOADED_WIDTHS = (64, 96, 128, 192, 256)
COLUMNS = (16, 32, 64)
CLUSTERS = (2, 4, 8)
SLOTS, OPERAND_BYTES, BOX_BYTES, STAGES, FEWER_STAGES, ROW_BYTES = 8, 49152, 32768, 6, 4, 128
"""As in the kernels."""
WHOLE_SM_BYTES = 200 * 1024
"""Shared memory of which an SM holds one CTA."""
STEPS = {
    "cast": "CAST",
    "stmatrix": "MATRICES",
    "st.shared.u32": "WORDS",
    "cast, stmatrix": "CAST | MATRICES",
    "cast, stmatrix, fence": "CAST | MATRICES | FENCE",
    "cast, stmatrix, fence, two bar.sync": "CAST | MATRICES | FENCE | SYNCS",
    "cast, stmatrix, fence, two bar.sync, TMA store": "CAST | MATRICES | FENCE | SYNCS | STORE",
    "cast, st.shared.u32, fence, two bar.sync, TMA store": "CAST | WORDS | FENCE | SYNCS | STORE",
}
"""Of an epilogue, and what the kernels call them."""
ROW_PITCH = 16384
"""Bytes from a row to the next, where each lane stays in its own."""
WORDS = {2: "unsigned short", 4: "u32", 8: "u64", 16: "Two"}
"""By their bytes, what threads move."""
FIELDS = ("what", "parameters", "value", "unit", "spread")


class Measure(NamedTuple):
    """A row of the table."""

    what: str
    parameters: str
    value: float
    unit: str
    spread: float


def measure(what: str, parameters: str, samples: Any, unit: str) -> Measure:
    values = np.asarray(samples, float).ravel()
    low, high = np.percentile(values, (10, 90))
    return Measure(what, parameters, round(float(np.median(values)), 4), unit, round(float(high - low), 4))


# --- the code


def source(widths: Sequence[int]) -> str:
    return "\n".join([INSTRUCTIONS.read_text(), KERNELS.read_text(), *(_mma(n) for n in widths), *_entries(widths)])


def _mma(n: int) -> str:
    """struct Mma<n>: wgmma with bf16 and fp32 sums, A from shared memory or from registers."""
    count = n // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    kept = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{sums}}}"
    start = "{ .reg .pred p; setp.eq.u32 p, 0, 0; "
    shared = f"{start}{name}, %{count}, %{count + 1}, p, 1, 1, 0, 0; }}"
    four = ", ".join(f"%{count + i}" for i in range(4))
    registers = f"{start}{name}, {{{four}}}, %{count + 4}, p, 1, 1, 0; }}"
    given = ", ".join(f'"r"(a[{i}])' for i in range(4))
    inline = "static __device__ __forceinline__ void"
    return f"""template <> struct Mma<{n}> {{
    {inline} shared(float (&d)[{count}], u64 a, u64 b) {{
        asm volatile("{shared}" : {kept} : "l"(a), "l"(b));
    }}
    {inline} registers(float (&d)[{count}], const u32 (&a)[4], u64 b) {{
        asm volatile("{registers}" : {kept} : {given}, "l"(b));
    }}
}};"""


def _entries(widths: Sequence[int]) -> Iterator[str]:
    """The templates under names of their own."""
    for n in widths:
        for name, how in (
            *(("free", "false, FREE"), ("behind", "false, BEHIND"), ("each", "false, EACH")),
            ("registers", "true, FREE"),
        ):
            yield _entry(f"products_{n}_{name}", f"products<{n}, {how}>", "u64* out, const char* data, int tiles")
    for n in (each for each in LOADED_WIDTHS if each in widths):
        arguments = "u64* out, const char* data, int tiles, int stages, int rows, int pace, int span"
        yield _entry(f"loaded_{n}", f"products_with_loads<{n}>", arguments, mapped=True)
    for ctas in (1, *CLUSTERS):
        arguments = "u64* out, " + ", ".join(
            f"int {name}"
            for name in ("boxes", "stages", "rows", "first_row", "span", "divisor", "modulus", "every", "limit")
        )
        yield _entry(f"loads_{ctas}", f"loads<{ctas}>", arguments, mapped=True, ctas=ctas)
        yield _entry(f"stamps_{ctas}", f"stamps<{ctas}>", "u64* out, int busy", ctas=ctas)
        yield _entry(f"syncs_{ctas}", f"syncs<{ctas}>", "u64* out", ctas=ctas)
    for ctas in (1, 2):
        names = ("k_tiles", "stages", "a", "b", "high", "wide", "group", "pace", "skew")
        arguments = ", ".join(["const __grid_constant__ Map map_b, u64* out", *(f"int {name}" for name in names)])
        yield _entry(f"squares_{ctas}", f"squares<{ctas}>", arguments, mapped=True, ctas=ctas)
    for reach, ctas in (("WARPS", 1), ("SPINNING", 1), ("TOLD", 2), ("RELEASED", 2)):
        yield _entry(f"turns_{reach.lower()}", f"turns<{reach}>", "u64* out, int rounds", ctas=ctas)
    for ctas in CLUSTERS[:2]:
        yield _entry(f"exchange_{ctas}", f"exchange<{ctas}>", "u64* out, char* data, int vectors, int how", ctas=ctas)
    for (name, kind), stores in itertools.product(WORDS.items(), (False, True)):
        arguments = "u64* out, char* data, int count, int step, int between, int apart, int fold, int beside"
        function = f"scattered<{kind}, {str(stores).lower()}>"
        yield _entry(f"{'stores' if stores else 'fetches'}_{name}", function, arguments)
    for columns, (name, steps), buffers in itertools.product(COLUMNS, enumerate(STEPS.values()), (1, 2)):
        if buffers == 1 or "STORE" in steps:
            function = f"strips<{columns}, {steps}, {buffers}>"
            yield _entry(f"strips_{columns}_{name}_{buffers}", function, "u64* out, int count", mapped=True)


def _entry(name: str, function: str, arguments: str, mapped: bool = False, ctas: int = 1) -> str:
    cluster = f"__cluster_dims__({ctas}, 1, 1) " if ctas > 1 else ""
    given = ", ".join(each.split()[-1] for each in arguments.split(", "))
    if mapped:
        arguments, given = f"const __grid_constant__ Map map, {arguments}", f"map, {given}"
    body = f"{{ {function}({given}); }}"
    return f'extern "C" __global__ void {cluster}__launch_bounds__(384) {name}({arguments}) {body}'


# --- who runs it


def cubin(kept: Path | None) -> bytes:
    """The kernels for a GPU, read from a file or kept in it."""
    if kept and kept.is_file():
        return kept.read_bytes()
    compiled = compile_source(source(WIDTHS), TARGET, "hopper_kernels.cu")
    if "serializ" in compiled.log:  # what ptxas says when it waits for each wgmma by itself
        raise RuntimeError(f"ptxas serialises wgmma: {compiled.log[-300:]}")
    if kept:
        kept.write_bytes(compiled.cubin)
    return compiled.cubin


def _card(emulated: bool, kept: Path | None) -> Card | EmulatedCard:
    if not emulated:
        return Card(cubin(kept))
    ptx = compile_source(source(EMULATED_WIDTHS), TARGET, "hopper_kernels.cu").ptx
    return EmulatedCard(ptx, EMULATED_SMS, EMULATED_SCALE)


class Bench:
    """A card with the memory that the kernels use. rows: of 128 bytes, that TMA loads and stores."""

    def __init__(self, card: Any) -> None:
        self.card, self.sms, self.real = card, card.sms, card.scale == 1
        self.widths = WIDTHS if self.real else EMULATED_WIDTHS
        self.rows = 2**22 if self.real else 2**14
        self.launches = 7 if self.real else 1
        made = torch.Generator(card.device).manual_seed(0)
        self.table = torch.zeros(self.rows, 64, dtype=torch.bfloat16, device=card.device)
        self.operands = torch.randn(OPERAND_BYTES // 2, generator=made, device=card.device).to(torch.bfloat16)
        self.out = torch.zeros(self.sms * 16 * SLOTS, dtype=torch.int64, device=card.device)
        self.other = torch.zeros(2**26 if self.real else 2**16, dtype=torch.int32, device=card.device)

    def map(self, rows: int, columns: int = 64, pitch: int = ROW_BYTES) -> TensorMap:
        """Boxes of so many rows and columns of the table, with so many bytes from a row to the next."""
        swizzle = f"{columns * 2}B"
        pointer: Any = self.table.data_ptr() if self.real else self.table  # the emulator takes tensors
        dims, box = (64, self.rows * ROW_BYTES // pitch), (columns, rows)
        return TensorMap("BFLOAT16", pointer, dims, (pitch,), box, (1, 1), "NONE", swizzle, "L2_128B", "NONE")

    def fewer(self, count: int) -> int:
        """Of a loop, as far as the card is worth it."""
        return max(1, count // self.card.scale)

    def run(
        self,
        kernel: str,
        *arguments: Any,
        grid: int | None = None,
        block: int = 32,
        shared_bytes: int = WHOLE_SM_BYTES,
        flush: bool = False,
        launches: int | None = None,
    ) -> Any:
        """Words as an array of (launches, CTAs, slots); a first launch does not count."""
        ctas, found = grid or self.sms, []
        for _ in range((launches or self.launches) + 1):
            if flush:  # read more than the L2 holds
                self.other.sum()
            self.out.zero_()
            self.card.launch(kernel, arguments, ctas, block, shared_bytes)
            self.card.synchronize()
            found.append(self.out.cpu().numpy()[: ctas * SLOTS].reshape(ctas, SLOTS).copy())
        return np.stack(found[1:])  # ns since 1970 have no place in a float


Measurement = Callable[[Bench], Iterator[Measure]]


# --- the tensor cores


def wgmma(bench: Bench) -> Iterator[Measure]:
    """The interval of one instruction by its width, what a wait adds, and two warpgroups, which take turns."""
    for n, groups in itertools.product(bench.widths, (1, 2)):
        for how in ("free", "behind", "each", "registers"):
            few, many = (_products(bench, n, how, groups, bench.fewer(tiles)) for tiles in (64, 192))
            each = (many - few) / (bench.fewer(192) - bench.fewer(64)) / 4 / groups
            text = f"n={n} warpgroups={groups} a={'registers' if how == 'registers' else 'shared'}"
            waits = {"behind": " waits=for the k-tile before", "each": " waits=for each k-tile"}.get(how, "")
            yield measure("wgmma interval", text + waits, each, "cycles an instruction")
        one = _products(bench, n, "free", groups, 1)
        yield measure("wgmma k-tile", f"n={n} warpgroups={groups}", one, "cycles till its end is seen")


def _products(bench: Bench, n: int, how: str, groups: int, tiles: int) -> Any:
    shape = {"block": 128 * groups, "shared_bytes": OPERAND_BYTES}
    return bench.run(f"products_{n}_{how}", bench.out, bench.operands, tiles, **shape)[:, :, :groups].max(axis=2)


def wgmma_with_loads(bench: Bench) -> Iterator[Measure]:
    """What TMA's writing into shared memory costs the products that read it, and the other way round."""
    widths = [n for n in LOADED_WIDTHS if n in bench.widths]
    for n, groups in itertools.product(widths, (1, 2)):
        tiles = bench.fewer(256 * 256 // n)
        for stages, rows, pace in (
            (0, 8, 0),
            (1, 256, 0),
            (4, 8, 0),
            *((4, 256, pace) for pace in (4000, 2000, 1000, 683, 0)),
        ):
            found = _loaded(bench, n, groups, tiles, stages, rows, pace, bench.sms)
            cycles = found[:, :, :groups].max(axis=2)
            text = f"n={n} warpgroups={groups} boxes={stages} of {rows} rows, one in {pace} cycles at most"
            yield measure("wgmma while loading", text, cycles / tiles / 4 / groups, "cycles an instruction")
            if stages:
                yield measure("loads while wgmma", text, found[:, :, 3] * rows * ROW_BYTES / cycles, "bytes/cycle")
            if stages == 1:
                latency = found[:, :, 4] / np.maximum(1, found[:, :, 3])
                yield measure("load latency while wgmma", text, latency, "cycles")


def _loaded(
    bench: Bench, n: int, groups: int, tiles: int, stages: int, rows: int, pace: int, ctas: int, **more: Any
) -> Any:  # fmt: skip
    arguments = (bench.map(rows), bench.out, bench.operands, tiles, stages, rows, pace, 512)
    shape = {"grid": ctas, "block": 128 * groups + 32, "shared_bytes": OPERAND_BYTES + FEWER_STAGES * BOX_BYTES + 128}
    return bench.run(f"loaded_{n}", *arguments, **shape, **more)


def clock(bench: Bench) -> Iterator[Measure]:
    """The clock: without load, with the tensor cores busy for seconds, and with loads beside them."""
    idle = bench.run("stamps_1", bench.out, 20_000_000 if bench.real else 10_000, grid=1)
    yield measure("clock", "no load", (idle[:, :, 3] - idle[:, :, 2]) / (idle[:, :, 4] - idle[:, :, 1]), "GHz")
    tiles = 20_000 if bench.real else 4  # some 10 ms
    for load in (
        Load("wgmma alone"), Load("wgmma and 48 KiB of loads in 1024 cycles", stages=4, pace=683),
        Load("wgmma and one load at a time", stages=1), Load("wgmma of zeros", zeros=True),
        Load("wgmma on three quarters of the SMs", share=0.75), Load("wgmma on half of the SMs", share=0.5),
        Load("wgmma on a quarter of the SMs", share=0.25),
    ):  # fmt: skip
        yield from _under_load(bench, load, tiles)


class Load(NamedTuple):
    """What keeps the SMs busy."""

    what: str
    stages: int = 0
    pace: int = 0
    share: float = 1
    zeros: bool = False


def _under_load(bench: Bench, load: Load, tiles: int) -> Iterator[Measure]:
    """The second half of two seconds."""
    limit_s, ctas = 2.0 if bench.real else 0, int(bench.sms * load.share)
    n = max(set(LOADED_WIDTHS) & set(bench.widths))
    kept, began, ghz, latency = bench.operands.clone(), time.perf_counter(), [], []
    if load.zeros:
        bench.operands.zero_()
    while not ghz or time.perf_counter() - began < limit_s:
        found = _loaded(bench, n, 2, tiles, load.stages, 256, load.pace, ctas, launches=1)
        ghz.append(float(np.median(found[:, :, 0] / np.maximum(1, found[:, :, 2]))))
        latency.append(float(np.median(found[:, :, 4] / np.maximum(1, found[:, :, 3]))))
    bench.operands.copy_(kept)
    yield measure("clock", f"{load.what}, n={n}", ghz[len(ghz) // 2 :], "GHz")
    if load.stages == 1:
        yield measure("load latency under load", f"{load.what}, n={n}", latency[len(latency) // 2 :], "cycles")


# --- loads


class Who(NamedTuple):
    """Which SMs load, and what: rows of role = sm // divisor % modulus."""

    what: str
    divisor: int = 1
    modulus: int = 1 << 20
    every: int = 1
    limit: int = 1 << 20


def load_latency(bench: Bench) -> Iterator[Measure]:
    """One box at a time, from issue till a thread that spins sees it, from the L2 and from memory."""
    boxes = bench.fewer(32)
    for rows, limit in itertools.product((1, 8, 32, 64, 128, 256), (1, bench.sms)):
        for source, flush in (("L2", False), ("memory", True)):
            found = bench.run("load_once", bench.map(rows), bench.out, boxes, rows, limit, flush=flush)
            took = found[found[:, :, 1] > 0]
            text = f"from={source} {limit} SMs, one box of {rows} rows"
            yield measure("load latency", text, took[:, 0] / took[:, 1], "cycles")


def load_rate(bench: Bench) -> Iterator[Measure]:
    """Six boxes in flight: bytes a cycle into each SM, by who loads what."""
    half = bench.sms // 2
    for who in (
        *(Who(f"{count} SMs", limit=count) for count in (1, 2, 4, 8, 16, 32, half, bench.sms)),
        Who("every second SM", every=2), Who("2 SMs, not neighbours", every=2, limit=3),
        Who("2 neighbours, the same", divisor=2, limit=2), Who("pairs of neighbours, the same", divisor=2),
        Who("4 SMs in a row, the same", divisor=4), Who("6 SMs in a row, the same", divisor=6),
        Who("pairs from afar, the same", modulus=half), Who("fours from afar, the same", modulus=bench.sms // 4),
        Who("12 different ones", modulus=12), Who("all the same", modulus=1),
    ):  # fmt: skip
        yield _load("L2", bench, who, 256, STAGES, span=512)
    for rows, who in itertools.product((8, 64, 128), (Who("one SM", limit=1), Who("all SMs"))):
        yield _load("L2", bench, who, rows, STAGES, span=512)
    for who in (Who("one SM", limit=1), Who("all SMs")):
        yield _load("L2", bench, who, 256, 2, span=512)
        yield _load("L2, of 17 MB", bench, who, 256, STAGES, span=1024)
        yield _load("zeros", bench, who, 256, STAGES, first_row=bench.rows, span=512)
    for who in (
        *(Who(f"{count} SMs", limit=count) for count in (1, 2, 16, half, bench.sms)), Who("every second SM", every=2),
        Who("2 neighbours, the same", divisor=2, limit=2), Who("pairs of neighbours, the same", divisor=2),
        Who("pairs from afar, the same", modulus=half), Who("4 SMs in a row, the same", divisor=4),
    ):  # fmt: skip
        yield _load("memory", bench, who, 256, STAGES, span=16384, flush=True)
    for ctas in CLUSTERS:
        yield _load("L2, multicast", bench, Who(f"clusters of {ctas}"), 256, STAGES, span=512, ctas=ctas)


def _load(
    source: str, bench: Bench, who: Who, rows: int, stages: int, span: int, first_row: int = 0, flush: bool = False,
    ctas: int = 1,
) -> Measure:  # fmt: skip
    span = min(span, bench.rows // bench.sms)
    boxes = bench.fewer(span // rows if flush else 256 * max(1, 64 // rows)) + 2 * stages
    arguments = (boxes, stages, rows, first_row, span, *who[1:])
    grid = bench.sms // ctas * ctas if ctas < 8 else bench.sms // 16 * 8
    found = bench.run(f"loads_{ctas}", bench.map(rows // ctas), bench.out, *arguments, grid=grid, flush=flush)
    took = found[found[:, :, 2] > 0]
    text = f"from={source} {who.what}, {stages} boxes of {rows} rows in flight"
    return measure("load rate", text, took[:, 2] * rows * ROW_BYTES / took[:, 0], "bytes/cycle an SM")


def pitched(bench: Bench) -> Iterator[Measure]:
    """Rows that begin with a sector of 32 bytes, and rows of which each second one begins within one."""
    cases = itertools.product((64, 32), (2176, 2208, 2192), (Who("one SM", limit=1), Who("all SMs")))
    box_bytes = BOX_BYTES // 2  # at most 256 rows
    for columns, pitch, who in cases:
        rows = box_bytes // (2 * columns)
        arguments = (bench.fewer(256) + 2 * STAGES, STAGES, box_bytes // ROW_BYTES, 0, 256, *who[1:])
        found = bench.run("loads_1", bench.map(rows, columns, pitch), bench.out, *arguments)
        took = found[found[:, :, 2] > 0]
        text = f"from=L2 {who.what}, rows of {2 * columns} bytes, {pitch} apart"
        yield measure("load rate", text, took[:, 2] * box_bytes / took[:, 0], "bytes/cycle an SM")


def shared_tiles(bench: Bench) -> Iterator[Measure]:
    """The k-tiles of a product from the L2, where CTAs share tiles of A and of B as those of a grid do, as fast as they
    come and as products of these rows would take them."""
    for (a, b), across, by_sm in itertools.product(
        ((64, 64), (64, 256), (128, 64), (128, 128), (128, 192), (128, 256), (256, 128)),
        (1, 4, 8, 11, 16, 33, 66, 132), (False, True),
    ):  # fmt: skip
        products, moved = a * b // 32, (a + b) * ROW_BYTES
        for pace in (0, products // 2, products * 3 // 4, products):
            if across > bench.sms or (pace and not bench.real):
                continue
            k_tiles, stages = bench.fewer(512), min(8, (WHOLE_SM_BYTES - 128) // moved)
            given = (k_tiles, stages, a, b, across, by_sm, pace)
            found = bench.run("shared_tiles", bench.map(a), bench.map(b), bench.out, *given, block=64)
            who = "SM" if by_sm else "CTA"
            text = f"{a} rows that every {across}th {who} shares, {b} that {across} in a row do, {pace} cycles apart"
            yield measure("shared tiles", text, (k_tiles - 1) * moved / found[:, :, 0], "bytes/cycle an SM")


def squares(bench: Bench) -> Iterator[Measure]:
    """The same of whole grids, whose CTAs the hardware deals out in clusters of two, one to a GPC in turn, or without,
    one GPC after the other; started together, and less so."""
    late = [2**n for n in range(9, 14)] if bench.real else []
    grids = (
        ((64, 96, 12, 11), (64, 128, 12, 8), (128, 80, 10, 13), (128, 128, 12, 11)) if bench.real else ((8, 8, 4, 2),)
    )
    for a, b, high, wide in grids:
        moved, pace = (a + b) * ROW_BYTES, a * b // 32
        k_tiles, stages = bench.fewer(416), min(10, (WHOLE_SM_BYTES - 256) // moved)
        for ctas, group, skew in (*itertools.product((1, 2), (4, 16), (0,)), *((1, 4, each) for each in late)):
            given = (k_tiles, stages, a, b, high, wide, group, pace, skew)
            maps, shape = (bench.map(a), bench.map(b)), {"grid": high * wide, "block": 64}
            found = bench.run(f"squares_{ctas}", *maps, bench.out, *given, **shape)
            tiles = f"{high}x{wide} tiles of {a}x{b} in groups of {group} rows"
            text = f"{tiles}, clusters of {ctas}, up to {skew} cycles late"
            yield measure("squares", text, found[:, :, 0] / (k_tiles - 1), "cycles a k-tile")


def scattered(bench: Bench) -> Iterator[Measure]:
    """What threads load and store themselves, in words that lie side by side or apart: cycles of an SM for each
    instruction of a warp."""
    count, warps = bench.fewer(32), 8
    for nbytes, kind, ctas in itertools.product(WORDS, ("fetches", "stores"), (1, bench.sms, 4 * bench.sms)):
        for what, step, between, apart, fold, beside in (
            ("side by side", 32 * nbytes, nbytes, 32 * nbytes * count, 1, 1),
            ("each in a sector of its own", 32 * 32, 32, 32 * 32 * count, 1, 1),
            ("each in a line of its own", 32 * 128, 128, 32 * 128 * count, 1, 1),
            (
                "each in a row of its own, along the rows",
                nbytes,
                ROW_PITCH,
                32 * ROW_PITCH,
                ROW_PITCH // count // nbytes,
                1,
            ),
            (
                "four side by side in each of eight rows, along the rows",
                4 * nbytes,
                ROW_PITCH,
                8 * ROW_PITCH,
                ROW_PITCH // count // nbytes // 4,
                4,
            ),
        ):
            if ctas * warps // fold * apart < 4 * bench.other.numel() - apart:
                shape = {"grid": ctas, "block": 32 * warps, "shared_bytes": 0}
                given = (count, step, between, apart, fold, beside)
                found = bench.run(f"{kind}_{nbytes}", bench.out, bench.other, *given, **shape)
                each = found[:, :, 0] / count / warps / max(1, ctas // bench.sms)
                yield measure(kind, f"{nbytes} bytes of a lane, {what}, {ctas} CTAs", each, "cycles an instruction")


def plain_loads(bench: Bench) -> Iterator[Measure]:
    """A chain of loads by a thread, each 4 KiB further, from the L2 and from memory."""
    hops, step = bench.fewer(64), 1024
    chain = torch.arange(step, step * (hops + 1), step, dtype=torch.int32, device=bench.card.device)
    nodes = torch.zeros(step * (hops + 1), dtype=torch.int32, device=bench.card.device)
    nodes[: step * hops : step] = chain
    for where, flush in (("L2", False), ("memory", True)):
        found = bench.run("chase", bench.out, nodes, hops, grid=1, flush=flush, launches=25)
        yield measure("plain load", f"from={where}", found[:, :, 0] / hops, "cycles")


def bandwidth(bench: Bench) -> Iterator[Measure]:
    """All SMs read what no L2 holds, by TMA, in ns."""
    span = bench.rows // bench.sms // 256 * 256
    arguments = (span // 256, STAGES, 256, 0, span, 1, 1 << 20, 1, 1 << 20)
    found = bench.run("loads_1", bench.map(256), bench.out, *arguments)
    bytes_read = found[:, :, 2].sum(axis=1) * BOX_BYTES
    yield measure("memory rate", "all SMs read", bytes_read / found[:, :, 1].max(axis=1), "bytes/ns")


# --- barriers, fences, what CTAs give each other


def barriers(bench: Bench) -> Iterator[Measure]:
    names = (
        "nothing", "mbarrier.arrive", "mbarrier.arrive.expect_tx", "mbarrier.try_wait of what is over",
        "mbarrier.arrive and try_wait", "fence.proxy.async", "st.shared and fence.proxy.async",
        "commit and wait_group.read of nothing",
    )  # fmt: skip
    found = bench.run("signals", bench.out, grid=1)
    for slot, name in enumerate(names):
        yield measure(name, "one thread", found[:, :, slot] / 32, "cycles")
    found = bench.run("fences", bench.out, bench.other, grid=1)
    names = tuple(f"{store}fence.acq_rel.{scope}" for store in ("", "st.global, ") for scope in ("cluster", "gpu"))
    for slot, name in enumerate(names):
        yield measure(name, "one thread", found[:, :, slot] / 32, "cycles")
    for rows in (8, 128):
        found = bench.run("issues", bench.map(rows), bench.out, rows, grid=1)
        yield measure("issue of a TMA load", f"8 of {rows} rows", found[:, :, 0] / 8, "cycles")
    yield from _turns(bench)
    for block in (64, 128, 256, 288, 384):
        yield measure(
            "bar.sync", f"{block} threads", bench.run("syncs_1", bench.out, block=block)[:, :, 0] / 32, "cycles"
        )
    for ctas, block in itertools.product(CLUSTERS, (128, 384)):
        found = bench.run(f"syncs_{ctas}", bench.out, grid=ctas, block=block)[:, :, 0] / 32
        yield measure("barrier.cluster", f"{ctas} CTAs of {block} threads", found, "cycles")


def _turns(bench: Bench) -> Iterator[Measure]:
    """From an arrival till the one that waits for it goes on, and arrives itself."""
    rounds = bench.fewer(64)
    for name, told, ctas, block in (
        ("warps", "another warp", 1, 64), ("spinning", "another warp, by test_wait", 1, 64),
        ("told", "another CTA, release.cta", 2, 32),
        ("released", "another CTA, release.cluster", 2, 32),
    ):  # fmt: skip
        found = bench.run(f"turns_{name}", bench.out, rounds, grid=ctas, block=block)[:, :, 0]
        yield measure("arrival till seen", told, found[found > 0] / rounds / 2, "cycles")


def exchanges(bench: Bench) -> Iterator[Measure]:
    """Sums that the CTAs of a cluster give each other through the L2: each step since the start."""
    hows = ("mbarrier, release.cluster", "barrier.cluster", "mbarrier, release.cta")
    steps = ("stores issued", "told", "heard", "loaded")
    for ctas, block, vectors, how in itertools.product((2, 4), (128, 256), (0, 1, 4, 16, 32), range(3)):
        grid = bench.sms // ctas * ctas
        kilobytes = vectors * block * 16 / 1024
        for where, count in (("one cluster", ctas), ("all SMs", grid)):
            if vectors > 4 and not bench.real:
                continue
            found = bench.run(f"exchange_{ctas}", bench.out, bench.other, vectors, how, grid=count, block=block)
            text = f"{ctas} CTAs of {block} threads, {kilobytes:g} KiB each, {hows[how]}, {where}"
            for slot, step in enumerate(steps):
                yield measure(f"exchange: {step}", text, found[:, :, slot], "cycles")


# --- stores


def tma_stores(bench: Bench) -> Iterator[Measure]:
    steps = ("committed", "read", "written")
    for rows, columns in ((64, 16), (64, 32), (64, 64), (128, 64), (8, 64)):
        text = f"{rows} rows of {columns * 2} bytes"
        for where, ctas in (("one SM", 1), ("all SMs", bench.sms)):
            found = bench.run("store_once", bench.map(rows, columns), bench.out, rows, grid=ctas)
            for slot, step in enumerate(steps):
                yield measure(f"TMA store till {step}", f"{text}, {where}", found[:, :, slot], "cycles")
            for buffers in (1, 2):
                yield from _many_stores(bench, rows, columns, buffers, ctas, f"{text}, {where}, {buffers} buffers")


def _many_stores(bench: Bench, rows: int, columns: int, buffers: int, ctas: int, text: str) -> Iterator[Measure]:
    boxes = bench.fewer(64)
    found = bench.run("store_many", bench.map(rows, columns), bench.out, rows, boxes, buffers, grid=ctas)
    kib = boxes * rows * columns * 2 / 1024
    yield measure("TMA stores", f"{text}, till read", found[:, :, 0] / boxes, "cycles each")
    yield measure("TMA stores", f"{text}, till written", found[:, :, 1] / kib, "cycles a KiB")


def strips(bench: Bench) -> Iterator[Measure]:
    """A strip of 64 rows of an epilogue, step by step."""
    for name, (told, steps) in enumerate(STEPS.items()):
        for columns, groups, buffers in itertools.product(COLUMNS, (1, 2), (1, 2) if "STORE" in steps else (1,)):
            count, kernel = bench.fewer(16), f"strips_{columns}_{name}_{buffers}"
            found = bench.run(kernel, bench.map(64, columns), bench.out, count, block=128 * groups)
            where = f"{columns} columns, {groups} warpgroups" + f", {buffers} buffers" * ("STORE" in steps)
            yield measure("strip", f"{told}: {where}", found[:, :, :groups].max(axis=2) / count, "cycles each")


# --- launches


def starts(bench: Bench) -> Iterator[Measure]:
    """CTAs one after another on an SM, and how far apart the first ones begin."""
    cases = ((1, 128, 200), (1, 384, 200), (1, 128, 100), (1, 128, 50), (2, 384, 200), (4, 384, 200))
    for ctas, block, kib in cases:
        grid = bench.sms * 8 // ctas * ctas
        shared = kib * 1024
        found = bench.run(f"stamps_{ctas}", bench.out, bench.fewer(20_000), grid=grid, block=block, shared_bytes=shared)
        text = f"{block} threads, {kib} KiB" + f", clusters of {ctas}" * (ctas > 1)
        gaps = [gap for launch in found for gap in _gaps(launch)] or [0]
        yield measure("CTA after CTA on an SM", text, gaps, "cycles")
        ends = found[:, :, 4].max(axis=1) - found[:, :, 1].min(axis=1)
        yield measure("grid of 8 CTAs an SM, 20000 cycles each", text, ends, "ns")
        one = bench.run(f"stamps_{ctas}", bench.out, bench.fewer(20_000), grid=bench.sms // ctas * ctas, block=block,
                        shared_bytes=shared)  # fmt: skip
        yield measure("first CTA to last CTA", text, one[:, :, 1].max(axis=1) - one[:, :, 1].min(axis=1), "ns")


def _gaps(launch: Any) -> Iterator[float]:
    """Cycles from the end of a CTA to the start of one that begins after it, on SMs that hold one at a time."""
    for sm in np.unique(launch[:, 0]):
        here = launch[launch[:, 0] == sm]
        here = here[np.argsort(here[:, 2])]
        gaps = here[1:, 2] - here[:-1, 3]
        yield from gaps[gaps > 0]


def launches(bench: Bench) -> Iterator[Measure]:
    """Kernel after kernel in a graph."""
    if not bench.real:
        return
    for kernel, arguments, told in (("nothing", (), "empty"), ("stamps_1", (bench.out, 10_000), "10000 cycles")):
        for grid, block, kib in itertools.product((1, bench.sms, bench.sms * 4), (128, 384), (0, 200)):
            if kernel == "stamps_1" and grid > bench.sms:
                continue
            each = _in_graph(bench, kernel, arguments, grid, block, kib * 1024)
            yield measure("kernel after kernel", f"{told}, {grid} CTAs of {block} threads, {kib} KiB", each, "ns")


def _in_graph(
    bench: Bench, kernel: str, arguments: Sequence[Any], grid: int, block: int, shared_bytes: int
) -> list[float]:
    """ns each, of some hundred."""
    count, stream, graph = 200, torch.cuda.Stream(), torch.cuda.CUDAGraph()
    bench.card.launch(kernel, arguments, grid, block, shared_bytes)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        prepared = bench.card.prepared(kernel, arguments, grid, block, shared_bytes)
        for _ in range(count):
            prepared()
    found = []
    for _ in range(bench.launches + 1):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) * 1e6 / count)
    return found[1:]


MEASUREMENTS: tuple[Measurement, ...] = (
    wgmma, load_latency, load_rate, pitched, shared_tiles, squares, plain_loads, scattered, wgmma_with_loads, barriers,
    exchanges, tma_stores, strips, starts, launches, bandwidth, clock,
)  # fmt: skip


# --- the table


def header(bench: Bench) -> str:
    release = driver_release() or "unknown"
    return (
        f"# {bench.card.name}, {bench.sms} SMs, driver {release if bench.real else 'none'}, NVRTC {version()}, torch "
        f"{torch.__version__}; cycles of the SM, by %clock64; ns by %globaltimer and events\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--only", help="names of measurements, with commas")
    parser.add_argument("--append", action="store_true", help="go on with a table")
    parser.add_argument("--code", type=Path, help="where the compiled kernels are kept; they are compiled if not there")
    given = parser.parse_args(arguments)
    bench = Bench(_card(given.emulate, given.code))
    names = given.only.split(",") if given.only else [each.__name__ for each in MEASUREMENTS]
    with given.out.open("a" if given.append else "w", newline="") as file:
        if not given.append:
            file.write(header(bench))
            csv.writer(file).writerow(FIELDS)
        failed = _measured(bench, names, file)
    if failed is None or failed == names[-1]:
        return int(failed is not None)
    rest = ["--append", "--only", ",".join(names[names.index(failed) + 1 :])]
    rest += ["--code", str(given.code)] if given.code else []
    rest += ["--emulate"] if given.emulate else []
    return _child([sys.executable, __file__, str(given.out), *rest]) or 1


def _child(command: list[str]) -> int:
    """A failed kernel takes its process's GPU with it."""
    return subprocess.run(command).returncode


def _measured(bench: Bench, names: Sequence[str], file: Any) -> str | None:
    """Writes the rows as they come; the name of the measurement that failed."""
    by_name = {each.__name__: each for each in MEASUREMENTS}
    for name in names:
        began = time.perf_counter()
        try:
            for row in by_name[name](bench):
                csv.writer(file).writerow(row)
        except Exception as error:  # whatever it is, the others are measured
            print(f"{name} failed: {error}", flush=True)
            return name
        finally:
            file.flush()
        print(f"{name}: {time.perf_counter() - began:.1f} s", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main())
