"""Products with gradients, called eagerly: they go by autograd alone, and have gradients of gradients."""

import weakref

import pytest
import torch
from torch.nn import functional

from blackwell_matmul import InputError, baddbmm, bmm, grouped_matmul, linear, matmul
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
    x, ends = given[0].detach(), torch.tensor([8, 24], dtype=torch.int32)
    operands, multiply = {"x": x, "w": w, "offs": ends}, lambda *given: grouped_matmul(*given, simulate=True)
    assert kept_of(multiply, operands)[0] == {"x", "offs"}
    operands = {"x": x.requires_grad_(), "w": w.detach(), "offs": ends}
    assert kept_of(multiply, operands)[0] == {"w", "offs"}


def kept_of(made_by, operands):
    """Return the names of the operands whose memory is kept for a backward pass, and the result."""
    kept = set()
    names = {each.untyped_storage().data_ptr(): name for name, each in operands.items()}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.add(t.untyped_storage().data_ptr()) or t, lambda t: t):
        made = made_by(*operands.values())
    return {names[each] for each in kept if each in names}, made


OPERATIONS = {
    "matmul": (lambda x, w: matmul(x, w, simulate=True), torch.matmul, ((24, 40), (40, 32))),
    "matmul of 3-D": (lambda x, w: matmul(x, w, simulate=True), torch.matmul, ((2, 24, 40), (40, 32))),
    "bmm": (lambda x, w: bmm(x, w, simulate=True), torch.bmm, ((2, 24, 40), (2, 40, 32))),
    "baddbmm": (
        lambda x, w, kept: baddbmm(kept, x, w, simulate=True),
        lambda x, w, kept: torch.baddbmm(kept, x, w),
        ((2, 24, 40), (2, 40, 32), (32,)),
    ),
    "linear": (lambda *given: linear(*given, simulate=True), functional.linear, ((24, 40), (32, 40), (32,))),
    "linear of 3-D": (lambda *given: linear(*given, simulate=True), functional.linear, ((2, 24, 40), (32, 40), (32,))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_kept_and_what_gets_a_gradient_are_torchs(name):
    """A layer with a frozen weight keeps no input, as that is read for the weight's gradient alone."""
    ours, torchs, shapes = OPERATIONS[name]
    for frozen in [set(), {0}, {1}, {0, 1}][: len(shapes) + 1]:
        found = []
        for multiply in (ours, torchs):
            operands = [randn(*shape, seed=i).requires_grad_(i not in frozen) for i, shape in enumerate(shapes)]
            kept, made = kept_of(multiply, dict(zip("xwb", operands)))
            made.sum().backward()
            found.append((kept, [each.grad for each in operands]))
        (kept, mine), (expected, theirs) = found
        assert kept == expected == {name for place, name in enumerate("wx") if place not in frozen}
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("frozen", [False, True])
def test_an_input_ends_with_its_last_reader(frozen):
    x, w = randn(24, 40).requires_grad_() * 1, randn(32, 40, seed=1).requires_grad_(not frozen)
    made, alive = linear(x, w, simulate=True), weakref.ref(x)
    del x
    assert made.requires_grad and (alive() is None) is frozen


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
