"""Products with gradients, called eagerly: they go by autograd alone, and have gradients of gradients."""

import pytest
import torch
from torch.nn import functional

from blackwell_matmul import InputError, grouped_matmul, linear, matmul
from blackwell_matmul.ops.gradients import RowsTimesMatrix
from blackwell_matmul.ops.grouped import ProductOfGroups


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def assert_as_good(ours, torchs, exact):
    """At most twice torch's own error in the same types."""
    assert ours.shape == torchs.shape and ours.dtype == torchs.dtype
    error, allowed = ((x.double() - exact).abs().max() for x in (ours, torchs))
    assert error <= 2 * allowed, (error, allowed)


def leaves(dtype):
    shapes = ((24, 40), (32, 40), (32,), (24, 32))
    return [randn(*shape, seed=i).to(dtype).requires_grad_() for i, shape in enumerate(shapes)]


def ours(x, w, bias, kept):
    return linear(x, w, bias, residual=kept, beta=0.5, simulate=True)


def torchs(x, w, bias, kept):
    return functional.linear(x, w, bias) + 0.5 * kept


@pytest.mark.slow
def test_gradients_of_gradients_are_torchs():
    def second(multiply, dtype):
        given = leaves(dtype)
        (first,) = torch.autograd.grad(multiply(*given).pow(2).sum(), given[0], create_graph=True)
        return [first, *torch.autograd.grad(first.pow(2).sum(), given)]

    for each in zip(second(ours, torch.bfloat16), second(torchs, torch.bfloat16), second(torchs, torch.float64)):
        assert_as_good(*each)


def test_autograd_alone_hears_of_it_and_keeps_what_it_needs():
    given, kept = leaves(torch.bfloat16), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        made = ours(*given)
    assert isinstance(made.grad_fn, RowsTimesMatrix._backward_cls)
    assert [tuple(each.shape) for each in kept] == [(24, 40), (32, 40)]
    w = torch.stack([given[1].detach()] * 2).mT.requires_grad_()
    grouped = grouped_matmul(given[0], w, torch.tensor([8, 24], dtype=torch.int32), simulate=True)
    assert isinstance(grouped.grad_fn, ProductOfGroups._backward_cls)
    grouped.sum().backward()
    assert w.grad.shape == w.shape and given[0].grad.shape == (24, 40)


def test_only_what_needs_a_gradient_gets_one():
    x, w, bias, kept = (each.detach() for each in leaves(torch.bfloat16))
    for needing in (x, w, bias, kept):
        needing.requires_grad_()
        ours(x, w, bias, kept).sum().backward()
        assert needing.grad is not None and sum(each.grad is not None for each in (x, w, bias, kept)) == 1
        needing.requires_grad_(False).grad = None


def test_what_was_changed_since_is_refused_by_torch():
    x, w = (each for each in leaves(torch.bfloat16)[:2])
    made = matmul(x, w.T, simulate=True)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()
    with pytest.raises(InputError, match="input must have as many columns as other has rows"):
        matmul(x, w, simulate=True)
