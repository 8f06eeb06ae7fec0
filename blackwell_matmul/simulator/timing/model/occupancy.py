"""How many CTAs of a program an SM holds at once. How many of them work is another number: tensor memory is handed out
while they run (`servers.TensorMemoryLock`)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.hardware.gpus import REGISTERS_PER_SM, Gpu, gpu_for_target
from blackwell_matmul.simulator.machine.registers import WARP

RESERVED_BYTES = 1024
"""Of an SM's shared memory, with each CTA (CUDA C++ Programming Guide)."""

OTHER_REGISTERS = 40
"""Of a thread, besides the tensors of an instruction: addresses, counters."""

LEAST_OTHER_REGISTERS = 26
"""The least of these: of one warpgroup a tile of 128x224 takes 250 registers and spills nothing, one of 128x232 spills
8436 bytes (ptxas of CUDA 13.0, sm_90a; 256x112 and 256x128 alike)."""

MAX_CTAS = 32
"""Of an SM (CUDA C++ Programming Guide)."""


def resident(program: Program, gpu: Gpu, more_bytes: int = 0) -> int:
    """At least one: that the program can run, others have seen to. more_bytes: of shared memory, if it took more."""
    return max(1, min(limits(program, gpu, more_bytes).values()))


def shared_bytes_of(ctas: int, gpu: Gpu) -> int:
    """What each may take, so that so many find room."""
    return min(gpu.shared_memory_per_block_bytes, gpu.shared_memory_per_sm_bytes // ctas - RESERVED_BYTES)


def limits(program: Program, gpu: Gpu, more_bytes: int = 0) -> dict[str, int]:
    """For how many CTAs there is room, by what they need."""
    threads = _threads(program)
    shared_bytes = program.dynamic_shared_bytes + more_bytes + RESERVED_BYTES
    return {
        "shared memory": gpu.shared_memory_per_sm_bytes // shared_bytes,
        "threads": gpu.max_threads_per_sm // threads,
        "registers": REGISTERS_PER_SM // (threads * _registers(program, gpu)),
        "most CTAs": MAX_CTAS,
    }


def registers_full(program: Program, ctas: int, sums: Iterable[Any]) -> bool:
    """With so many CTAs, by the largest of these alone, which are instructions that add to their accumulators."""
    return ctas * _threads(program) * max(map(_largest, sums), default=0) >= REGISTERS_PER_SM


def spilled_sums(program: Program, product: Any) -> int:
    """Registers of a thread that the sums of a product take, where the compiler has to spill them; 0: they fit."""
    need = _largest(product)
    return need if need and need + LEAST_OTHER_REGISTERS > registers_per_thread(program) else 0


def registers_per_thread(program: Program) -> int:
    """What a thread can have."""
    return gpu_for_target(program.target).registers_per_thread(_threads(program))


def _threads(program: Program) -> int:
    return WARP * int(program.tile.metadata.num_warps)


def _registers(program: Program, gpu: Gpu) -> int:
    """About what a thread takes: the instruction with the largest tensors, once."""
    from blackwell_matmul.frontend.recording import instructions

    largest = max((_largest(inst) for inst in instructions(program.tile)), default=0)
    return min(gpu.max_registers_per_thread, largest + OTHER_REGISTERS)


def _largest(inst: Any) -> int:
    """Of its register tensors, what one takes of a thread's registers."""
    from tilus.ir.tensor import RegisterTensor

    tensors = [t for t in (*inst.inputs, inst.output) if isinstance(t, RegisterTensor)]
    sizes = [t.layout.local_size * int(t.dtype.nbits) / 32 for t in tensors if t.optional_layout is not None]
    return math.ceil(max(sizes, default=0))
