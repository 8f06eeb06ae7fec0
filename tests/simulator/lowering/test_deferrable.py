"""Products of mma.sync that are put off: the same values, in every order, whoever looks in between."""

from typing import Any

import numpy as np
import pytest
import tilus
import torch
from orders import ORDERS, run_in
from tilus import float16, float32, int32

from blackwell_matmul.scheduling.mma_sync_fragments import accumulator_layout, strip_layout
from blackwell_matmul.simulator.lowering import deferrable
from blackwell_matmul.simulator.machine import deferred, global_memory
from blackwell_matmul.simulator.simulate import prepare

M, N, K, BLOCK_K = 64, 32, 80, 32
TARGET = "sm_100a"


class Products(tilus.Script):
    """D = (the sum over k-tiles of A @ B.T) in CTAs of 64 rows, and somebody who looks before the end.

    look: "read" the accumulator in the loop, "write" it there, "late": what was loaded is overwritten before it is
    multiplied, "twice": the product is used twice, "view": the accumulator is seen in another way, "made": B is made by
    the kernel, and no copy of constant memory.
    """

    def __init__(self, look: str = "", acc_dtype: Any = float32):
        super().__init__()
        self.look = look
        self.acc_dtype = acc_dtype
        self.acc_layout = accumulator_layout(M, N, N)
        self.strip_layout = strip_layout(M, N, N)

    def __call__(self, m: int32, k: int, a_ptr: ~float16, b_ptr: ~float16, d_ptr: ~float32):
        self.attrs.blocks = [tilus.utils.cdiv(m, M)]
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[N, k])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[m, N])
        s_a = self.shared_tensor(dtype=float16, shape=[M, BLOCK_K])
        s_b = self.shared_tensor(dtype=float16, shape=[N, BLOCK_K])
        r_acc = self.register_tensor(dtype=self.acc_dtype, shape=[M, N], init=0.0)
        r_seen = self.register_tensor(dtype=self.acc_dtype, shape=[M, N], init=0.0)
        for offset_k in range(0, k, BLOCK_K):
            self.copy_async(src=g_a, dst=s_a, offsets=[M * self.blockIdx.x, offset_k])
            self.copy_async(src=g_b, dst=s_b, offsets=[0, offset_k])
            self.copy_async_wait_all()
            self.sync()
            if self.look == "made":
                r_made = self.load_shared(s_b)
                self.sync()
                self.store_shared(s_b, r_made + r_made)
                self.sync()
            r_a = self.load_shared(s_a)
            r_b = self.load_shared(s_b)
            if self.look == "late":
                self.sync()
                self.copy_async(src=g_a, dst=s_a, offsets=[0, 0])
                self.copy_async_wait_all()
            if self.look == "twice":
                r_d = self.dot(r_a, r_b.transpose(), r_acc)
                self.assign(r_acc, r_d)
                self.assign(r_seen, r_d + r_seen)
            else:
                r_acc = self.dot(r_a, r_b.transpose(), r_acc)
            if self.look == "read":
                self.assign(r_seen, r_acc + r_seen)
            if self.look == "write":
                self.assign(r_acc, r_acc * 0.5)
            self.sync()
        if self.look == "view":
            self.annotate_layout(r_acc, self.acc_layout)
            self.annotate_layout(r_seen, self.acc_layout)
            r_strips = self.view(r_acc, layout=self.strip_layout)
            self.store_global(g_d, r_strips[0], offsets=[M * self.blockIdx.x, 0])
        else:
            self.store_global(g_d, (r_acc + r_seen).to(float32), offsets=[M * self.blockIdx.x, 0])


LOOKS = ["", "read", "write", "late", "twice", "made", "view"]


def numbers(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(-4, 5, (rows, columns))).half()


def expected(look: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = seen = torch.zeros(a.shape[0], N)
    for k in range(0, a.shape[1], BLOCK_K):
        b_tile = b[:, k : k + BLOCK_K].float() * (2 if look == "made" else 1)
        total = total + a[:, k : k + BLOCK_K].float() @ b_tile.T
        seen = seen + total * (look in ("read", "twice"))
        total = total * (0.5 if look == "write" else 1)
    return total + seen


@pytest.mark.slow
@pytest.mark.parametrize("m", [3 * M, 3 * M - 8])
@pytest.mark.parametrize("look", LOOKS)
def test_values_whoever_looks(look: str, m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = numbers(m, K, 0), numbers(N, K, 1)
    want = expected(look, a, b)
    for pays in (0, 2**62):  # constant memory that is remembered, and none
        monkeypatch.setattr(global_memory, "IMAGE_PAYS_ELEMENTS", pays)
        for order in ORDERS:
            d = torch.full((m, N), float("nan"))
            run = run_in(order, Products(look), m, K, a, b, d, target=TARGET)
            assert not run.findings and torch.equal(d, want), (pays, order)


def found(look: str, acc_dtype: Any = float32) -> deferrable.Deferrable:
    a, b = numbers(M, K, 0), numbers(N, K, 1)
    _, lowered = prepare(Products(look, acc_dtype), (M, K, a, b, torch.empty(M, N)), None, TARGET)
    return deferrable.deferrable(lowered.program)


@pytest.mark.parametrize("look", LOOKS)
def test_what_nobody_else_sees_may_be_put_off(look: str) -> None:
    tensors, accumulators = found(look)
    assert (len(tensors), len(accumulators)) == ((0, 0) if look in ("twice", "view") else (4, 1))


def test_sums_of_16_bits_are_not_put_off() -> None:
    assert found("", float16) == (frozenset(), frozenset())


def test_the_warps_of_a_tile_share_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all k-tiles, the columns beyond the last one included: they are zeros."""
    monkeypatch.setattr(global_memory, "IMAGE_PAYS_ELEMENTS", 0)
    performed = list[tuple[int, ...]]()
    perform = deferred.Product.perform

    def counted(product: deferred.Product) -> None:
        performed.append((*product.cells.shape, product.a.values().shape[1]))
        perform(product)

    monkeypatch.setattr(deferred.Product, "perform", counted)
    a, b, d = numbers(M, K, 0), numbers(N, K, 1), torch.zeros(M, N)
    run = run_in(ORDERS[0], Products(), M, K, a, b, d, target=TARGET)
    assert not run.findings and performed == [(M, N, 3 * BLOCK_K)]
    assert torch.equal(d, expected("", a, b))
