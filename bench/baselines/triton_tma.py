"""The three TMA primitives in Triton (3.6): a copy of 1 to 5 dimensions, a vector add, a GEMM tile.

Each with both kinds of tensor descriptor: "host" ones are made by Python before the launch, "device" ones by the kernel
itself, in memory that Triton asks the program's allocator for. Blocks are powers of two, and rows multiples of 16
bytes, as in any tensor map. A GPU without TMA gets ordinary loads and stores from Triton, with the same result.

    python bench/baselines/triton_tma.py                      # checks them on this machine's GPU
    TRITON_INTERPRET=1 python bench/baselines/triton_tma.py   # on the CPU, in Triton's interpreter: no TMA there
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

KINDS = ("host", "device")
BLOCK_BYTES = 8192
MAX_EXTENT = 256
VECTOR_BLOCK = 256


# --- the three bodies


@triton.jit
def copy_block(source, target, blocks, block):
    """Block number program_id, the last dimension counting fastest."""
    index = tl.program_id(0)
    offsets = ()
    for dim in tl.static_range(len(block) - 1, -1, -1):
        offsets = (index % blocks[dim] * block[dim],) + offsets  # noqa: RUF005  Triton unpacks no tuple here
        index = index // blocks[dim]
    target.store(offsets, source.load(offsets))


@triton.jit
def add_block(x, y, z, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK
    z.store([offset], x.load([offset]) + y.load([offset]))


@triton.jit
def gemm_tile(a, b, c, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    offset_m, offset_n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for offset_k in range(0, K, BLOCK_K):  # a constant: Triton 3.6's interpreter takes no other with numpy 2.4
        acc = tl.dot(a.load([offset_m, offset_k]), b.load([offset_n, offset_k]).T, acc)
    c.store([offset_m, offset_n], acc.to(c.dtype))


# --- kernels with descriptors of the host: they come as arguments


@triton.jit
def copy_host(source, target, blocks, block):
    copy_block(source, target, blocks, block)


@triton.jit
def add_host(x, y, z, BLOCK: tl.constexpr):
    add_block(x, y, z, BLOCK)


@triton.jit
def gemm_host(a, b, c, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    gemm_tile(a, b, c, K, BLOCK_M, BLOCK_N, BLOCK_K)


# --- kernels with descriptors of the device: pointers come, and each program makes its own


@triton.jit
def copy_device(source_ptr, target_ptr, shape, strides, blocks, block):
    source = tl.make_tensor_descriptor(source_ptr, shape, strides, block)
    target = tl.make_tensor_descriptor(target_ptr, shape, strides, block)
    copy_block(source, target, blocks, block)


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


# --- calls on tensors


def copy(x: torch.Tensor, y: torch.Tensor, kind: str) -> None:
    """y = x, of one shape."""
    block = copy_shape(x.shape, x.element_size())
    blocks = tuple(triton.cdiv(extent, step) for extent, step in zip(x.shape, block, strict=True))
    grid = (math.prod(blocks),)
    constants = tuple(tl.constexpr(extent) for extent in block)  # one by one: a constant tuple has no length in Triton
    if kind == "host":
        described = (TensorDescriptor.from_tensor(tensor, list(block)) for tensor in (x, y))
        copy_host[grid](*described, blocks, constants)
    else:
        allocate_on(x.device)
        copy_device[grid](x, y, tuple(x.shape), x.stride(), blocks, constants)


def add(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, kind: str) -> None:
    """z = x + y, vectors."""
    grid = (triton.cdiv(x.numel(), VECTOR_BLOCK),)
    if kind == "host":
        add_host[grid](*(TensorDescriptor.from_tensor(v, [VECTOR_BLOCK]) for v in (x, y, z)), BLOCK=VECTOR_BLOCK)
    else:
        allocate_on(x.device)
        add_device[grid](x, y, z, x.numel(), BLOCK=VECTOR_BLOCK)


def gemm(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, kind: str, block: Sequence[int] = (64, 64, 32)) -> None:
    """C[m, n] = A[m, k] @ B[n, k].T"""
    (m, k), n, (block_m, block_n, block_k) = a.shape, b.shape[0], block
    grid = (triton.cdiv(m, block_m), triton.cdiv(n, block_n))
    if kind == "host":
        boxes = ((a, [block_m, block_k]), (b, [block_n, block_k]), (c, [block_m, block_n]))
        gemm_host[grid](*(TensorDescriptor.from_tensor(*box) for box in boxes), k, *block)
    else:
        allocate_on(a.device)
        gemm_device[grid](a, b, c, m, n, k, *block)


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


def checks(device: str) -> Iterator[tuple[str, bool]]:
    """What was run, and whether the result is right: small integers, so that every sum is exact."""
    for kind in KINDS:
        for shape in ((3001,), (37, 24), (5, 7, 40), (3, 5, 2, 16), (2, 3, 5, 3, 8)):
            x, y = numbers(*shape, device=device), numbers(*shape, device=device)
            copy(x, y, kind)
            yield f"copy {'x'.join(map(str, shape))}, {kind} descriptors", torch.equal(x, y)
        x, y, z = (numbers(1003, device=device) for _ in range(3))
        add(x, y, z, kind)
        yield f"add 1003, {kind} descriptors", torch.equal(z, x + y)
        a, b, c = (numbers(*size, device=device).half() for size in ((100, 40), (72, 40), (100, 72)))
        gemm(a, b, c, kind)
        yield f"gemm 100x72x40, {kind} descriptors", torch.equal(c, (a.double() @ b.double().T).half())


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
