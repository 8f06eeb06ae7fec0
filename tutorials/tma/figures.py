"""Figures that others measured or published, each with its source; and the simple estimate beside them.

Sources, by the letter used below:

- A: SemiAnalysisAI/microbench-blackwell, commit 9a068d8, B200: tma2d and LDGSTS throughput, TMA multicast sweep.
- B: NVIDIA's data sheets of the products. B200: bus width times rate, as its driver reports them (pytorch/ao PR 4002).
- C: Azure/AI-benchmarking-guide, STREAM-like copy and dot (H100, H200); A for B200; Dao-AILab/quack (RTX 5090).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """The memory of a GPU: what it is, its rate on paper (B) and the range of what programs got (C), in GB/s."""

    gpu: str
    kind: str
    paper: int
    measured: tuple[int, int] | None


MEMORIES = (
    Memory("H100 SXM", "HBM3", 3350, (2900, 3180)),
    Memory("H200", "HBM3e", 4800, (4000, 4480)),
    Memory("B200", "HBM3e", 7670, (7000, 7260)),
    Memory("RTX 5090", "GDDR7", 1790, (1480, 1640)),
    Memory("GB10", "LPDDR5X", 273, None),
)


@dataclass(frozen=True)
class Throughput:
    """Reads of a B200 from device memory (A), with so many KiB in flight on each SM; lowest and highest, in TB/s."""

    kib: int
    tma: tuple[float, float]
    cp_async: tuple[float, float] | None


THROUGHPUTS = (
    Throughput(4, (1.10, 1.17), (1.22, 1.36)),
    Throughput(8, (1.89, 2.18), (2.12, 2.63)),
    Throughput(16, (3.39, 3.79), (2.22, 4.79)),
    Throughput(32, (5.42, 5.87), (3.71, 6.55)),
    Throughput(64, (7.06, 7.22), (6.69, 6.69)),  # one setting
    Throughput(128, (6.98, 7.26), None),
)
"""cp.async: copies of 16 bytes, over all counts of CTAs, stages and threads; nobody measured 128 KiB."""

FILLS = {
    "every CTA loads its own tile": "7.28",
    "multicast, clusters of 2": "13.66",
    "multicast, clusters of 4": "8.8 to 9.2",
    "no multicast, 4 CTAs load the same tile": "14.6",
    "no multicast, 16 CTAs load the same tile": "16.9",
}
"""Bytes that reach the shared memory of all SMs of a B200, in TB/s (A)."""

B200_SMS = 148
LATENCY_NS = 600
"""From asking device memory to having the bytes, on a B200 with little to do (A: 550 to 640 ns)."""


def little(kib: float, sms: int = B200_SMS, latency_ns: float = LATENCY_NS, paper: float = 7.67) -> float:
    """TB/s by Little's law: what is in flight, over the time it is in flight, but no more than the memory's rate."""
    return min(sms * kib * 1024 / latency_ns / 1000, paper)


def memory_table() -> None:
    print("GPU        memory    on paper, GB/s   measured, GB/s")
    for each in MEMORIES:
        measured = f"{each.measured[0]} to {each.measured[1]}" if each.measured else "-"
        print(f"{each.gpu:10} {each.kind:9} {each.paper:14}   {measured:>14}")


def throughput_table() -> None:
    print("KiB in flight   estimate   TMA            cp.async       (TB/s, B200)")
    for each in THROUGHPUTS:
        print(f"{each.kib:13} {little(each.kib):10.2f}   {_range(each.tma):12}   {_range(each.cp_async)}".rstrip())


def _range(ends: tuple[float, float] | None) -> str:
    if ends is None:
        return "-"
    return " to ".join(f"{end:.2f}" for end in dict.fromkeys(ends))


def fill_table() -> None:
    for how, rate in FILLS.items():
        print(f"{how:42} {rate:>10} TB/s")
