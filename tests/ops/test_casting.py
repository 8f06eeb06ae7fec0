"""Products under torch.autocast: types, values and gradients are those of torch's own."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from blackwell_matmul import InputError, baddbmm, bmm, grouped_matmul, linear, matmul, scaled_mm

HALVES = [torch.float16, torch.bfloat16]


def randn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


X, W, BIAS, KEPT = randn(24, 40), randn(32, 40, seed=1), randn(32, seed=2), randn(24, 32, seed=3)
OURS = {
    "matmul": (lambda x: matmul(x, W.T, simulate=True), lambda x: x @ W.T),
    "linear": (lambda x: linear(x, W, BIAS, simulate=True), lambda x: functional.linear(x, W, BIAS)),
    "gelu": (
        lambda x: linear(x, W, BIAS, "gelu", simulate=True),
        lambda x: functional.gelu(functional.linear(x, W, BIAS)),
    ),
    "residual": (lambda x: linear(x, W, residual=KEPT, simulate=True), lambda x: torch.addmm(KEPT, x, W.T)),
    "bmm": (lambda x: bmm(x[None], W.T[None], simulate=True), lambda x: torch.bmm(x[None], W.T[None])),
    "baddbmm": (
        lambda x: baddbmm(KEPT[None], x[None], W.T[None], simulate=True),
        lambda x: torch.baddbmm(KEPT[None], x[None], W.T[None]),
    ),
}


def assert_as_good(ours, torchs, exact):
    """At most twice torch's own error in the same types."""
    assert ours.shape == torchs.shape and ours.dtype == torchs.dtype
    error, allowed = ((x.double() - exact).abs().max() for x in (ours, torchs))
    assert error <= 2 * allowed, (error, allowed)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", OURS)
def test_types_and_values_are_torchs(name, dtype):
    ours, torchs = OURS[name]
    exact = torchs(X).double()
    for x in (X, X.half(), X.bfloat16()):
        with torch.autocast("cpu", dtype=dtype):
            found, expected = ours(x), torchs(x)
        assert found.dtype == dtype
        assert_as_good(found, expected, exact)


def test_an_inner_region_without_it_takes_what_is_given():
    half = X.half()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert matmul(half, half.T, simulate=True).dtype == torch.float16
        with pytest.raises(InputError, match=r"input is torch.float32; it must be torch.float16 or torch.bfloat16"):
            matmul(X, W.T, simulate=True)


def test_float64_is_not_cast_and_what_torch_leaves_is_left():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(InputError, match=r"input is torch.float64"):
            matmul(X.double(), W.T.double(), simulate=True)
        small, one = X[:16, :32].to(torch.float8_e4m3fn), torch.ones(())
        made = scaled_mm(small, small.T, one, one, out_dtype=torch.float32, simulate=True)
        assert made.dtype == torch.float32
        ends = torch.tensor([24], dtype=torch.int32)
        assert grouped_matmul(X.half(), W.T.half()[None], ends, simulate=True).dtype == torch.float16


class Layer(nn.Module):
    def __init__(self, multiply):
        super().__init__()
        self.multiply, self.w, self.bias = multiply, nn.Parameter(W.clone()), nn.Parameter(BIAS.clone())

    def forward(self, x):
        return self.multiply(x, self.w, self.bias)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_have_the_types_of_the_parameters(compiled):
    mine = Layer(lambda x, w, bias: linear(x, w, bias, "silu", simulate=True))
    torchs = Layer(lambda x, w, bias: functional.silu(functional.linear(x, w, bias)))
    exact = Layer(torchs.multiply)
    call = torch.compile(mine, backend="aot_eager", fullgraph=True) if compiled else mine
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = call(X), torchs(X)
    assert found.dtype == expected.dtype == torch.bfloat16
    for made in (found, expected, exact(X)):
        made.float().square().sum().backward()
    for name in ("w", "bias"):
        ours, theirs, wanted = (getattr(layer, name).grad for layer in (mine, torchs, exact))
        assert ours.dtype == torch.float32
        assert_as_good(ours, theirs, wanted.double())
