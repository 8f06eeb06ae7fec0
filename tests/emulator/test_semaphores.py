"""A kernel whose CTAs take turns, compiled and executed: a lock is a loop around a barrier that reduces."""

import pytest
import tilus
import torch
from tilus import float32, int32

from blackwell_matmul import compile, emulate


class Turns(tilus.Script):
    """Adds one part of x after the other to y."""

    def __init__(self):
        super().__init__()

    def __call__(self, parts: int32, x_ptr: ~float32, y_ptr: ~float32, turn_ptr: ~int32):
        self.attrs.blocks = [parts]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[parts, 32, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
        mine = self.load_global(g_x, offsets=[self.blockIdx.x, 0, 0], shape=[32, 32], dims=[1, 2])
        self.lock_semaphore(turn_ptr, value=self.blockIdx.x)
        self.sync()
        before = self.load_global(g_y, offsets=[0, 0], shape=[32, 32])
        self.store_global(g_y, before * 2.0 + mine, offsets=[0, 0])
        self.sync()
        self.release_semaphore(turn_ptr, value=self.blockIdx.x + 1)


@pytest.mark.parametrize("order", ["late", "eager", "random"])
def test_the_parts_of_a_sum_come_in_the_order_of_the_semaphore(order: str) -> None:
    x, y, turn = torch.randint(-9, 9, (4, 32, 32)).float(), torch.zeros(32, 32), torch.zeros(1, dtype=torch.int32)
    bundle = compile(Turns, 4, x, y, turn, target="sm_90a")
    emulate(bundle, 4, x, y, turn, order=order, seed=3)
    assert torch.equal(y, 8 * x[0] + 4 * x[1] + 2 * x[2] + x[3]) and turn.item() == 4
