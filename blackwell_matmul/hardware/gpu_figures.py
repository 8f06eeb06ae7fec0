"""Figures of each part of a GPU for the time model, each with its source and how it was obtained.

measured: a microbenchmark's own number. derived: computed from measured ones. assumed: nobody has published one. Cycles
are the SM's; figures in nanoseconds stay the same when the SM's clock falls.

Sources, by the letters used below (the tables are in bench/calibrate/tables/):

- SA: SemiAnalysisAI/microbench-blackwell, B200 at 1.3 GHz: throughput and latency of tcgen05.mma, TMA, cp.async, and
  the main loop of one CTA.
- META: facebookexperimental/triton, NVLatencyModel.cpp: cycles that a scheduler of B200 kernels assumes.
- QRC: ademeure/QuickRunCUDA, B300.
- FV: revollllt/flash-vla, H100 SXM unit probes. HP: HPMLL/NVIDIA-Hopper-Benchmark, H800 PCIe.
- AO, AZ, ROOF: pytorch/ao pull request 4002; Azure/AI-benchmarking-guide; RealZST/llm-infra-notes.
- HM: bench/calibrate/hopper_micro.py on an H200, tables/h200_micro.csv; H1: on an H100, tables/h100_micro.csv.
- CG: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", of compute capability 9.0 to 12.0.
- D: NVIDIA's data sheet. AK: markdewing/AI_kernels, latency, RTX 5090. CC: chipsandcheese.com, "Blackwell: Nvidia's
  Massive GPU", RTX PRO 6000 (the same die with 188 SMs). QU: Dao-AILab/quack, benchmarks on an RTX 5090. IMP: kekzl/imp
  pull request 606, RTX 5090 at 2.85 GHz.
- FIT: solved from SA's main loop of one CTA, run in this simulator (bench/calibrate/mainloop.py).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.hardware.gpus import GPUS

How = Literal["measured", "derived", "assumed"]


class GpuFigure(float):
    """A number with its source."""

    how: How
    source: str

    def __new__(cls, value: float, how: How, source: str) -> GpuFigure:
        made = super().__new__(cls, value)
        made.how, made.source = how, source
        return made


def _m(value: float, source: str) -> GpuFigure:
    return GpuFigure(value, "measured", source)


def _d(value: float, source: str) -> GpuFigure:
    return GpuFigure(value, "derived", source)


def _a(value: float, why: str) -> GpuFigure:
    return GpuFigure(value, "assumed", why)


MMA_SYNC_PRODUCTS = 16 * 8 * 16
"""Products of an mma.sync.m16n8k16."""

ROW_BYTES = 128
"""Bytes that TMA moves, and requests from the L2, at a time; a shorter row takes as long."""


@dataclass(frozen=True)
class TimeFigures:
    """Figures of one GPU. None: the GPU has no such thing, or nobody has published it.

    clock_ghz: without load; clock_fall_ghz: its decrease while the tensor cores are always busy.

    mma_latency_cycles: from the issue of a tcgen05.mma until a warp sees its end, less the interval;
    pair_latency_cycles: the same for a CTA pair; chain_cycles: once in a chain of MMAs; commit_gap_cycles: between two
    chains. wgmma_latency_cycles: the same of a wgmma; wgmma_interval: cycles a column, for 64 rows. mma_sync_interval:
    cycles of an SM for an mma.sync.m16n8k16 with fp32 sums; mma_sync_latency_cycles: until its result can be used.

    tma_row_cycles: of a TMA load, for up to 128 bytes; tma_cycles: its additional latency over a plain load. l2_ns,
    memory_ns: from a load's issue to its data; queue_ns: additional, while the memory is always busy.
    fill_bytes_per_cycle: cp.async into shared memory. l2_bytes_per_ns: to all SMs; burst_bytes: to one SM, at once;
    port_bytes_per_cycle: to one SM, even if few others load. l2_joins: exponent j of joined requests: what p pairs of
    neighbours in a GPC load at the same time, the L2 delivers p ** (1 - j) times. near_l2_bytes: data that repeated use
    finds in the L2. memory_bytes_per_ns: for kernels that read; stream_bytes_per_ns: for kernels that read all of it in
    one piece; memory_store_cost: memory time of a stored byte, relative to a byte that is read.

    wait_cycles, arrive_cycles, expect_cycles: of mbarrier.wait, mbarrier.arrive, arrive.expect_tx. issue_cycles: of an
    instruction that one lane issues; tma_issue_cycles: of a TMA load. wake_cycles: from the end of a phase until a
    waiting warp continues. remote_cycles: to an mbarrier of the other CTA; release_cycles: additional, with a release
    of what was stored. sync_cycles: bar.sync; sync_warp_cycles: additional, for each warp in it. cluster_sync_cycles:
    barrier.cluster.

    strip_load_cycles: tcgen05.ld of up to 64 columns; half_load_cycles: of 128, in one piece. cast_cycles: a
    conversion; cast_value_cycles: additional, for each value of a thread; special_results: results of exp2, log2,
    rsqrt, tanh and the like in a cycle; shuffle_cycles: from one lane to another; shuffle_results: in a cycle.
    stage_cycles, stage_value_cycles: st.shared, likewise. unstage_cycles: ld.shared. fence_cycles: fence.proxy.async.
    store_cycles, store_kib_cycles: a TMA store until its source is free; drain_kib_cycles: until the data has left,
    behind a buffer of store_buffer_kib. line_bytes: of a 32-byte sector that threads load or store, at most, a cycle;
    part_sector_cycles: of a sector that they store in part. rows_by_16_cycles, rows_by_32_cycles, rows_by_64_cycles: of
    a TMA load, for up to 128 bytes, if the pitch of its rows is a multiple of so many bytes and no more, so that rows
    begin within L2 lines; rows_few_sms: factor on these if at most half of the SMs work.

    query_cycles: of reading a CLC response, which arrives after cancel_ns. alloc_cycles: tcgen05.alloc;
    alloc_again_cycles: of one that had to wait. launch_ns: from a CTA's end to the next one's start on its SM;
    start_cycles: from there to its first work; ramp_ns: of a kernel. cluster_share: fraction of the SMs that clusters
    of more than two CTAs fill, since each lies in one GPC.
    """

    clock_ghz: GpuFigure
    clock_fall_ghz: GpuFigure
    mma_latency_cycles: GpuFigure | None
    pair_latency_cycles: GpuFigure | None
    chain_cycles: GpuFigure
    commit_gap_cycles: GpuFigure
    wgmma_latency_cycles: GpuFigure | None
    wgmma_interval: GpuFigure | None
    mma_sync_interval: GpuFigure | None
    mma_sync_latency_cycles: GpuFigure | None
    tma_row_cycles: GpuFigure
    tma_cycles: GpuFigure
    l2_ns: GpuFigure
    memory_ns: GpuFigure
    queue_ns: GpuFigure
    fill_bytes_per_cycle: GpuFigure
    l2_bytes_per_ns: GpuFigure
    burst_bytes: GpuFigure
    port_bytes_per_cycle: GpuFigure
    l2_joins: GpuFigure | None
    near_l2_bytes: GpuFigure
    memory_bytes_per_ns: GpuFigure
    stream_bytes_per_ns: GpuFigure
    memory_store_cost: GpuFigure
    wait_cycles: GpuFigure
    wake_cycles: GpuFigure
    arrive_cycles: GpuFigure
    expect_cycles: GpuFigure
    issue_cycles: GpuFigure
    tma_issue_cycles: GpuFigure
    remote_cycles: GpuFigure
    release_cycles: GpuFigure | None
    sync_cycles: GpuFigure
    sync_warp_cycles: GpuFigure
    cluster_sync_cycles: GpuFigure
    strip_load_cycles: GpuFigure
    half_load_cycles: GpuFigure
    cast_cycles: GpuFigure
    cast_value_cycles: GpuFigure
    special_results: GpuFigure
    shuffle_cycles: GpuFigure
    shuffle_results: GpuFigure
    stage_cycles: GpuFigure
    stage_value_cycles: GpuFigure
    unstage_cycles: GpuFigure
    fence_cycles: GpuFigure
    store_cycles: GpuFigure
    store_kib_cycles: GpuFigure
    drain_kib_cycles: GpuFigure
    store_buffer_kib: GpuFigure
    line_bytes: GpuFigure
    part_sector_cycles: GpuFigure | None
    rows_by_16_cycles: GpuFigure | None
    rows_by_32_cycles: GpuFigure | None
    rows_by_64_cycles: GpuFigure | None
    rows_few_sms: GpuFigure | None
    query_cycles: GpuFigure
    cancel_ns: GpuFigure
    alloc_cycles: GpuFigure
    alloc_again_cycles: GpuFigure
    launch_ns: GpuFigure
    start_cycles: GpuFigure
    ramp_ns: GpuFigure
    cluster_share: GpuFigure

    def cut_row_cycles(self, pitch_bytes: int, few_sms: bool) -> float:
        """Return TMA's cycles for up to 128 bytes of rows of this pitch, if they begin within L2 lines; otherwise 0."""
        by = {16: self.rows_by_16_cycles, 32: self.rows_by_32_cycles, 64: self.rows_by_64_cycles}
        cycles = by.get(math.gcd(pitch_bytes, ROW_BYTES)) or 0.0
        return cycles * (self.rows_few_sms or 1) if few_sms else cycles * 1.0

    def clusters_at_once(self, sm_count: int, size: int) -> int:
        """Return how many clusters of `size` CTAs, one on each SM, run at once."""
        return max(1, int(sm_count * (self.cluster_share if size > 2 else 1)) // size)


_B200 = TimeFigures(
    clock_ghz=_m(1.965, "AO: the driver's boost clock"),
    clock_fall_ghz=_d(0.616, "one cuBLAS kernel under Nsight Compute: 1.37 GHz with tensor cores busy 96.6 %"),
    mma_latency_cycles=_m(136, "SA: 136 + N/2, one SM, both operands in shared memory"),
    pair_latency_cycles=_m(170, "SA: 170 + N/2, two SMs"),
    chain_cycles=_m(12, "SA: D of them take L + (D - 1) II + 12"),
    commit_gap_cycles=_d(6, "SA: 518 for 512 cycles, main loop of one CTA that the tensor core bounds"),
    wgmma_latency_cycles=None,
    wgmma_interval=None,
    mma_sync_interval=None,
    mma_sync_latency_cycles=None,
    tma_row_cycles=_m(1.04, "META: 397 + 1.04 a line; SA's main loops have 1.02 to 1.08"),
    tma_cycles=_d(104, "HP: 368 for a TMA load from the L2, 264 for a plain one; SA: 448 and 528 ns at 1.3 GHz"),
    l2_ns=_d(220, "FIT: A and B of up to 50 MB"),
    memory_ns=_d(552, "FIT: A and B of 67 MB and more"),
    queue_ns=_d(430, "SA: TMA throughput against bytes in flight"),
    fill_bytes_per_cycle=_d(120, "QRC: shared memory takes 112 to 128 bytes a cycle"),
    l2_bytes_per_ns=_m(20500, "QRC, B300: TMA, all of it in the L2"),
    burst_bytes=_a(65536, "about what an SM has in flight at the L2's latency and rate"),
    port_bytes_per_cycle=_d(128 / 1.04, "SA: 128 bytes in 1.04 cycles, one CTA alone"),
    l2_joins=None,
    near_l2_bytes=_d(63e6, "half of the L2, as both dies keep what they use; SA: the step is between 50 and 67 MB"),
    memory_bytes_per_ns=_m(7200, "SA: TMA reads, 64 KiB in flight an SM"),
    stream_bytes_per_ns=_m(7200, "SA: TMA reads, 64 KiB in flight an SM"),
    memory_store_cost=_d(1.0, "Triton's Gluon tutorials: a softmax at 7.16 TB/s to and fro, on a GB200"),
    wait_cycles=_m(30, "META"),
    wake_cycles=_m(30, "META"),
    arrive_cycles=_m(27, "QRC"),
    expect_cycles=_m(20, "META"),
    issue_cycles=_m(30, "META: an MMA operation, in the warp that issues it"),
    tma_issue_cycles=_m(30, "META: a TMA operation, likewise"),
    remote_cycles=_d(200, "QRC: 207 for a load from the other CTA's shared memory"),
    release_cycles=None,
    sync_cycles=_m(22, "QRC: 22 + 2 W"),
    sync_warp_cycles=_m(2, "QRC: 22 + 2 W"),
    cluster_sync_cycles=_m(375, "QRC: 370 to 380"),
    strip_load_cycles=_m(180, "META: 179 for 64 columns; about 200, whatever the columns, in two logs of GEMMs"),
    half_load_cycles=_m(532, "META: 128 columns"),
    cast_cycles=_d(8, "META: 20 for a strip of 16 columns, 105 for 128"),
    cast_value_cycles=_d(0.76, "META: 20 for a strip of 16 columns, 105 for 128"),
    special_results=_d(16, "CG: of 32-bit floats, for each SM"),
    shuffle_cycles=_m(24, "QRC: SHFL"),
    shuffle_results=_d(32, "CG: for each SM; 640 in a tile keep an H100 for 626 cycles (h100_moving.json)"),
    stage_cycles=_d(36, "META: 45 for a strip of 16 columns, 105 for 128"),
    stage_value_cycles=_d(0.54, "META: 45 for a strip of 16 columns, 105 for 128"),
    unstage_cycles=_d(36, "META: st.shared, as if loads took as long"),
    fence_cycles=_m(179, "QRC: the full fence"),
    store_cycles=_m(130, "META"),
    store_kib_cycles=_d(8, "META: the rows that TMA reads"),
    drain_kib_cycles=_m(52, "META"),
    store_buffer_kib=_a(8, "two strips of 4 KiB"),
    part_sector_cycles=None,
    rows_by_16_cycles=None,
    rows_by_32_cycles=None,
    rows_by_64_cycles=None,
    rows_few_sms=None,
    line_bytes=_a(16, "HM: 32 where two SMs store, 23 where all do; with either H7's sums for other CTAs are too fast"),
    query_cycles=_d(86, "QRC: a load from shared memory and a fence's issue"),
    cancel_ns=_a(400, "a request to the L2 and back; hidden by a tile's main loop"),
    alloc_cycles=_m(253, "QRC"),
    alloc_again_cycles=_m(1030, "QRC: with a competitor"),
    launch_ns=_d(80, "QRC: 0.54 ns a CTA on 148 SMs"),
    start_cycles=_a(100, "barriers, tensor maps, addresses"),
    ramp_ns=_m(1240, "FV: H100"),
    cluster_share=_a(10 / 11, "as an H200's"),
)

_H200 = dataclasses.replace(
    _B200,
    clock_ghz=_m(1.98, "HM: no load"),
    clock_fall_ghz=_d(
        0.737, "cuBLAS at 4096 and 8192, 700 W: 1.32 GHz by cycles and µs, 89 % busy (h200_counters.json)"
    ),
    mma_latency_cycles=None,
    pair_latency_cycles=None,
    wgmma_latency_cycles=_m(57, "HM: k-tiles that are waited for, N = 128; 53 with 64, 69 with 256"),
    wgmma_interval=_m(0.5, "HM: any multiple of 8 columns from 64 on; with A in registers from 32 on"),
    mma_sync_interval=_d(1.565, "FV, H100: 6.26 cycles for each of four warps, 63 % of the peak"),
    mma_sync_latency_cycles=_m(25, "FV, H100"),
    l2_ns=_m(148, "HM: a chain of loads, 293 cycles"),
    memory_ns=_m(339, "HM: the same, 671 cycles"),
    l2_joins=_d(0.2, "H1: k-tiles that CTAs share, 36 to 66 bytes a cycle into each SM, and 30 that no two do"),
    near_l2_bytes=_d(30e6, "half of the L2, as both halves keep what their SMs use"),
    l2_bytes_per_ns=_m(8900, "HM: 34 bytes a cycle into each of 132 SMs, and 41 at the clock that wgmma leaves them"),
    port_bytes_per_cycle=_m(93.5, "HM: up to 32 SMs, each with six boxes of 32 KiB in flight; it may be more"),
    memory_bytes_per_ns=_d(4450, "one row's weights, 940 MB in 213 us (h200_chosen.json)"),
    stream_bytes_per_ns=_m(4700, "HM: TMA reads, 4.63 and 4.74 TB/s in two runs"),
    memory_store_cost=_d(1.13, "torch's copy, 4.17 TB/s to and fro (h200_bandwidth.json)"),
    wait_cycles=_m(46, "HM: try_wait of what is over"),
    wake_cycles=_d(124, "HM: the same, and half of the 156 cycles in steps of which a warp that waits sees an end"),
    arrive_cycles=_m(5, "HM"),
    expect_cycles=_m(5, "HM"),
    issue_cycles=_d(30, "META, as a B200's; HM: none for wgmma"),
    tma_issue_cycles=_d(
        24,
        "32 loads of 8 rows keep a warp of an H100 for 770 to 880 cycles, waits included; HM: 47 where a thread has a"
        " branch of its own",
    ),
    remote_cycles=_d(146, "HM: 270 till the other CTA goes on, its waking included"),
    release_cycles=_d(332, "HM: 665 for two, of which one waits for the other"),
    fill_bytes_per_cycle=_a(64, "as an SM of earlier GPUs"),
    sync_cycles=_m(25, "HM: 33 for 4 warps, 50 for 12"),
    sync_warp_cycles=_m(2, "HM"),
    cluster_sync_cycles=_m(427, "HM: 384 threads; 351 with 128"),
    cast_cycles=_d(0, "HM: with stmatrix 6 + 2.16 a value, and 7 + 1.84 without"),
    cast_value_cycles=_d(0.32, "HM: with stmatrix 6 + 2.16 a value, and 7 + 1.84 without"),
    stage_cycles=_m(7, "HM: stmatrix, 22 for a strip of 16 columns, 66 for 64"),
    stage_value_cycles=_m(1.84, "HM: stmatrix, 22 for a strip of 16 columns, 66 for 64"),
    fence_cycles=_d(27, "HM: in strips of 16 to 64 columns, 16 to 41"),
    store_cycles=_m(64, "HM: 64 + 32 a KiB"),
    store_kib_cycles=_m(32, "HM: 64 + 32 a KiB"),
    drain_kib_cycles=_m(57, "HM: all SMs; one alone 32"),
    part_sector_cycles=_a(3.7, "as an H100's"),
    rows_by_16_cycles=_a(4.7, "as an H100's"),
    rows_by_32_cycles=_a(3.1, "as an H100's"),
    rows_by_64_cycles=_a(2.5, "as an H100's"),
    rows_few_sms=_a(0.6, "as an H100's"),
    launch_ns=_m(158, "HM: 313 cycles"),
    ramp_ns=_d(1080, "HM: kernels of 5.05 us in a graph take 6.13"),
    cluster_share=_m(10 / 11, "cuOccupancyMaxActiveClusters: 30 clusters of four CTAs or 15 of eight, on 132 SMs"),
)


_H100 = dataclasses.replace(
    _H200,
    clock_fall_ghz=_d(
        0.734,
        "cuBLAS at 4096 and 8192, 700 W: 1.34 and 1.29 GHz by cycles and µs, 89 and 92 % busy (h100_counters.json)",
    ),
    l2_ns=_m(144, "H1: a chain of loads, 285 cycles"),
    memory_ns=_m(348, "H1: the same, 689 cycles"),
    near_l2_bytes=_d(25e6, "half of the L2"),
    l2_joins=_d(0.6, "tiles of H7 of 12 problems that the L2 holds up, with clusters and without (h100_in_order.json)"),
    l2_bytes_per_ns=_m(7800, "H1: 30 bytes a cycle into each of 132 SMs"),
    port_bytes_per_cycle=_m(89, "H1: up to 16 SMs, each with six boxes of 32 KiB in flight"),
    memory_bytes_per_ns=_d(2930, "weights of one row, 940 MB in 323 us (h100_chosen.json)"),
    stream_bytes_per_ns=_m(3160, "H1: all SMs read"),
    memory_store_cost=_d(1.1, "copies in 98.7 us, 2.72 TB/s to and fro (h100_moving.json)"),
    release_cycles=_d(652, "H1: an arrival in the other CTA is seen after 922 cycles with a release, 269 without"),
    cluster_sync_cycles=_m(1175, "H1: 384 threads; 719 with 128"),
    part_sector_cycles=_d(3.7, "H1: all SMs; of up to 16 bytes, 32 in rows of their own in 96 to 138 cycles"),
    rows_by_16_cycles=_d(4.7, "tiles of H7 that they bound (h100_cut_rows.json)"),
    rows_by_32_cycles=_d(3.1, "the same"),
    rows_by_64_cycles=_d(2.5, "the same"),
    rows_few_sms=_d(0.6, "H7 on 8 to 64 SMs and on 128 (h100_cut_rows.json)"),
    drain_kib_cycles=_m(74, "H1: all SMs; one alone 32"),
    ramp_ns=_d(1440, "an H200's; H1: empty kernels of 132 CTAs follow each other after 1.11 us, there 0.75"),
)


def _as_assumed(figures: TimeFigures, whose: str) -> TimeFigures:
    """Return a copy whose figures are all assumed, for another GPU."""
    known = {name: value for name, value in vars(figures).items() if value is not None}
    assumed = {name: _a(value, f"{whose}: {value.source}") for name, value in known.items()}
    return dataclasses.replace(figures, **assumed)


_RTX_5090 = dataclasses.replace(
    _as_assumed(_B200, "as a B200's"),
    clock_ghz=_d(2.407, "D: the boost clock"),
    clock_fall_ghz=_a(0, "nobody has published it; with cuBLAS the tensor cores keep up with the data sheet's clock"),
    mma_latency_cycles=None,
    pair_latency_cycles=None,
    mma_sync_interval=_d(8, "D: 209.5 TFLOPS on 170 SMs; IMP: 253 TFLOPS"),
    mma_sync_latency_cycles=_a(33, "nobody has published it; a warp's next one waits for 32"),
    l2_ns=_d(130, "CC, as others quote it: about 130 ns; AK: 360 cycles"),
    memory_ns=_d(338, "AK: 936 cycles, where the L2 takes 360"),
    l2_bytes_per_ns=_d(8700, "CC, as others quote it: 8.7 TB/s"),
    near_l2_bytes=_d(96e6, "QU: all of the L2"),
    memory_bytes_per_ns=_m(1530, "QU: 1504 to 1552 GB/s"),
    stream_bytes_per_ns=_m(1530, "QU: 1504 to 1552 GB/s"),
)

TIME_FIGURES: Mapping[str, TimeFigures] = MappingProxyType(
    {
        "B200": _B200,
        "B300": dataclasses.replace(
            _B200,
            clock_ghz=_m(2.032, "QRC: the driver's boost clock"),
            clock_fall_ghz=_d(0.76, "QRC: 1.25 to 1.29 GHz with random numbers at 1100 W"),
            memory_bytes_per_ns=_m(7350, "QRC: 7.30 to 7.41 TB/s"),
            stream_bytes_per_ns=_m(7350, "QRC: 7.30 to 7.41 TB/s"),
        ),
        "RTX 5090": _RTX_5090,
        "H200": _H200,
        "H100": _H100,
    }
)
"""Figures by the names of `GPUS`. Those of the B300 are not validated."""

MISSING: Mapping[str, str] = MappingProxyType(
    {
        "GB200": "the clock that its tensor cores leave it",
        "GB10": "how fast mma.sync is there, the latencies and the rate of its L2, and the latency of its memory",
    }
)
"""Unpublished figures of the GPUs that have no `TimeFigures`, as far as was found."""


def figures_of(gpu: object) -> TimeFigures:
    """Return the figures of the GPU with this name; raise InputError, with the names that work, if it has none."""
    name = (plain_text(gpu) or "").casefold()
    for known, figures in TIME_FIGURES.items():
        if known.casefold() == name:
            return figures
    for other, missing in MISSING.items():
        if other.casefold() == name:
            what = f"times on a {other} cannot be predicted, as nobody has published {missing}"
            raise InputError(f"{what}; there are figures of {', '.join(TIME_FIGURES)}.")
    raise InputError(f"gpu is {shown(gpu)}; time can be predicted for {', '.join(TIME_FIGURES)}.")


def timed_gpu(text: object) -> str:
    """Return a GPU's name as given, or for a target such as "sm_90a" the first name in `TIME_FIGURES` with that target;
    raise InputError if there are no figures."""
    of_target = [name for name in TIME_FIGURES if GPUS[name].arch == plain_text(text)]
    if not of_target and (plain_text(text) or "").startswith("sm_"):
        raise InputError(f"target is {shown(text)}; time can be predicted for {', '.join(TIME_FIGURES)}.")
    found = of_target[0] if of_target else text
    figures_of(found)
    return str(found)
