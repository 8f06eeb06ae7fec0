"""Resources of a compiled kernel: registers and memory from ptxas's report, and CTAs per SM."""

from __future__ import annotations

import re
from collections.abc import Mapping

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler.bundle import Resources
from blackwell_matmul.compiler.plan import LaunchPlan
from blackwell_matmul.hardware.gpus import REGISTERS_PER_SM, gpu_for_target

REGISTERS_PER_UNIT = 256
"""Registers in one unit of allocation, for a warp."""
RESERVED_SHARED_BYTES = 1024
"""Bytes of shared memory that CUDA reserves per CTA from compute capability 8.0 on ("Shared Memory")."""
CTAS_PER_SM = 32
"""Maximum CTAs per SM for 9.0 and 10.x; 12.x has 24."""
WARP = 32


def resources(log: str, plan: LaunchPlan, target: str) -> Resources | None:
    """Return the resources in ptxas's report (`--ptxas-options=-v`, in NVRTC's log); None without a report.

    The report's form is documented. The cubin has the registers too, but not the spills.
    """
    registers = re.search(r"Used (\d+) registers", log)
    if registers is None:
        return None
    dynamic = plan.dynamic_shared_bytes if isinstance(plan.dynamic_shared_bytes, int) else None
    threads = _threads(plan)
    static = _number(r"(\d+) bytes smem", log)
    held = _occupancy(int(registers[1]), static, dynamic, threads, target)
    return Resources(
        registers=int(registers[1]),
        spill_bytes=_number(r"(\d+) bytes spill stores", log),
        stack_bytes=_number(r"(\d+) bytes stack frame", log),
        static_shared_bytes=static,
        dynamic_shared_bytes=dynamic,
        warps=None if threads is None else -(-threads // WARP),
        ctas_per_sm=min(held.values()) if held else None,
        limited_by=min(held, key=lambda what: held[what]) if held else None,
    )


def _number(pattern: str, log: str) -> int:
    found = re.search(pattern, log)
    return int(found[1]) if found else 0


def _threads(plan: LaunchPlan) -> int | None:
    extents = [extent for extent in plan.block if isinstance(extent, int)]
    return extents[0] * extents[1] * extents[2] if len(extents) == 3 else None


def _occupancy(registers: int, static: int, dynamic: int | None, threads: int | None, target: str) -> Mapping[str, int]:
    """Return the number of CTAs that fit on an SM by each resource; empty if a number is unknown."""
    try:
        gpu = gpu_for_target(target)
    except InputError:
        return {}
    if dynamic is None or threads is None:
        return {}
    return {
        "shared memory": gpu.shared_memory_per_sm_bytes // (static + dynamic + RESERVED_SHARED_BYTES),
        "registers": _by_registers(registers, -(-threads // WARP)),
        "threads": gpu.max_threads_per_sm // threads,
        "CTAs": 24 if gpu.compute_capability[0] == 12 else CTAS_PER_SM,
    }


def _by_registers(registers: int, warps: int) -> int:
    unit = -(-registers * WARP // REGISTERS_PER_UNIT) * REGISTERS_PER_UNIT
    # an SM has four partitions with a register file each, and a warp stays in one
    return (REGISTERS_PER_SM // 4 // max(unit, 1)) * 4 // warps
