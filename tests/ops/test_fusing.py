"""`fused_linear`: which layers become one kernel, and that the model computes the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from blackwell_matmul import InputError, fused_linear
from blackwell_matmul.ops import fusing


class Block(nn.Module):
    def __init__(self, activate):
        super().__init__()
        self.up, self.down, self.activate = nn.Linear(32, 64), nn.Linear(64, 32, bias=False), activate

    def forward(self, x):
        return x + self.down(self.activate(self.up(x)))


@pytest.fixture
def fused(monkeypatch):
    counts = []
    original = fusing.fuse
    monkeypatch.setattr(fusing, "fuse", lambda *args: counts.append(original(*args)))
    return counts


ACTIVATIONS = [
    functional.gelu,
    lambda x: functional.gelu(x, approximate="tanh"),
    functional.silu,
    functional.relu,
    torch.relu,
    nn.GELU(),
]


@pytest.mark.parametrize("activate", ACTIVATIONS)
def test_a_layer_and_its_activation_become_one_kernel(activate, fused):
    torch.manual_seed(0)
    block, x = Block(activate).bfloat16(), torch.randn(2, 24, 32, dtype=torch.bfloat16)
    compiled = torch.compile(block, backend=fused_linear("aot_eager", simulate=True), fullgraph=True)
    torch.testing.assert_close(compiled(x), block(x), rtol=2e-2, atol=2e-2)
    compiled(x).sum().backward()
    assert set(fused) == {1} and all(each.grad is not None for each in block.parameters())


def test_what_somebody_else_reads_or_no_kernel_takes_is_left(fused):
    def twice(x, w):
        y = functional.linear(x, w)
        return functional.relu(y) + y

    halves = torch.randn(8, 16).half(), torch.randn(8, 16).half()
    for function, args in (
        (twice, halves),
        (lambda x, w: torch.relu(functional.linear(x, w)), [t.float() for t in halves]),
    ):
        compiled = torch.compile(function, backend=fused_linear("aot_eager", simulate=True))
        torch.testing.assert_close(compiled(*args), function(*args))
    assert fused == [0, 0]


def test_what_is_no_backend_is_refused():
    for wrong, name in (({"backend": 3}, "backend"), ({"simulate": 1}, "simulate")):
        with pytest.raises(InputError, match=f"{name} is .; it must be"):
            fused_linear(**wrong)
