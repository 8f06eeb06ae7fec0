"""The three TMA primitives in Triton (3.6): a copy of 1 to 5 dimensions, a vector add, a GEMM.

Each with both kinds of tensor descriptor: "host" ones are made by Python before the launch, "device" ones by the kernel
itself, in memory that Triton asks the program's allocator for. Blocks are powers of two, and rows multiples of 16
bytes, as in any tensor map. A GPU without TMA gets ordinary loads and stores from Triton, with the same result. The
copy and the addition are there without descriptors, too ("plain"), to compare with. A call takes Triton's `num_stages`
and `num_warps` and returns the compiled kernel.

    python -m blackwell_matmul_studies.baselines.triton_kernels   # checks them on this machine's GPU
    TRITON_INTERPRET=1 python -m blackwell_matmul_studies.baselines.triton_kernels   # interpreted: no TMA
"""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch

# By name: Triton is no dependency of this package, it comes with torch's CUDA builds or not at all.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")
TensorDescriptor: Any = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor

KINDS = ("host", "device")
"""Of descriptors; "plain" is without."""
WITHOUT_DESCRIPTORS = "plain"
BLOCK_BYTES = 8192
MAX_EXTENT = 256
VECTOR_BLOCK = 256
PLAIN_BLOCK = 2048
GROUP_M = tl.constexpr(8)
"""Rows of tiles that neighbours in time are taken from, so that they share operands in the L2."""


# --- the three bodies


@triton.jit
def copy_block(source, target, number, blocks, block):
    """The last dimension counts fastest."""
    index = number
    offsets = ()
    for dim in tl.static_range(len(block) - 1, -1, -1):
        offsets = (index % blocks[dim] * block[dim],) + offsets  # noqa: RUF005  Triton unpacks no tuple here
        index = index // blocks[dim]
    target.store(offsets, source.load(offsets))


@triton.jit
def copy_blocks(source, target, blocks, block, STAGES: tl.constexpr):
    """STAGES blocks, as many programs apart as there are; one behind the last block is outside of the tensor."""
    for stage in tl.range(STAGES, num_stages=STAGES):
        copy_block(source, target, tl.program_id(0) + stage * tl.num_programs(0), blocks, block)


@triton.jit
def add_block(x, y, z, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK
    z.store([offset], x.load([offset]) + y.load([offset]))


@triton.jit
def gemm_tile(a, b, c, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row, column = tl.swizzle2d(
        tl.program_id(1), tl.program_id(0), tl.num_programs(1), tl.num_programs(0), size_g=GROUP_M
    )
    offset_m, offset_n = row * BLOCK_M, column * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for offset_k in range(0, K, BLOCK_K):  # a constant: Triton 3.6's interpreter takes no other with numpy 2.4
        acc = tl.dot(a.load([offset_m, offset_k]), b.load([offset_n, offset_k]).T, acc)
    c.store([offset_m, offset_n], acc.to(c.dtype))


# --- kernels with descriptors of the host: they come as arguments


@triton.jit
def copy_host(source, target, blocks, block, STAGES: tl.constexpr):
    copy_blocks(source, target, blocks, block, STAGES)


@triton.jit
def add_host(x, y, z, BLOCK: tl.constexpr):
    add_block(x, y, z, BLOCK)


@triton.jit
def gemm_host(a, b, c, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    gemm_tile(a, b, c, K, BLOCK_M, BLOCK_N, BLOCK_K)


# --- kernels with descriptors of the device: pointers come, and each program makes its own


@triton.jit
def copy_device(source_ptr, target_ptr, shape, strides, blocks, block, STAGES: tl.constexpr):
    source = tl.make_tensor_descriptor(source_ptr, shape, strides, block)
    target = tl.make_tensor_descriptor(target_ptr, shape, strides, block)
    copy_blocks(source, target, blocks, block, STAGES)


@triton.jit
def add_device(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [n], [1], [BLOCK])
    z = tl.make_tensor_descriptor(z_ptr, [n], [1], [BLOCK])
    add_block(x, y, z, BLOCK)


@triton.jit
def gemm_device(
    a_ptr, b_ptr, c_ptr, m, n, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    a = tl.make_tensor_descriptor(a_ptr, [m, K], [K, 1], [BLOCK_M, BLOCK_K])
    b = tl.make_tensor_descriptor(b_ptr, [n, K], [K, 1], [BLOCK_N, BLOCK_K])
    c = tl.make_tensor_descriptor(c_ptr, [m, n], [n, 1], [BLOCK_M, BLOCK_N])
    gemm_tile(a, b, c, K, BLOCK_M, BLOCK_N, BLOCK_K)


# --- kernels without descriptors, of contiguous tensors


@triton.jit
def copy_plain(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.load(x_ptr + index, mask=index < n), mask=index < n)


@triton.jit
def add_plain(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + index, mask=index < n) + tl.load(y_ptr + index, mask=index < n)
    tl.store(z_ptr + index, total, mask=index < n)


# --- calls on tensors


def copy(
    x: torch.Tensor, y: torch.Tensor, kind: str, block: Sequence[int] | None = None, num_stages: int = 1, **options: int
) -> Any:
    """y = x, of one shape; each program copies num_stages blocks."""
    if kind == WITHOUT_DESCRIPTORS:
        return copy_plain[(triton.cdiv(x.numel(), PLAIN_BLOCK),)](x, y, x.numel(), BLOCK=PLAIN_BLOCK, **options)
    block = tuple(block or copy_shape(x.shape, x.element_size()))
    blocks = tuple(triton.cdiv(extent, step) for extent, step in zip(x.shape, block, strict=True))
    grid = (triton.cdiv(math.prod(blocks), num_stages),)
    constants = tuple(tl.constexpr(extent) for extent in block)  # one by one: a constant tuple has no length in Triton
    if kind == "host":
        described = (TensorDescriptor.from_tensor(tensor, list(block)) for tensor in (x, y))
        return copy_host[grid](*described, blocks, constants, num_stages, **options)
    allocate_on(x.device)
    return copy_device[grid](x, y, tuple(x.shape), x.stride(), blocks, constants, num_stages, **options)


def add(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, kind: str, block: int = VECTOR_BLOCK, **options: int) -> Any:
    """z = x + y, vectors. Of a block beyond 256 elements Triton makes several boxes."""
    if kind == WITHOUT_DESCRIPTORS:
        return add_plain[(triton.cdiv(x.numel(), PLAIN_BLOCK),)](x, y, z, x.numel(), BLOCK=PLAIN_BLOCK, **options)
    grid = (triton.cdiv(x.numel(), block),)
    if kind == "host":
        described = (TensorDescriptor.from_tensor(v, [block]) for v in (x, y, z))
        return add_host[grid](*described, BLOCK=block, **options)
    allocate_on(x.device)
    return add_device[grid](x, y, z, x.numel(), BLOCK=block, **options)


def gemm(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, kind: str, block: Sequence[int] = (64, 64, 32), **options: int
) -> Any:
    """C[m, n] = A[m, k] @ B[n, k].T"""
    (m, k), n, (block_m, block_n, block_k) = a.shape, b.shape[0], block
    grid = (triton.cdiv(n, block_n), triton.cdiv(m, block_m))
    if kind == "host":
        boxes = ((a, [block_m, block_k]), (b, [block_n, block_k]), (c, [block_m, block_n]))
        described = (TensorDescriptor.from_tensor(*box) for box in boxes)
        return gemm_host[grid](*described, k, *block, **options)
    allocate_on(a.device)
    return gemm_device[grid](a, b, c, m, n, k, *block, **options)


def allocate_on(device: torch.device) -> None:
    """Triton keeps descriptors of the device in global memory, 128 bytes each, which the program lends it."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=device))


def copy_shape(shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """The block of a copy: powers of two that cover the tensor or fill `BLOCK_BYTES`, last dimension first."""
    left, block = BLOCK_BYTES // element_bytes, []
    for extent in reversed(shape):
        least = 1 if block else 16 // element_bytes
        block.append(max(least, min(triton.next_power_of_2(extent), left, MAX_EXTENT)))
        left //= block[-1]
    return tuple(reversed(block))


# --- checks

OPTIONS: tuple[dict[str, int], ...] = ({}, {"num_stages": 3, "num_warps": 8})


def checks(device: str) -> Iterator[tuple[str, bool]]:
    """What was run, and whether the result is right: small integers, so that every sum is exact."""
    for kind in (*KINDS, WITHOUT_DESCRIPTORS):
        where = "no descriptors" if kind == WITHOUT_DESCRIPTORS else f"{kind} descriptors"
        for shape in ((3001,), (37, 24), (5, 7, 40), (3, 5, 2, 16), (2, 3, 5, 3, 8)):
            yield f"copy {'x'.join(map(str, shape))}, {where}", _copies(shape, kind, device)
        x, y, z = (numbers(3003, device=device) for _ in range(3))
        add(x, y, z, kind)
        yield f"add 3003, {where}", torch.equal(z, x + y)
    for kind in KINDS:
        yield f"gemm 300x264x136, {kind} descriptors", all(_multiplies(kind, device, options) for options in OPTIONS)


def _copies(shape: Sequence[int], kind: str, device: str) -> bool:
    """With one block for each program and with three, the last of them outside of the tensor."""
    x, results = numbers(*shape, device=device), []
    for options in OPTIONS:
        results.append(torch.full_like(x, math.nan))
        copy(x, results[-1], kind, **options)
    return all(torch.equal(x, y) for y in results)


def _multiplies(kind: str, device: str, options: dict[str, int]) -> bool:
    a, b, c = (numbers(*size, device=device).half() for size in ((300, 136), (264, 136), (300, 264)))
    gemm(a, b, c, kind, (32, 64, 32), **options)
    return torch.equal(c.double(), a.double() @ b.double().T)


def numbers(*shape: int, device: str) -> torch.Tensor:
    return torch.randint(-4, 5, shape, device=device).float()


def main() -> int:
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    where = "the CPU, Triton's interpreter" if interpreted else torch.cuda.get_device_name()
    results = list(checks("cpu" if interpreted else "cuda"))
    for what, right in results:
        print(f"{'right' if right else 'WRONG'}  {what}")
    print(f"Triton {triton.__version__} on {where}")
    return 0 if all(right for _, right in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
