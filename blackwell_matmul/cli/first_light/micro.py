"""Microbenchmarks of a GPU's parts. Each value is compared with a figure of `hardware/figures/` for the time model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from blackwell_matmul.cli.first_light.cards import Card, EmulatedCard
from blackwell_matmul.compiler.nvrtc import Compiled, compile_source
from blackwell_matmul.hardware.gpu_figures import TIME_FIGURES, TimeFigures

SOURCE, INSTRUCTIONS = (Path(__file__).with_name(name) for name in ("micro.cu", "instructions.cu"))
DEFINES = {"sm_100a": "TCGEN05", "sm_103a": "TCGEN05", "sm_120a": "MMA_SYNC", "sm_121a": "MMA_SYNC"}
"""Macro that the source needs, by target, in addition to the kernels for every GPU with TMA."""

SLOTS = 8
OPERAND_BYTES = 48 * 1024
SHARED_BYTES = 64 * 1024
STRIP_KIB = 4
"""Size in KiB of the bulk store that is compared with the time model: a strip of an epilogue."""

LOAD_COLUMNS = (16, 32, 64, 128)
AGREEMENT = 1.25
"""Largest factor between a measured value and a figure that counts as agreement."""


@dataclass(frozen=True)
class Measure:
    """One measured value.

    spread: distance from the 10th to the 90th percentile. figure: name in `TimeFigures`; "" if there is none. expected:
    value by the time model; None if the model has none. how: origin of the figure: measured, derived or assumed. held:
    True if value and figure agree; None without a comparison.
    """

    what: str
    parameters: str
    value: float
    unit: str
    spread: float
    figure: str = ""
    expected: float | None = None
    how: str = ""
    held: bool | None = None


# --- the code


def source(target: str) -> str:
    """Return the CUDA C++ of the kernels for a target."""
    define = DEFINES.get(target)
    loads = "\n".join(map(_tensor_loads, LOAD_COLUMNS)) if define == "TCGEN05" else ""
    return "\n".join([f"#define {define}" if define else "", INSTRUCTIONS.read_text(), SOURCE.read_text(), loads])


def compiled(target: str) -> Compiled:
    return compile_source(source(target), target, SOURCE.name)


def _tensor_loads(columns: int) -> str:
    """Return the source of a kernel: four warps each load `columns` columns of tensor memory, and wait after each
    load."""
    values = ", ".join(f"%{i}" for i in range(columns))
    kept = ", ".join(f'"=r"(r[{i}])' for i in range(columns))
    stored = ", ".join(f"%{i + 1}" for i in range(columns))
    given = ", ".join('"r"(0x3c003c00)' for _ in range(columns))
    return f"""
extern "C" __global__ void __launch_bounds__(128) tensor_loads_{columns}(u64* out, int count) {{
    if (threadIdx.x < 32) allocate<1>(512);
    __syncthreads();
    u32 at = *(volatile u32*)&columns_at + ((threadIdx.x / 32) << 21), r[{columns}], sum = 0;
    asm volatile("tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%0], {{{stored}}};" ::"r"(at), {given} : "memory");
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    __syncthreads();
    u64 start = cycles();
#pragma unroll 1
    for (int i = 0; i < count; ++i) {{
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {{{values}}}, [%{columns}];" : {kept} : "r"(at)
                     : "memory");
        asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
        sum += r[0] + r[{columns - 1}];
    }}
    u64 elapsed = cycles() - start;
    if (threadIdx.x == 0) mine(out)[0] = elapsed, mine(out)[1] = sum;
    __syncthreads();
    if (threadIdx.x < 32) release<1>(*(volatile u32*)&columns_at, 512);
}}"""


# --- running


class Bench:
    """A GPU with the buffers of the microbenchmarks. figures: the time model's figures of this GPU, if any."""

    def __init__(self, card: Card | EmulatedCard, figures: TimeFigures | None) -> None:
        self.card, self.figures, self.real = card, figures, card.scale == 1
        self.sms, self.launches = card.sms, 5 if self.real else 1
        self.out = torch.zeros(card.sms * 16 * SLOTS, dtype=torch.int64, device=card.device)
        self.memory = torch.zeros(2**26 if self.real else 2**18, dtype=torch.int32, device=card.device)

    def fewer(self, count: int) -> int:
        """Return the number of iterations of a loop, fewer in the emulator."""
        return max(2, count // self.card.scale)

    def operands(self, kind: str) -> torch.Tensor:
        """Return bytes that are finite elements of a kind of MMA."""
        made = torch.Generator().manual_seed(0)
        dtype = {"f16": torch.float16, "tf32": torch.float32}.get(kind)
        if dtype is not None:
            found = torch.randn(OPERAND_BYTES // dtype.itemsize, generator=made).to(dtype).view(torch.uint8)
        else:
            found = torch.randint(0, 256, (OPERAND_BYTES,), generator=made, dtype=torch.uint8) & 0xB7
        return found.to(self.card.device)

    def run(self, kernel: str, *arguments: Any, grid: int | None = None, block: int = 128) -> Any:
        """Launch a kernel; return the words that it writes, as an array of (launches, CTAs, slots).

        On a GPU the first launch is left out.
        """
        ctas, found = grid or self.sms, []
        for _ in range(self.launches + self.real):
            self.out.zero_()
            self.card.launch(kernel, (self.out, *arguments), ctas, block, SHARED_BYTES)
            self.card.synchronize()
            found.append(self.out.cpu().numpy()[: ctas * SLOTS].reshape(ctas, SLOTS).copy())
        return np.stack(found[self.real :])

    def measure(
        self, what: str, parameters: str, samples: Any, unit: str, figure: str = "", expected: float | None = None
    ) -> Measure:
        """Return the median of the samples, compared with a figure. The emulator's values are not compared.

        figure: name in `TimeFigures`. expected: value by the time model; None: the figure.
        """
        values = np.asarray(samples, float).ravel()
        low, middle, high = (float(each) for each in np.percentile(values, (10, 50, 90)))
        known = getattr(self.figures, figure, None) if figure and self.figures is not None else None
        by_model = None if known is None else float(known) if expected is None else expected
        held = None
        if by_model and self.real:
            held = middle > 0 and 1 / AGREEMENT <= middle / by_model <= AGREEMENT
        how = getattr(known, "how", "") if known is not None else ""
        return Measure(what, parameters, round(middle, 4), unit, round(high - low, 4), figure, by_model, how, held)

    def figure(self, name: str) -> float:
        return float(getattr(self.figures, name, 0.0) or 0.0)


Measurement = Callable[[Bench], Iterator[Measure]]


# --- every GPU with TMA


def fences(bench: Bench) -> Iterator[Measure]:
    """Measure fence.proxy.async after a store of each thread."""
    count = bench.fewer(64)
    for threads in (32, 128):
        found = bench.run("fences", count, block=threads)
        each = (found[:, :, 1] - found[:, :, 0]) / count
        figure = "fence_cycles" if threads == 128 else ""
        yield bench.measure("fence.proxy.async", f"{threads} threads", each, "cycles", figure)


def stores(bench: Bench) -> Iterator[Measure]:
    """Measure bulk stores by one thread, with wait_group.read after each store."""
    for kib in (1, 4, 16):
        count = bench.fewer(32)
        found = bench.run("bulk_stores", bench.memory, kib * 1024, count, block=32)
        expected = bench.figure("store_cycles") + kib * bench.figure("store_kib_cycles")
        text, figure = f"{kib} KiB, one at a time", "store_cycles" if kib == STRIP_KIB else ""
        yield bench.measure("store until read", text, found[:, :, 0] / count, "cycles", figure, expected)


def l2_rate(bench: Bench) -> Iterator[Measure]:
    """Measure the L2's rates to one SM and to all SMs, if several consecutive CTAs load the same pieces of 16 KiB."""
    nbytes, pieces = (16384, 8) if bench.real else (1024, 2)
    for sharers in sorted({1, 2, 4, 8, bench.sms}):
        if sharers > bench.sms:
            continue
        found = bench.run("shared_loads", bench.memory, nbytes, pieces, bench.fewer(256), sharers, block=32)
        rate = found[:, :, 2] / np.maximum(1, found[:, :, 0])
        yield bench.measure("load rate of an SM", f"{sharers} CTAs read the same", rate, "bytes/cycle")
        total = found[:, :, 2].sum(axis=1) / np.maximum(1, found[:, :, 1].max(axis=1))
        figure = "l2_bytes_per_ns" if sharers == 1 else ""
        yield bench.measure("load rate of all SMs", f"{sharers} CTAs read the same", total, "bytes/ns", figure)


def fills(bench: Bench) -> Iterator[Measure]:
    """Measure cp.async of 128 threads."""
    found = bench.run("cp_async", bench.memory, bench.fewer(128))
    rate = found[:, :, 1] / np.maximum(1, found[:, :, 0])
    yield bench.measure("cp.async", "128 threads, 16 KiB from the L2", rate, "bytes/cycle", "fill_bytes_per_cycle")


def turnover(bench: Bench) -> Iterator[Measure]:
    """Measure the time from the end of a CTA to the start of the next CTA on the same SM."""
    for ctas in (1, 2):
        busy = 20_000 if bench.real else 50
        found = bench.run(f"stamps_{ctas}", busy, grid=bench.sms * 8 // ctas * ctas, block=384)
        gaps = [gap for launch in found for gap in _gaps(launch)] or [0.0]
        text = "384 threads" + ", clusters of 2" * (ctas > 1)
        yield bench.measure("CTA after CTA on an SM", text, gaps, "ns", "launch_ns" if ctas == 1 else "")


def _gaps(launch: Any) -> Iterator[float]:
    """Yield, for each CTA, the ns from the latest end of a CTA on the same SM to the CTA's start."""
    for sm in np.unique(launch[:, 0]):
        here = launch[launch[:, 0] == sm]
        ends = np.sort(here[:, 4])
        for start in here[:, 1]:
            place = int(np.searchsorted(ends, start, side="right"))
            if place:
                yield float(start - ends[place - 1])


# --- tcgen05


def tensor_loads(bench: Bench) -> Iterator[Measure]:
    """Measure tcgen05.ld of four warps, with a wait after each load."""
    for columns in LOAD_COLUMNS:
        count = bench.fewer(64)
        each = bench.run(f"tensor_loads_{columns}", count)[:, :, 0] / count
        figure = {64: "strip_load_cycles", 128: "half_load_cycles"}.get(columns, "")
        yield bench.measure("tcgen05.ld and its wait", f"{columns} columns, four warps", each, "cycles", figure)


PRODUCTS: Mapping[str, tuple[int, int, int]] = {
    "f16": (0x10, 0, 4), "tf32": (0x10 | 2 << 7 | 2 << 10, 0, 4), "f8f6f4": (0x10, 0, 4),
    "mxf8f6f4": (1 << 23, 0x7F7F7F7F, 7), "mxf4nvf4": (1 << 7 | 1 << 10, 0x38383838, 7),
}  # fmt: skip
"""Instruction descriptor without shape, word of scales, and logarithm of M's unit, by the kind of tcgen05.mma."""

SHAPES = ((1, 128, 64), (1, 128, 128), (1, 128, 256), (2, 256, 128), (2, 256, 256))
"""CTAs, M and N of the measured MMAs."""


def descriptor(kind: str, m: int, n: int) -> int:
    """Return the instruction descriptor of M by N (PTX ISA, "Instruction descriptor").

    Bits 17 to 22 have N / 8. The bits from 24 on have M / 16, or those from 27 on M / 128 with block scales.
    """
    word, _, unit = PRODUCTS[kind]
    return word | n >> 3 << 17 | (m >> unit) << (24 if unit == 4 else 27)


def mma_interval(bench: Bench) -> Iterator[Measure]:
    """Measure interval and latency of tcgen05.mma of 32 bytes along K, by kind and shape."""
    for kind, (_, scale, _) in PRODUCTS.items():
        data = bench.operands(kind)
        for ctas, m, n in SHAPES if bench.real else SHAPES[::3]:
            kernel, text = f"products_{kind}_{ctas}", f"{kind} {m}x{n}, {'a pair' if ctas == 2 else 'one CTA'}"
            grid = bench.sms // ctas * ctas
            counts = (1, bench.fewer(64), bench.fewer(256))
            once, few, many = (
                bench.run(kernel, data, scale, descriptor(kind, m, n), count, grid=grid)[:, ::ctas] for count in counts
            )
            interval = (many[:, :, 0] - few[:, :, 0]) / (counts[2] - counts[1])
            row = bench.measure("mma interval", text, interval, "cycles")
            yield replace(row, **_by_rule(bench, float(np.median(interval)), n / 2))
            name = "pair_latency_cycles" if ctas == 2 else "mma_latency_cycles"
            expected = bench.figure(name) + n / 2
            yield bench.measure("mma until its commit is seen", text, once[:, :, 0], "cycles", name, expected)


def _by_rule(bench: Bench, value: float, cycles: float) -> dict[str, Any]:
    """Return a measure's fields for a value that the time model derives from a rule. cycles: the derived value."""
    held = 1 / AGREEMENT <= value / cycles <= AGREEMENT if bench.real else None
    return {"expected": cycles, "how": "derived", "held": held}


def scale_copies(bench: Bench) -> Iterator[Measure]:
    """Measure tcgen05.cp 32x128b.warpx4 of 512 bytes."""
    data, counts = bench.operands("mxf8f6f4"), (bench.fewer(32), bench.fewer(256))
    few, many = (bench.run("scale_copies", data, count)[:, :, 0] for count in counts)
    yield bench.measure("tcgen05.cp 32x128b.warpx4", "512 bytes", (many - few) / (counts[1] - counts[0]), "cycles")
    yield bench.measure("tcgen05.cp until its commit is seen", f"{counts[0]} of 512 bytes", few, "cycles")


def copy_after_mma(bench: Bench) -> Iterator[Measure]:
    """Test an order on which kernels with block scales rely, and that PTX does not guarantee: an MMA reads its scales
    before a later tcgen05.cp overwrites them."""
    ones = torch.full((OPERAND_BYTES,), 0x38, dtype=torch.uint8, device=bench.card.device)
    rounds = bench.fewer(1000)
    for count in (1, 8, 32) if bench.real else (1, 2):
        given = (ones, descriptor("mxf8f6f4", 128, 256), count, rounds)
        found = bench.run("copy_after_products", *given)
        wrong = float(found[:, :, 0].sum())
        row = bench.measure("cp that overtook an mma", f"{count} products, {rounds} rounds an SM", wrong, "lanes")
        yield replace(row, expected=0.0, how="assumed", held=wrong == 0)


def allocations(bench: Bench) -> Iterator[Measure]:
    """Measure two CTAs on an SM that each allocate half of tensor memory, with and without relinquish_alloc_permit."""
    busy = 200_000 if bench.real else 20
    for relinquish in (1, 0):
        found = bench.run("half_allocations", relinquish, busy, grid=bench.sms * 2, block=32)
        text = "permit given up" if relinquish else "permit kept"
        waited = found[:, :, 2] - found[:, :, 1]
        yield bench.measure("tcgen05.alloc, two CTAs an SM", text, waited, "ns")
        yield bench.measure("CTAs that held columns together", text, list(map(_together, found)), "fraction")


def _together(launch: Any) -> float:
    """Return the fraction of CTAs that had columns at the same time as another CTA of their SM."""
    others = [
        any(a[0] == b[0] and i != j and b[2] <= a[2] < b[3] for j, b in enumerate(launch)) for i, a in enumerate(launch)
    ]
    return 2 * sum(others) / max(1, len(others))


def cancels(bench: Bench) -> Iterator[Measure]:
    """Measure cluster launch control: the time from a request to its response, and the number of CTAs that start after
    a request has failed."""
    found = bench.run("cancels", 2000 if bench.real else 10, grid=bench.sms * 16, block=32)
    ran = found[:, :, 1] > 0
    each = found[:, :, 0] / np.maximum(1, found[:, :, 1])
    yield bench.measure("try_cancel until answered", "one CTA at a time", each[ran], "cycles")
    late = [_late(launch[launch[:, 1] > 0]) for launch in found]
    yield bench.measure("CTAs that started after a refusal", f"grid of {bench.sms * 16}", late, "CTAs")
    missing = [bench.sms * 16 - (launch[launch[:, 1] > 0][:, 2] + 1).sum() for launch in found]
    row = bench.measure("CTAs neither started nor cancelled", f"grid of {bench.sms * 16}", missing, "CTAs")
    yield replace(row, expected=0.0, how="promised by PTX", held=not any(missing))


def _late(launch: Any) -> float:
    first_refusal = launch[:, 4].min()
    return float((launch[:, 3] > first_refusal).sum())


# --- mma.sync


def warp_products(bench: Bench) -> Iterator[Measure]:
    """Measure mma.sync of four and of eight warps on each SM. Each warp has four accumulators."""
    count = bench.fewer(256)
    for kind, scale in (("f16", 0), ("f8f6f4", 0), ("mxf8f6f4", 0x7F7F7F7F), ("mxf4nvf4", 0x38383838)):
        for warps in (4, 8):
            found = bench.run(f"warps_{kind}", bench.operands(kind), scale, count, block=32 * warps)
            figure = {"f16": "mma_sync_interval", "f8f6f4": ""}.get(kind, "mma_sync_scaled_interval")
            each = found[:, :, 0] / count / 4 / warps
            yield bench.measure("mma.sync interval of an SM", f"{kind}, {warps} warps", each, "cycles", figure)


EVERY: tuple[Measurement, ...] = (fences, stores, l2_rate, fills, turnover)
MEASUREMENTS: Mapping[str, tuple[Measurement, ...]] = {
    "": EVERY,
    "TCGEN05": (mma_interval, copy_after_mma, tensor_loads, scale_copies, allocations, cancels, *EVERY),
    "MMA_SYNC": (warp_products, *EVERY),
}
"""Measurements by the macro of `DEFINES`, the most important for the time model first."""


def measurements(target: str) -> Mapping[str, Measurement]:
    """Return the measurements of a target by name, in order."""
    return {each.__name__: each for each in MEASUREMENTS[DEFINES.get(target, "")]}


def figures_for(gpu: str) -> TimeFigures | None:
    """Return the figures of a GPU whose name contains a name such as "H200"; None without figures."""
    return next((TIME_FIGURES[name] for name in TIME_FIGURES if name in gpu), None)


def measured(bench: Bench, target: str, name: str) -> Sequence[dict[str, Any]]:
    return [vars(each) for each in measurements(target)[name](bench)]
