"""Groups of warps that reduce at the same time, each in scratch memory of its own: the compiled code is executed."""

from types import SimpleNamespace
from typing import Any

import pytest
import tilus
import torch
from tilus import float32
from tilus.backends.contexts.smem_alloc_ctx import SharedMemoryAllocationContext

from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.frontend.faults.scratch_memory import scratch_of_each_group


class SumsOfTwoGroups(tilus.Script):
    """y[g] = sums of the columns of x[g], by warpgroup g; a sync between the two, or none."""

    target = "sm_90a"

    def __init__(self, in_turn: bool = False, whole: bool = False) -> None:
        super().__init__()
        self.in_turn = in_turn
        self.whole = whole

    def __call__(self, x: ~float32, y: ~float32) -> None:  # type: ignore[valid-type]
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_x = self.global_view(x, dtype=float32, shape=[2, 32, 32])
        g_y = self.global_view(y, dtype=float32, shape=[2, 32])
        with self.warp_group(0, 4):
            low = self.load_global(g_x, offsets=[0, 0, 0], shape=[32, 32], dims=[1, 2])
            self.store_global(g_y, self.sum(low, dim=0), offsets=[0, 0], dims=[1])
        if self.in_turn:
            self.sync()
        with self.warp_group(4, 4):
            high = self.load_global(g_x, offsets=[1, 0, 0], shape=[32, 32], dims=[1, 2])
            self.store_global(g_y, self.max(high, dim=0), offsets=[1, 0], dims=[1])
        if self.whole:
            both = self.load_global(g_x, offsets=[0, 0, 0], shape=[32, 32], dims=[1, 2])
            self.store_global(g_y, self.sum(both, dim=0), offsets=[0, 0], dims=[1])


def executed(**knobs: bool) -> list[bool]:
    """Return, for each group, whether the compiled code computes its sums, or maxima."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 32, 32), torch.zeros(2, 32)
    emulate(compile(SumsOfTwoGroups, x, y, schedule=knobs), x, y)
    wanted = x[0].sum(0), x[1].amax(0)
    return [torch.allclose(y[group], each, atol=1e-5) for group, each in enumerate(wanted)]


@pytest.mark.parametrize("in_turn", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_groups_do_not_mix_their_sums(in_turn: bool, whole: bool) -> None:
    assert executed(in_turn=in_turn, whole=whole) == [True, True]


def pointers(*groups: tuple[int, int]) -> list[Any]:
    """Return the scratch memory that instructions of these groups of threads, one after the other, are given."""
    stack = SimpleNamespace(thread_begin=[0], thread_end=[256])
    context = SharedMemoryAllocationContext(SimpleNamespace(thread_group_stack=stack))
    context.__post_init__()
    given = []
    for stack.thread_begin[-1], stack.thread_end[-1] in groups:
        given.append(context.request_shared_workspace(128))
    return given


def test_a_group_keeps_its_part() -> None:
    with scratch_of_each_group():
        low, high, again = pointers((0, 128), (128, 256), (0, 128))
    assert low is again
    assert low is not high


def test_tilus_gives_all_groups_the_same_scratch_memory() -> None:
    """The fault itself."""
    low, high = pointers((0, 128), (128, 256))
    assert low is high
