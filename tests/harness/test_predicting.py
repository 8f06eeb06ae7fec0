"""What a matmul that is no rung would take with other values of its knobs."""

import re
from pathlib import Path

import pytest
import tilus
from tilus import bfloat16, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul import InputError, predict, schedules, trace
from blackwell_matmul.scheduling.neighbours import knobs_beside

PUBLISHED = Path(__file__).parents[2] / "bench" / "public_ladder_kernels.py"
SIZE = (256, 256, 512)


def serial(**schedule):
    return predict(f"{PUBLISHED}:Serial", *SIZE, dtype="bf16", schedule=schedule, target="B200")


def test_knobs_are_doubled_and_halved_and_a_ring_stays_as_long():
    assert knobs_beside({"block_n": 64, "stages": 3, "unknown": 8}) == [[{"block_n": 128}, {"block_n": 32}]]
    assert knobs_beside({"block_k": 64, "stages": 2}) == [[{"block_k": 128, "stages": 1}, {"block_k": 32, "stages": 4}]]
    assert knobs_beside({}) == []


@pytest.mark.slow
def test_what_is_told_of_another_value_is_what_it_takes():
    before = serial(block_n=128, block_k=256, stages=1)
    (told,) = (each for each in before.explanation if each.startswith("with block_k=128 and stages=2"))
    after = serial(block_n=128, block_k=128, stages=2)
    assert int(re.search(r"(\d+)% less time", told)[1]) == round(100 * (1 - after.time_us / before.time_us))


class Fixed(tilus.Script):
    """Right with one of its values alone, and quicker with another."""

    def __init__(self, block_n: int = 128):
        super().__init__()
        self.block_n = block_n

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, 128) * cdiv(n, 128)
        self.attrs.warps = 4
        offset_m: int32 = self.blockIdx.x // cdiv(n, 128) * 128
        offset_n: int32 = self.blockIdx.x % cdiv(n, 128) * 128
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        s_a = self.shared_tensor(dtype=bfloat16, shape=[128, 64])
        s_b = self.shared_tensor(dtype=bfloat16, shape=[self.block_n, 64])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.block_n])
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        phase: int32 = 0
        for offset_k in range(0, k, 64):
            self.copy_async(g_a, s_a, offsets=[offset_m, offset_k])
            self.copy_async(g_b, s_b, offsets=[offset_n, offset_k])
            self.copy_async_wait_all()
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(0):
                self.tcgen05.mma(s_a, s_b.transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=done)
            self.mbarrier.wait(done, phase=phase)
            self.sync()
            phase ^= 1
        r_acc = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        self.store_global(g_c, r_acc.to(bfloat16), offsets=[offset_m, offset_n])
        self.sync()
        self.tcgen05.dealloc(t_acc)


def test_a_value_with_which_the_kernel_is_wrong_is_not_told():
    whole, half = (predict(Fixed, *SIZE, dtype="bf16", schedule={"block_n": each}, target="B200") for each in (128, 64))
    assert half.time_us < 0.9 * whole.time_us
    assert not any("block_n" in each for each in whole.explanation), whole.explanation


@pytest.mark.parametrize("argument", ["target", "gpu"])
@pytest.mark.parametrize("function", [predict, trace, schedules])
@pytest.mark.parametrize("value", [3, "B1000", "sm_80"])
def test_a_gpu_that_is_none_is_refused_by_the_name_of_its_argument(function, argument, value):
    with pytest.raises(InputError, match=rf"^{argument} is {value!r}; .*\bB200, .*H200"):
        function("v1", 8, 8, 8, **{argument: value})
