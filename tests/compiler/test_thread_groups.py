"""Which threads are in a group: those that the script names, asked of whole warps."""

import pytest
import torch
from compiler_samples import rung_bundle
from tilus import float32, int32, void_p

from blackwell_matmul import Script, compile, emulate


class Doubled(Script):
    """y = 2 x, by 64 of the threads."""

    def __init__(self, warps: int, begin: int):
        super().__init__()
        self.warps = warps
        self.begin = begin

    def __call__(self, count: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        g_x = self.global_view(x_ptr, dtype=float32, shape=[count])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[count])
        with self.thread_group(self.begin, 64):
            self.store_global(g_y, self.load_global(g_x, offsets=[0], shape=[64]) * 2.0, offsets=[0])


@pytest.mark.parametrize(("warps", "begin"), [(4, 0), (4, 64), (4, 32), (3, 32), (5, 96)])
def test_the_threads_of_a_group_are_those_that_it_names(warps: int, begin: int) -> None:
    x, y = torch.arange(64.0), torch.zeros(64)
    bundle = compile(Doubled(warps=warps, begin=begin), 64, x, y, target="sm_90a", cache=False)
    emulate(bundle, 64, x, y)
    assert torch.equal(y, 2 * x)
    asked = f"({begin // 32} <= tilus_cuda_shfl" if begin % 64 else f"/ 64), 0) == {begin // 64}"
    assert asked in bundle.source


def test_warps_of_a_rung_know_that_they_go_one_way() -> None:
    source = rung_bundle("h7").source
    assert "/ 128), 0) == 0" in source and "if ((int)threadIdx.x <" not in source
