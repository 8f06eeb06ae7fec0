"""8-bit product with fp32 scales of 1x128 of A and of 128x128 of B in Triton, to compare with; tuned for each size."""

import torch
import triton
import triton.language as tl

SCALED = 128
CONFIGS = [
    triton.Config({"block_m": block_m, "block_n": block_n}, num_warps=warps, num_stages=stages)
    for block_m, block_n, warps, stages in (
        (64, 64, 4, 5), (64, 128, 4, 4), (128, 64, 4, 4), (128, 128, 4, 4), (128, 128, 8, 4), (64, 32, 4, 6),
    )
]  # fmt: skip


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def kernel(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, m, n, k, scale_b_line,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group_m: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, block_m), tl.cdiv(n, block_n)
    first = tile // (group_m * tiles_n) * group_m
    rows = min(tiles_m - first, group_m)
    row = first + tile % (group_m * tiles_n) % rows
    column = tile % (group_m * tiles_n) // rows
    at_m = row * block_m + tl.arange(0, block_m)
    at_n = column * block_n + tl.arange(0, block_n)
    at_k = tl.arange(0, block_k)
    a_at = a_ptr + (at_m % m)[:, None] * k + at_k[None, :]
    b_at = b_ptr + (at_n % n)[None, :] * k + at_k[:, None]
    scale_a_at = scale_a_ptr + at_m % m
    scale_b_at = scale_b_ptr + column * block_n // block_k * scale_b_line
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for _ in range(tl.cdiv(k, block_k)):
        a = tl.load(a_at)
        b = tl.load(b_at)
        scales = tl.load(scale_a_at) * tl.load(scale_b_at)
        total += tl.dot(a, b) * scales[:, None]
        a_at += block_k
        b_at += block_k
        scale_a_at += m
        scale_b_at += 1
    c_at = c_ptr + at_m[:, None].to(tl.int64) * n + at_n[None, :]
    tl.store(c_at, total.to(tl.bfloat16), mask=(at_m < m)[:, None] & (at_n < n)[None, :])


def product(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, c: torch.Tensor) -> None:
    """Write a[m, k] @ b[n, k].T into c. scale_a: [k / 128, m]; scale_b: [n / 128, k / 128 and padding]."""
    (m, k), n = a.shape, b.shape[0]

    def grid(meta: dict[str, int]) -> tuple[int]:
        return (triton.cdiv(m, meta["block_m"]) * triton.cdiv(n, meta["block_n"]),)

    kernel[grid](
        a, b, c, scale_a, scale_b, m, n, k, scale_b.stride(0), block_k=SCALED, group_m=8
    )  # K is a multiple of 128
