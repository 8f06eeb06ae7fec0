"""Sizes that torch does not know yet: of a graph until it runs, of an export, and of tensors that are a shape alone."""

import pytest
import torch
from torch.export import Dim, export

from blackwell_matmul import baddbmm, bmm, grouped_matmul, linear, matmul, scaled_mm

pytestmark = pytest.mark.slow


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).half()


X, W = randn(8, 32), randn(24, 32, seed=1)
ROWS = torch.arange(8) % 3 > 0
EVEN = torch.arange(8) % 2 > 0
ONE = torch.ones(())


def grouped(x, ids):
    """torch does not know how many groups `bincount` counts."""
    ends = torch.bincount(ids, minlength=3).cumsum(0).to(torch.int32)
    return grouped_matmul(x, W.reshape(3, 32, 8), ends, simulate=True)


def rowwise(x, rows):
    kept = x[rows]
    scales = kept.float().abs().amax(1, keepdim=True) + 1
    e4m3 = torch.float8_e4m3fn
    return scaled_mm(kept.to(e4m3), W.to(e4m3).T, scales, torch.ones(1, 24), simulate=True)


def halves(x, rows):
    return x[rows].view(-1, 4, 8), x[~rows].view(-1, 8, 4)


UNKNOWN = {
    "rows": (lambda x, rows: linear(x[rows], W, activation="gelu", residual=x[rows][:, :24], simulate=True), ROWS),
    "batches": (lambda x, rows: bmm(x[rows].view(-1, 4, 8), x[rows].view(-1, 8, 4), simulate=True), ROWS),
    "batches of batches": (lambda x, rows: matmul(x[rows].view(-1, 2, 2, 8), W[:8, :8], simulate=True), ROWS),
    "batches of both": (lambda x, rows: matmul(x[rows].view(-1, 4, 8), x[~rows].view(-1, 8, 4), simulate=True), EVEN),
    "two counts": (lambda x, rows: bmm(x[rows].view(-1, 4, 8), x[~rows].view(-1, 8, 4), simulate=True), EVEN),
    "a residual": (
        lambda x, rows: baddbmm(x[rows].view(-1, 4, 8)[..., :4], *halves(x, rows), simulate=True),
        EVEN,
    ),
    "rows of another": (lambda x, rows: linear(x[rows], W, residual=x[~rows][:, :24], simulate=True), EVEN),
    "one for all batches": (
        lambda x, rows: torch.ops.blackwell_matmul.matmul(
            x[rows].view(-1, 4, 8), x[:1, :16].view(1, 8, 2), simulate=True
        ),
        EVEN,
    ),
    "sums": (lambda x, rows: matmul(x[rows].T, x[~rows], simulate=True), EVEN),
    "columns": (lambda x, rows: linear(x.T[:, rows], x.T[:, ~rows], simulate=True), EVEN),
    "rowwise": (rowwise, ROWS),
    "groups": (grouped, torch.tensor([0] * 2 + [2] * 4)),
}


@pytest.mark.parametrize("operation", UNKNOWN)
def test_one_graph_of_sizes_that_follow_from_values(operation):
    function, which = UNKNOWN[operation]
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(X, which), function(X, which))
    if operation != "rowwise":
        x, y = X.clone().requires_grad_(), X.clone().requires_grad_()
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
            compiled(x, which).float().sum().backward()
        function(y, which).float().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=2e-2, atol=2e-2)


class Products(torch.nn.Module):
    def forward(self, x):
        y = linear(x, W, activation="silu", residual=x[..., :24], simulate=True)
        heads = y.unflatten(-1, (3, 8)).transpose(1, 2)
        return matmul(heads, heads.mT, simulate=True), baddbmm(ONE.half(), y, y.mT, simulate=True)


def test_an_export_keeps_batch_and_rows_open():
    exported = export(Products(), (randn(2, 6, 32),), dynamic_shapes=({0: Dim("b", max=64), 1: Dim("s", max=64)},))
    other = randn(3, 9, 32, seed=2)
    for found, expected in zip(exported.module()(other), Products()(other)):
        assert torch.equal(found, expected)


def test_a_trace_has_the_operations():
    traced = torch.jit.trace(lambda x: linear(x, W, simulate=True), (X[None],), check_trace=False)
    assert torch.equal(traced(2 * X[None]), linear(2 * X[None], W, simulate=True))


def test_tensors_without_memory_give_their_like():
    """As torch's operations of the device meta."""
    x, w = X.to("meta"), W.to("meta")
    assert linear(x, w, activation="swiglu").shape == (8, 12) and linear(x, w).is_meta
    ends = torch.empty(2, dtype=torch.int32, device="meta")
    assert grouped_matmul(x, torch.empty(2, 32, 8, dtype=x.dtype, device="meta"), ends).shape == (8, 8)
