"""Figures of each part of a GPU for the time model.

figures/ has the values, each with its unit, its source and how it was obtained; figures/sources.toml has the sources.
Cycles are of the SM's clock. Figures in nanoseconds stay the same when the SM's clock falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from blackwell_matmul.base.data_files import How, entries, filled, read
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.hardware.gpus import FIGURES, GPUS


class GpuFigure(float):
    """A number with its source, and how it was obtained."""

    how: How
    source: str

    def __new__(cls, value: float, how: How, source: str) -> GpuFigure:
        made = super().__new__(cls, value)
        made.how, made.source = how, source
        return made


MMA_SYNC_PRODUCTS = 16 * 8 * 16
"""Multiplications of an mma.sync.m16n8k16, which reads 32 bytes along k."""

ROW_BYTES = 128
"""Bytes that TMA moves at a time, as one request to the L2. A shorter row takes as long as a row of this size."""


@dataclass(frozen=True, kw_only=True)
class TimeFigures:
    """Figures of one GPU for the time model. None: the GPU lacks the part, or the figure is not published. A name ends
    with the unit. A figure in cycles is the duration of its operation."""

    clock_ghz: GpuFigure
    """Clock of the SMs without load."""
    clock_fall_ghz: GpuFigure
    """Decrease of the clock while the tensor cores are always busy."""
    mma_latency_cycles: GpuFigure | None = None
    """Time from the issue of a tcgen05.mma until a warp sees its end, without the time of the MMA itself."""
    pair_latency_cycles: GpuFigure | None = None
    """The same latency for a CTA pair."""
    chain_cycles: GpuFigure
    """Additional time of a chain of MMAs, once for each chain."""
    commit_gap_cycles: GpuFigure
    """Time between two chains of MMAs."""
    wgmma_latency_cycles: GpuFigure | None = None
    """Time from the issue of a wgmma until a warp sees its end, without the time of the MMA itself."""
    wgmma_interval: GpuFigure | None = None
    """Cycles of a wgmma of 64 rows for each column of N."""
    mma_sync_interval: GpuFigure | None = None
    """Cycles of an SM for an mma.sync.m16n8k16 with fp32 accumulation."""
    mma_sync_scaled_interval: GpuFigure | None = None
    """Cycles of an SM for an mma.sync with block scales: m16n8k32 or m16n8k64, 32 bytes of k."""
    mma_sync_latency_cycles: GpuFigure | None = None
    """Time from the issue of an mma.sync, with or without scales, until its result can be used."""
    tma_row_cycles: GpuFigure
    """Time of a TMA load for each row of up to 128 bytes."""
    tma_cycles: GpuFigure
    """Additional latency of a TMA load, compared with a load of a thread."""
    l2_ns: GpuFigure
    """Time from a load's issue to its data, from the L2."""
    memory_ns: GpuFigure
    """Time from a load's issue to its data, from memory."""
    queue_ns: GpuFigure
    """Additional latency while the memory is always busy."""
    fill_bytes_per_cycle: GpuFigure
    """Rate of cp.async into shared memory."""
    l2_bytes_per_ns: GpuFigure
    """Rate of the L2 to all SMs."""
    burst_bytes: GpuFigure
    """Bytes that the L2 can send to one SM in a burst."""
    port_bytes_per_cycle: GpuFigure
    """Rate of the L2 to one SM, even with few other SMs loading."""
    l2_joins: GpuFigure | None = None
    """Exponent j of joined requests. Let p pairs of neighbouring SMs in a GPC load the same data together; the L2 then
    delivers the data p ** (1 - j) times."""
    near_l2_bytes: GpuFigure
    """Bytes of repeatedly used data that stay in the L2."""
    memory_bytes_per_ns: GpuFigure
    """Rate of global memory (DRAM) for kernels that read."""
    stream_bytes_per_ns: GpuFigure
    """Rate of global memory (DRAM) for kernels that read one contiguous range."""
    memory_store_cost: GpuFigure
    """Memory time of a stored byte, relative to a byte that is read."""
    wait_cycles: GpuFigure
    """Cycles of an mbarrier.wait."""
    wake_cycles: GpuFigure
    """Time from the end of a phase until a waiting warp continues."""
    arrive_cycles: GpuFigure
    """Cycles of an mbarrier.arrive."""
    expect_cycles: GpuFigure
    """Cycles of an arrive.expect_tx."""
    issue_cycles: GpuFigure
    """Issue time of an instruction that a single lane issues."""
    tma_issue_cycles: GpuFigure
    """Cycles of the issue of a TMA load."""
    remote_cycles: GpuFigure
    """Cycles of an arrival at an mbarrier of the other CTA."""
    release_cycles: GpuFigure | None = None
    """Additional time of an arrival that releases earlier stores."""
    sync_cycles: GpuFigure
    """Cycles of a bar.sync."""
    sync_warp_cycles: GpuFigure
    """Additional time of a bar.sync for each participating warp."""
    cluster_sync_cycles: GpuFigure
    """Cycles of a barrier.cluster."""
    strip_load_cycles: GpuFigure
    """Cycles of a tcgen05.ld of up to 64 columns."""
    half_load_cycles: GpuFigure
    """Cycles of a tcgen05.ld of 128 columns in one piece."""
    cast_cycles: GpuFigure
    """Cycles of a conversion between types."""
    cast_value_cycles: GpuFigure
    """Additional cycles of a conversion for each value of a thread."""
    special_results: GpuFigure
    """Results of exp2, log2, rsqrt, tanh and the like in a cycle."""
    shuffle_cycles: GpuFigure
    """Cycles of a shuffle from one lane to another."""
    shuffle_results: GpuFigure
    """Results of shuffles in a cycle."""
    stage_cycles: GpuFigure
    """Cycles of a st.shared."""
    stage_value_cycles: GpuFigure
    """Additional cycles of a st.shared for each value of a thread."""
    unstage_cycles: GpuFigure
    """Cycles of a ld.shared."""
    fence_cycles: GpuFigure
    """Cycles of a fence.proxy.async."""
    store_cycles: GpuFigure
    """Cycles of a TMA store until its source is free."""
    store_kib_cycles: GpuFigure
    """Additional time of a TMA store, for each KiB, until its source is free."""
    drain_kib_cycles: GpuFigure
    """Cycles of a TMA store, for each KiB, until the data has left the SM."""
    store_buffer_kib: GpuFigure
    """KiB of the buffer from which stored data leaves the SM."""
    line_bytes: GpuFigure
    """Most bytes of 32-byte sectors that threads of an SM load or store in a cycle."""
    part_sector_cycles: GpuFigure | None = None
    """Cycles of a sector that threads store in part."""
    rows_by_16_cycles: GpuFigure | None = None
    """Time of a TMA load of up to 128 bytes, if the rows' pitch is a multiple of 16 but not of 32 bytes. Such rows
    begin within L2 lines."""
    rows_by_32_cycles: GpuFigure | None = None
    """The same time, if the pitch is a multiple of 32 but not of 64 bytes."""
    rows_by_64_cycles: GpuFigure | None = None
    """The same time, if the pitch is a multiple of 64 but not of 128 bytes."""
    rows_few_sms: GpuFigure | None = None
    """Factor on the three `rows_by` figures if at most half of the SMs work."""
    query_cycles: GpuFigure
    """Cycles to read a response of cluster launch control."""
    cancel_ns: GpuFigure
    """Time from a clusterlaunchcontrol.try_cancel to the arrival of its response."""
    alloc_cycles: GpuFigure
    """Cycles of a tcgen05.alloc."""
    alloc_again_cycles: GpuFigure
    """Cycles of a tcgen05.alloc that had to wait."""
    launch_ns: GpuFigure
    """Time from the end of a CTA to the start of the next CTA on the same SM."""
    start_cycles: GpuFigure
    """Time of a CTA's setup: barriers, tensor maps and addresses."""
    ramp_ns: GpuFigure
    """Time that each launch in a CUDA graph adds to the time of its kernel."""
    cluster_share: GpuFigure
    """Fraction of the SMs that clusters of more than two CTAs can use. A cluster must be within one GPC."""

    def cut_row_cycles(self, pitch_bytes: int, few_sms: bool) -> float:
        """Return TMA's cycles for up to 128 bytes of a row that begins within an L2 line.

        pitch_bytes: bytes from a row to the next; the result is 0 if all rows begin at L2 lines. few_sms: True if at
        most half of the SMs work.
        """
        by = {16: self.rows_by_16_cycles, 32: self.rows_by_32_cycles, 64: self.rows_by_64_cycles}
        cycles = by.get(math.gcd(pitch_bytes, ROW_BYTES)) or 0.0
        return cycles * ((self.rows_few_sms or 1.0) if few_sms else 1.0)

    def clusters_at_once(self, sm_count: int, size: int) -> int:
        """Return the number of clusters of `size` CTAs, one CTA on each SM, that run at the same time."""
        return max(1, int(sm_count * (self.cluster_share if size > 2 else 1)) // size)


class _EachGpu(Mapping[str, TimeFigures]):
    """Mapping from a GPU's name to its figures. A GPU's files are read at the first access."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files

    def __getitem__(self, gpu: str) -> TimeFigures:
        return _figures(self._files[gpu])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@cache
def _figures(file: str) -> TimeFigures:
    return filled(TimeFigures, FIGURES / file, _values(file))


def _values(file: str) -> dict[str, GpuFigure]:
    """Return the figures of a file, inherited figures included. Figures inherited by a file with `borrowed` count as
    assumed."""
    content = read(FIGURES / file)
    own = entries(FIGURES / file, content)
    values = _values(content["inherits"]) if "inherits" in content else {}
    if whose := content.get("borrowed"):
        values = {name: GpuFigure(each, "assumed", f"{whose}: {each.source}") for name, each in values.items()}
    values |= {name: GpuFigure(each.value, each.how, each.source) for name, each in own.items()}
    return {name: value for name, value in values.items() if name not in content.get("without", ())}


TIME_FIGURES: Mapping[str, TimeFigures] = _EachGpu(
    {
        "B200": "b200.toml",
        "B300": "b300.toml",
        "RTX 5090": "rtx_5090.toml",
        "H200": "h200.toml",
        "H100": "h100.toml",
        "GB10": "gb10.toml",
    }
)
"""Figures by GPU name (`GPUS`). Figures of the B300 are not validated."""

MISSING: Mapping[str, str] = MappingProxyType(
    {
        "GB200": "the clock that its tensor cores leave it",
    }
)
"""Reason why a GPU has no `TimeFigures`, by name: the figure that was found nowhere."""


def figures_of(gpu: object, argument: str = "gpu") -> TimeFigures:
    """Return the figures of the GPU with this name; raise InputError, with the argument and the names that work, for
    other names."""
    name = (plain_text(gpu) or "").casefold()
    for known in TIME_FIGURES:
        if known.casefold() == name:
            return TIME_FIGURES[known]
    for other, missing in MISSING.items():
        if other.casefold() == name:
            what = f"times on a {other} cannot be predicted, as nobody has published {missing}"
            raise InputError(f"{what}; there are figures of {', '.join(TIME_FIGURES)}.")
    raise InputError(f"{argument} is {shown(gpu)}; time can be predicted for {', '.join(TIME_FIGURES)}.")


def timed_gpu(text: object, argument: str = "target") -> str:
    """Return the name of a GPU with figures.

    text: a name, or a target such as "sm_90a", for the first GPU of `TIME_FIGURES` with this target. Raises InputError,
    which names the argument, if no figures exist.
    """
    of_target = [name for name in TIME_FIGURES if GPUS[name].arch == plain_text(text)]
    found = of_target[0] if of_target else text
    figures_of(found, argument)
    return str(found)
