"""`fused_linear`: which layers become one kernel, and that the model computes the same."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from blackwell_matmul import InputError, fused_linear
from blackwell_matmul.ops import fusing

pytestmark = pytest.mark.slow


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


def test_what_is_written_somewhere_else_is_left():
    into = torch.zeros(8, 8, dtype=torch.bfloat16)

    def function(x, w, into):
        return torch._C._nn.gelu(functional.linear(x, w), out=into)

    x = w = torch.eye(8, dtype=torch.bfloat16)
    torch.compile(function, backend=fused_linear("aot_eager", simulate=True))(x, w, into)
    assert torch.equal(into, functional.gelu(functional.linear(x, w)))


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


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


X, W, BIAS = randn(24, 32), randn(16, 32, seed=1), randn(16, seed=2)


def frozen(x, w):
    with torch.no_grad():
        z = functional.linear(x, w, BIAS)
    return functional.gelu(z)


def cast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = functional.linear(x, w, BIAS)
    return functional.gelu(z)


def another_bias(x, w):
    bias = BIAS.clone()
    z = functional.linear(x, w, bias)
    bias.add_(1)
    return functional.gelu(z)


def another_x(x, w):
    x = x.clone()
    z = functional.linear(x, w, BIAS)
    x.add_(1)
    return functional.gelu(z)


def derived(x, w):
    return torch.func.grad(lambda w: functional.relu(functional.linear(x, w)).float().sum())(w)


STAYS = {
    "no_grad": (frozen, 0),
    "autocast": (cast, 0),
    "a bias that changes": (another_bias, 1),
    "an x that changes": (another_x, 1),
    "by name": (lambda x, w: functional.relu(input=functional.linear(input=x, weight=w, bias=BIAS)), 1),
    "in place": (lambda x, w: functional.relu(functional.linear(x, w), True), 0),
    "one number": (lambda x, w: functional.relu(functional.linear(x, w, BIAS[:1])), 0),
    "a residual": (lambda x, w: functional.relu(functional.linear(x, w, X[:, :16])), 0),
    "a vector": (lambda x, w: functional.relu(functional.linear(x, w[0])), 0),
    "torch.func": (derived, 0),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stands_around_a_layer_stays_there(name, fused):
    function, count = STAYS[name]
    torch.compiler.reset()
    leaves = [each.clone().requires_grad_("changes" not in name) for each in (X, W)]  # torch refuses that gradient
    found = torch.compile(function, backend=fused_linear("aot_eager", simulate=True), fullgraph=True)(*leaves)
    torch.testing.assert_close(found, expected := function(*leaves), rtol=2e-2, atol=2e-2)
    assert fused == [count]
    if name != "torch.func":
        assert found.requires_grad == expected.requires_grad


def test_mode_and_options_reach_the_inner_backend():
    heard = []

    def inner(graph, inputs, **how):
        heard.append(how)
        return graph

    for how in ({"mode": "max-autotune"}, {"options": {"max_autotune": True}}, {}):
        torch.compiler.reset()
        torch.compile(lambda x: functional.relu(x), backend=fused_linear(inner), **how)(X)
        assert heard.pop() == how
    made = fusing._inner("inductor", options={"max_autotune": True})
    assert made.config == {"max_autotune": True}
