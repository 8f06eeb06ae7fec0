"""Products of few tiles with a long K on Hopper: two launches, the epilogue in the second, the same bits every time."""

import pytest
import torch

from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.ops import launching
from blackwell_matmul.ops.finished import NO_TENSORS, EpilogueTensors

H200 = GPUS["H200"]
BF16 = torch.bfloat16


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def planned(a, b, tensors=NO_TENSORS, gpu=H200, **how):
    return launching.planned(a, b, tensors, gpu, a.dtype, launching.How(simulate=True, **how))


@pytest.mark.slow
@pytest.mark.parametrize(
    "m, n, k, b_rows",
    [(64, 64, 4096, True), (16, 64, 8192, True), (40, 24, 3000, False), (33, 21, 3333, True), (512, 8, 4096, True)],
)
def test_values_and_bits(m, n, k, b_rows):
    """The error is at most twice that of torch's product in the same type."""
    a, b = randn(m, k), randn(n, k, seed=1).T if b_rows else randn(k, n, seed=1)
    plan = planned(a, b)
    assert isinstance(plan.launches, launching.LaunchesOfParts)
    made = [plan(a, b, NO_TENSORS) for _ in range(2)]
    exact = a.double() @ b.double()
    error, of_torch = ((each.double() - exact).abs().max() for each in (made[0], a @ b))
    assert error <= 2 * of_torch
    assert torch.equal(*made) and made[0].shape == (m, n) and made[0].is_contiguous() and made[0].dtype == BF16


@pytest.mark.slow
def test_the_epilogue_is_in_the_second_launch():
    a, b = randn(24, 4096), randn(40, 4096, seed=1).T
    tensors = EpilogueTensors(randn(40, seed=2), randn(24, 40, seed=3))
    made = planned(a, b, tensors, activation="relu", beta=0.5)(a, b, tensors)
    exact = (a.double() @ b.double() + 0.5 * tensors.residual.double() + tensors.bias.double()).relu()
    torch.testing.assert_close(made.double(), exact, rtol=2**-8, atol=1e-3)


def test_what_is_not_divided():
    """Batches, swiglu, another GPU, and a product whose sums have one order."""
    a, b = randn(64, 65536), randn(64, 65536).T
    one = torch.ones(())
    assert isinstance(planned(a, b).launches, launching.LaunchesOfParts)
    for other in (
        planned(a, b, batch_invariant=True),
        planned(a, b, activation="swiglu"),
        planned(a, b, gpu=GPUS["B200"]),
        planned(a[None], b[None]),
        planned(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), EpilogueTensors(scale_a=one, scale_b=one)),
    ):
        assert isinstance(other.launches, launching.Launches)


def test_a_pack_has_both_launches():
    a, b = randn(64, 65536), randn(64, 65536).T
    (product, of_parts), (total, of_sum) = planned(a, b).calls(a, b, NO_TENSORS)
    assert product.script_cls.__name__ == "HopperMatmul" and total.script_cls.__name__ == "SumOfParts"
    assert of_parts[-1] == of_sum[0] and of_parts[5].data_ptr() == of_sum[4].data_ptr()
