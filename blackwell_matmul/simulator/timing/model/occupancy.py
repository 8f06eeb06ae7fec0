"""Occupancy: the CTAs of a program that an SM holds at once; fewer may work (`servers.TensorMemoryLock`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.hardware.gpus import CTAS_PER_SM, REGISTERS_PER_SM, RESERVED_BYTES, Gpu

OTHER_REGISTERS = 40
"""Registers of a thread in addition to the tensors of an instruction: addresses, counters."""

LEAST_OTHER_REGISTERS = 26
"""Fewest such registers without spilling: a warpgroup's tile of 128x224 takes 250 registers, and 128x232 spills (ptxas
of CUDA 13.0, sm_90a; 256x112 and 256x128 alike)."""


def resident(program: Program, gpu: Gpu, more_bytes: int = 0) -> int:
    """Return the number of CTAs that an SM holds, at least one. more_bytes: additional shared memory of each CTA."""
    return max(1, min(limits(program, gpu, more_bytes).values()))


def shared_bytes_of(ctas: int, gpu: Gpu) -> int:
    """Return the bytes of shared memory that each CTA can have if `ctas` CTAs share an SM."""
    return min(gpu.shared_memory_per_block_bytes, gpu.shared_memory_per_sm_bytes // ctas - RESERVED_BYTES)


def limits(program: Program, gpu: Gpu, more_bytes: int = 0) -> dict[str, int]:
    """Return the CTAs that fit an SM, by resource."""
    shared_bytes = program.dynamic_shared_bytes + more_bytes + RESERVED_BYTES
    return {
        "shared memory": gpu.shared_memory_per_sm_bytes // shared_bytes,
        "threads": gpu.max_threads_per_sm // program.threads,
        "registers": REGISTERS_PER_SM // (program.threads * _registers(program, gpu)),
        "most CTAs": CTAS_PER_SM,
    }


def registers_full(program: Program, ctas: int, sums: Iterable[Any]) -> bool:
    """Return True if accumulators fill an SM's registers with `ctas` CTAs. sums: MMAs; the largest one counts."""
    return ctas * program.threads * max(map(_largest, sums), default=0) >= REGISTERS_PER_SM


def spilled_sums(program: Program, product: Any) -> int:
    """Return the number of a thread's accumulator registers of an MMA if the compiler must spill them; otherwise 0."""
    need = _largest(product)
    return need if need and need + LEAST_OTHER_REGISTERS > program.registers_per_thread else 0


def _registers(program: Program, gpu: Gpu) -> int:
    """Estimate the registers of a thread: the instruction with the largest tensors, once; with setmaxnreg all that an
    SM has for the threads."""
    from blackwell_matmul.frontend.recording import instructions

    found = [*instructions(program.tile)]
    if any(type(inst).__name__ == "SetMaxRegistersInst" for inst in found):
        return program.registers_per_thread
    largest = max(map(_largest, found), default=0)
    return min(gpu.max_registers_per_thread, largest + OTHER_REGISTERS)


def _largest(inst: Any) -> int:
    """Return a thread's registers of the instruction's largest register tensor."""
    from tilus.ir.tensor import RegisterTensor

    tensors = [t for t in (*inst.inputs, inst.output) if isinstance(t, RegisterTensor)]
    sizes = [t.layout.local_size * int(t.dtype.nbits) / 32 for t in tensors if t.optional_layout is not None]
    return math.ceil(max(sizes, default=0))
