"""Kernels without products: what moving bytes, and computing in registers, takes."""

import pytest
import torch
from moving_scripts import Copies, SumsOfRows

from blackwell_matmul import predict, simulate
from blackwell_matmul.gpu_figures import figures_of

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


@pytest.mark.parametrize("gpu", ["B200", "H200", "H100", "RTX 5090"])
def test_what_is_stored_goes_to_memory_too_which_holds_a_copy(gpu):
    found = predict(Copies, SIDE, SIDE, halves(), halves(), gpu=gpu, explained=False)
    assert found.memory_gb == pytest.approx(2 * HALF_BYTES / 1e9, rel=0.001)
    assert least_us(gpu, 2 * HALF_BYTES) < found.time_us < 1.1 * least_us(gpu, 2 * HALF_BYTES)
    assert found.bound == "memory" and found.memory_utilisation <= 1 + ROUNDING
    assert found.explanation[0].startswith("memory is busy for ")


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
