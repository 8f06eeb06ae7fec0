"""Kernels without products: what moving bytes, and computing in registers, takes."""

import pytest
import torch
from moving_scripts import Computes, Copies, SumsOfRows

from blackwell_matmul import predict, simulate
from blackwell_matmul.hardware.gpu_figures import figures_of

SIDE = 8192
HALF_BYTES = SIDE * SIDE * 2
"""More than any L2 here keeps."""


ROUNDING = 1e-9


def halves():
    return torch.empty(SIDE, SIDE, dtype=torch.float16)


def least_us(gpu, count_bytes):
    return count_bytes / figures_of(gpu).memory_bytes_per_ns / 1e3


def test_a_copy_copies_and_rows_are_summed():
    x = torch.randn(128, 256)
    halves, y, sums = x.half(), torch.empty(128, 256).half(), torch.empty(128, 1)
    assert simulate(Copies, 128, 256, halves, y, schedule={"ctas": 3, "stages": 2}).ok and torch.equal(halves, y)
    assert simulate(SumsOfRows, 128, 256, x, sums, schedule={"columns": 64}).ok
    assert torch.allclose(sums, x.sum(1, keepdim=True), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["B200", "H200", "H100", "RTX 5090"])
def test_what_is_stored_goes_to_memory_too_which_holds_a_copy(gpu):
    found = predict(Copies, SIDE, SIDE, halves(), halves(), gpu=gpu, explained=False)
    assert found.memory_gb == pytest.approx(2 * HALF_BYTES / 1e9, rel=0.001)
    least = least_us(gpu, (1 + figures_of(gpu).memory_store_cost) * HALF_BYTES)
    assert least < found.time_us < 1.1 * least
    assert found.bound == "memory" and found.memory_utilisation <= 1 + ROUNDING
    assert found.explanation[0].startswith("it is held by memory, busy for ")


def test_ctas_that_stay_and_copy_load_each_byte_once_in_whatever_order():
    found = predict(
        Copies, SIDE, SIDE, halves(), halves(), gpu="B200", explained=False,
        schedule={"rows": 64, "stages": 4, "ctas": 1480},
    )  # fmt: skip
    assert found.memory_gb == pytest.approx(2 * HALF_BYTES / 1e9, rel=0.001)
    assert found.memory_utilisation <= 1 + ROUNDING


def test_a_copy_that_the_l2_keeps_needs_no_memory():
    x, y = torch.empty(1024, 4096).half(), torch.empty(1024, 4096).half()
    found = predict(Copies, 1024, 4096, x, y, gpu="RTX 5090", explained=False)
    assert found.memory_gb == 0
    assert found.time_us < least_us("RTX 5090", 16e6)


def test_what_threads_load_themselves_comes_from_memory():
    x, y = torch.empty(SIDE, 4096), torch.empty(SIDE, 1)
    found = predict(SumsOfRows, SIDE, 4096, x, y, gpu="RTX 5090", explained=False)
    assert found.memory_gb == pytest.approx(HALF_BYTES / 1e9, rel=0.001)
    assert least_us("RTX 5090", HALF_BYTES) < found.time_us < 1.2 * least_us("RTX 5090", HALF_BYTES)
    assert found.bound == "memory"


@pytest.mark.slow
@pytest.mark.parametrize("columns", [64, 128])
def test_the_loads_of_a_few_turns_of_a_loop_are_issued_together(columns):
    """On an H100 pieces of 64 columns take as long as pieces of 512, 49 us (h100_moving.json)."""
    x, y = torch.empty(SIDE, 4096), torch.empty(SIDE, 1)
    found = predict(SumsOfRows, SIDE, 4096, x, y, gpu="H100", schedule={"columns": columns}, explained=False)
    assert found.time_us == pytest.approx(49, rel=0.3)


def of_a_tile(gpu="B200", **schedule):
    x, y = torch.empty(64, 64), torch.empty(64, 64)
    return predict(Computes, 64, 64, x, y, gpu=gpu, schedule=schedule, explained=False)


def longer(**schedule):
    return of_a_tile(**schedule).cycles - of_a_tile().cycles


def test_what_is_computed_is_right():
    x, y = torch.rand(64, 64), torch.empty(64, 64)
    assert simulate(Computes, 64, 64, x, y, schedule={"exps": 1, "adds": 1, "maxima": 1}).ok
    expected = x.exp() + 1
    assert torch.allclose(y, expected - expected.max(1, keepdim=True).values, atol=1e-6)
    assert simulate(Computes, 64, 64, x, y, schedule={"maxima": 1, "of_columns": True}).ok
    assert torch.equal(y, x - x.max(0, keepdim=True).values)


def test_exp_takes_the_special_function_units_and_an_addition_none():
    """16 results a cycle; each warp has a quarter of the units."""
    values, figures = 64 * 64 / 128, figures_of("B200")
    assert longer(adds=1) == pytest.approx(figures.cast_cycles + values * figures.cast_value_cycles)
    assert longer(exps=1) == pytest.approx(64 * 64 / 16)
    assert longer(exps=8) == pytest.approx(8 * 64 * 64 / 16)
    assert of_a_tile(exps=8).by_resource["special functions"] == 8 * 64 * 64 / 16
    assert "special functions" not in of_a_tile(adds=8).by_resource


def test_a_reduction_takes_its_values_shuffles_and_where_warps_meet_shared_memory():
    """Of 16 rows of a warp, each in all its lanes; of columns, each lane has two, and four warps a part of them."""
    figures, values = figures_of("B200"), 64 * 64 / 128
    subtraction = figures.cast_cycles + values * figures.cast_value_cycles
    of_rows = figures.cast_cycles + (values + 10 * 16) * figures.cast_value_cycles + 10 * figures.shuffle_cycles
    assert longer(maxima=1) == pytest.approx(of_rows + subtraction)
    meeting = figures.sync_cycles + 4 * figures.sync_warp_cycles
    turn = figures.stage_cycles + 2 * figures.stage_value_cycles + figures.unstage_cycles + meeting
    of_columns = figures.cast_cycles + values * figures.cast_value_cycles + 4 * turn + meeting
    first, second = (of_a_tile(maxima=times, of_columns=True).cycles for times in (1, 2))
    assert second - first == pytest.approx(of_columns + subtraction)


def test_many_ctas_get_no_more_than_the_units_give():
    x, y = torch.empty(2048, 4096), torch.empty(2048, 4096)
    found = predict(Computes, 2048, 4096, x, y, gpu="B200", schedule={"exps": 32}, explained=False)
    assert found.bound == "special functions"
    assert found.cycles > 32 * 14 * 64 * 64 / 16
