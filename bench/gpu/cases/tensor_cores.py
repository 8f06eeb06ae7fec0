"""Products by mma.sync and by wgmma: of small integers, whose sums are exact, and of values whose sums round."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import torch
from explanations import BYTE_SUMS, EXACT, Bound, sums

from cases.made import WHOLE, Case, Made, Type, blank, source, tame

MMA = (
    ("float16", "float32"),
    ("float16", "float16"),
    ("bfloat16", "float32"),
    ("int8", "int32"),
    ("float32", "float32"),
)
WGMMA = (
    ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"), ("float8_e4m3", "float32"),
    ("float8_e5m2", "float32"), ("int8", "int32"), ("float32", "float32"),
)  # fmt: skip
SHAPES = ((16, 8, 16), (16, 8, 32), (16, 16, 32), (32, 32, 32), (64, 32, 64), (32, 64, 16), (64, 64, 128), (24, 8, 16))
SUMS = sums(16)
HALVES = ("exact", "third", "cancel", "large")


def cases() -> Iterator[Case]:
    for (kind, acc), shape, warps, what in itertools.product(MMA, SHAPES, (1, 4), HALVES):
        if what == "exact" or warps == 1:
            key = f"dot/{kind}/{acc}/{'x'.join(map(str, shape))}/{warps}/{what}"
            yield Case(key, functools.partial(dot, WHOLE[kind], WHOLE[acc], shape, warps, what))
    for (kind, acc), n, k, what in itertools.product(WGMMA, (8, 32, 64, 256), (32, 64, 128), HALVES):
        if what == "exact" or n == 64:
            key = f"wgmma/{kind}/{acc}/64x{n}x{k}/{what}"
            yield Case(key, functools.partial(wgmma, WHOLE[kind], WHOLE[acc], (64, n, k), what))


def operands(kind: Type, rows: int, columns: int, what: str, seed: int) -> torch.Tensor:
    small = tame(kind, rows, columns, seed=seed)
    if what == "exact" or not kind.is_float:
        return small
    wide = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    if what == "cancel":
        wide *= torch.where(torch.arange(columns) % 2 == 0, 100.0, -100.0) if seed == 0 else 1.0
    return (wide * (300 if what == "large" else 1)).to(kind.torch)


def _bound(kind: Type, what: str) -> Bound:
    if what == "exact" or not kind.is_float:
        return EXACT
    return BYTE_SUMS if kind.nbits == 8 else SUMS


def dot(kind: Type, acc: Type, shape: tuple[int, int, int], warps: int, what: str) -> Made:
    m, n, k = shape
    lines = [
        f"{name} = self.load_global(self.global_view({name}_ptr, dtype={of}, shape={size}), offsets=[0, 0], shape={size})"
        for name, of, size in (("a", kind.name, [m, k]), ("b", kind.name, [k, n]), ("c", acc.name, [m, n]))
    ]
    lines.append("d = self.dot(a, b, c)")
    lines.append(f"self.store_global(self.global_view(d_ptr, dtype={acc.name}, shape=[{m}, {n}]), d, offsets=[0, 0])")
    text = source("a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, d_ptr: void_p", "\n".join(lines), warps)
    a, b = operands(kind, m, k, what, 0), operands(kind, k, n, what, 1)
    return Made([(a, b, tame(acc, m, n, seed=2), blank(acc, m, n))], text, bound=_bound(kind, what))


def wgmma(kind: Type, acc: Type, shape: tuple[int, int, int], what: str) -> Made:
    m, n, k = shape
    body = f"""
    g_a = self.global_view(a_ptr, dtype={kind.name}, shape=[{m}, {k}])
    g_b = self.global_view(b_ptr, dtype={kind.name}, shape=[{n}, {k}])
    s_a = self.shared_tensor(dtype={kind.name}, shape=[{m}, {k}])
    s_b = self.shared_tensor(dtype={kind.name}, shape=[{n}, {k}])
    arrived = self.mbarrier.alloc(counts=1)
    d = self.register_tensor(dtype={acc.name}, shape=[{m}, {n}], init=0)
    self.sync()
    with self.single_warp():
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_a.nbytes + s_b.nbytes)
        self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=arrived)
        self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=arrived)
    self.mbarrier.wait(arrived, phase=0)
    self.wgmma.fence()
    self.wgmma.mma(s_a, s_b.transpose(), d)
    self.wgmma.commit_group()
    self.wgmma.wait_group(0)
    self.store_global(self.global_view(d_ptr, dtype={acc.name}, shape=[{m}, {n}]), d, offsets=[0, 0])
    """
    text = source("a_ptr: void_p, b_ptr: void_p, d_ptr: void_p", body, warps=4)
    a, b = operands(kind, m, k, what, 0), operands(kind, n, k, what, 1)
    return Made([(a, b, blank(acc, m, n))], text, bound=_bound(kind, what))
