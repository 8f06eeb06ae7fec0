"""K is divided among all SMs where few tiles have a long K, and only there."""

import pytest

from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.parts_of_k import best_division, divided
from blackwell_matmul.scheduling.rules import can_run

H200, HOPPER = GPUS["H200"], rung("hopper")


@pytest.mark.parametrize("b_major", ["k", "n"])
@pytest.mark.parametrize(
    "size", [(64, 64, 65536), (128, 128, 262144), (16, 64, 16384), (2048, 64, 8192), (512, 8, 8192), (33, 21, 100000)]
)
def test_few_tiles_with_a_long_k_are_divided(size, b_major):
    m, n, k = size
    line = -(-n // 8) * 8  # of C, and of B if it is N-major
    form = Form(b_major=b_major, b_stride=line if b_major == "n" else 0, c_stride=line)
    problem = Problem(m, n, k, "bf16", form)
    found = best_division(problem, H200, HOPPER)
    tiles = -(-m // found.schedule.block_m) * -(-n // found.schedule.block_n)
    assert 44 < tiles * found.parts <= H200.sm_count
    assert can_run(found.schedule, divided(problem, found.parts), H200)


@pytest.mark.parametrize(
    "size",
    [
        (8192, 8192, 8192),
        (64, 64, 1024),
        (128, 4096, 4096),
        (16, 4096, 4096),
        (1000, 1000, 1000),
        (4096, 64, 64),
        (768, 768, 4096),
        (5000, 64, 5000),
        (64, 5000, 5000),
    ],
)
def test_others_are_not(size):
    assert best_division(Problem(*size, "bf16"), H200, HOPPER) is None


def test_the_sums_stay_in_the_l2():
    found = best_division(Problem(2048, 128, 1 << 20, "bf16"), H200, HOPPER)
    assert found is None or found.parts * 2048 * 128 * 4 <= 26e6


def test_rows_of_sums_are_written_by_tma():
    assert divided(Problem(8, 21, 4096), 4).c_line == 24 and divided(Problem(8, 24, 4096), 4).form.c_stride == 0


def test_four_ctas_share_loads_where_tiles_are_large():
    """In fewer parts than without clusters, as fewer clusters of four than CTAs run at once."""
    found = best_division(Problem(256, 256, 65536, "bf16"), H200, HOPPER)
    assert found.schedule.cluster_m * found.schedule.cluster_n == 4 and found.parts == 15
    found = best_division(Problem(2500, 64, 10000, "bf16"), H200, HOPPER)
    assert (found.schedule.cluster_m, found.schedule.cluster_n) == (4, 1)
    assert divided(Problem(2500, 64, 10000, "bf16"), found.parts).parts_of_k == found.parts
    for size in ((256, 16, 65536), (32, 256, 28672)):
        found = best_division(Problem(*size, "bf16"), H200, HOPPER)
        assert found.schedule.cluster_m == found.schedule.cluster_n == 1
