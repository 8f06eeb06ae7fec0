"""`linear`, `bmm`, `baddbmm`, `scaled_mm`: values beside torch's, gradients, torch.compile, and what is refused."""

import pytest
import torch
from torch.nn import functional

from blackwell_matmul import (
    InputError,
    UnsupportedError,
    baddbmm,
    bmm,
    copies,
    grouped_matmul,
    linear,
    matmul,
    scaled_mm,
)
from blackwell_matmul.ops.finished import ACTIVATED

HALVES = [torch.float16, torch.bfloat16]
M, N, K = 40, 48, 72
"""Sizes of a linear layer with tails everywhere. Tests that share them share their kernels."""
IN_TURN = [(activation, HALVES[place % 2]) for place, activation in enumerate(ACTIVATED)]


def randn(*shape, dtype=torch.float16, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_as_good(ours, torchs, exact):
    """At most twice torch's own error in the same types."""
    assert ours.shape == torchs.shape and ours.dtype == torchs.dtype
    error, allowed = ((x.double() - exact).abs().max() for x in (ours, torchs))
    assert error <= 2 * allowed + 1e-30, (error, allowed)


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "dtype"), IN_TURN)
def test_linear_is_torchs(activation, dtype):
    x, w, bias = randn(M, K, dtype=dtype), randn(N, K, dtype=dtype, seed=1), randn(N, dtype=dtype, seed=2)
    ours = linear(x, w, bias, activation, simulate=True)
    exact = ACTIVATED[activation](functional.linear(x.double(), w.double(), bias.double()))
    assert_as_good(ours, ACTIVATED[activation](functional.linear(x, w, bias)), exact)


@pytest.mark.slow
@pytest.mark.parametrize(("activation", "dtype"), IN_TURN)
def test_activations_of_what_is_no_number_or_very_large(activation, dtype):
    """As torch has them on a GPU. On a CPU its gelu of infinity is NaN."""
    ends = [torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.0, torch.finfo(dtype).max, torch.finfo(dtype).min]
    sums = torch.tensor([*ends, *reversed(ends), 1, 2, -1, 3, torch.inf, 2, -torch.inf, -1] * 2).to(dtype)
    x, w = torch.zeros(M, K, dtype=dtype), torch.zeros(N, K, dtype=dtype)
    z = sums.double()
    exact = z * torch.special.ndtr(z) if activation == "gelu" else ACTIVATED[activation](z)
    found = linear(x, w, sums, activation, simulate=True)
    torch.testing.assert_close(found, exact.to(dtype).expand_as(found), equal_nan=True, rtol=2**-7, atol=1e-7)


def test_linear_adds_a_residual_and_takes_any_leading_dimensions():
    x, w, kept = randn(2, 3, 5, 64), randn(24, 64, seed=1), randn(2, 3, 5, 24, seed=2)
    ours = linear(x, w, residual=kept, beta=0.5, simulate=True)
    assert_as_good(ours, x @ w.T + 0.5 * kept, x.double() @ w.double().T + 0.5 * kept.double())
    assert_as_good(linear(x[0, 0, 0], w, simulate=True), x[0, 0, 0] @ w.T, x[0, 0, 0].double() @ w.double().T)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1,), (1, N), (), (M, N), (M, 1)])
@pytest.mark.parametrize("activation", ["none", "gelu"])
def test_a_bias_is_broadcast_as_torchs_is(shape, activation):
    x, w, bias = randn(M, K), randn(N, K, seed=1), randn(*shape, 1, seed=2)[..., 0]
    ours, torchs = ([each.clone().requires_grad_() for each in (x, w, bias)] for _ in range(2))
    expected = ACTIVATED[activation](functional.linear(*torchs))
    for made in (linear(x, w, bias, activation, simulate=True), linear(*ours, activation, simulate=True)):
        torch.testing.assert_close(made, expected, rtol=2e-2, atol=2e-2)
    made.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours[2].grad, torchs[2].grad, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_names_are_torchs():
    x, w, bias, batch = randn(M, K), randn(N, K, seed=1), randn(N, seed=2), randn(1, K, N)
    kept = randn(N, seed=3)
    for ours, torchs, given in (
        (linear, functional.linear, {"input": x, "weight": w, "bias": bias}),
        (matmul, torch.matmul, {"input": x, "other": w.T}),
        (bmm, torch.bmm, {"input": x[None], "mat2": batch}),
        (baddbmm, torch.baddbmm, {"input": kept, "batch1": x[None], "batch2": batch, "beta": torch.tensor(0.5)}),
        (baddbmm, torch.baddbmm, {"input": kept, "batch1": x[None], "batch2": batch, "beta": True}),
    ):
        torch.testing.assert_close(ours(**given, simulate=True), torchs(**given), rtol=2e-2, atol=2e-2)


def test_scaled_mm_takes_what_torchs_takes():
    a, w, one = randn(16, 32).to(torch.float8_e4m3fn), randn(16, 32, seed=1).to(torch.float8_e4m3fn), torch.ones(())
    exact = scaled_mm(a, w.T, one, one, simulate=True)
    by_name = {"input": a, "mat2": w.T, "scale_a": one, "scale_b": one, "scale_result": None, "use_fast_accum": True}
    assert torch.equal(scaled_mm(**by_name, simulate=True), exact)  # a B200's sums are fp32's either way
    with pytest.raises(UnsupportedError, match="scale_result is given, and no result has 8 bits"):
        scaled_mm(a, w.T, one, one, None, one, simulate=True)


def test_swiglu_takes_a_residual_with_gradients_and_without():
    x, w, kept = randn(20, 64), randn(32, 64, seed=1), randn(20, 32, seed=2)
    alone = linear(x, w, activation="swiglu", residual=kept, simulate=True)
    torch.testing.assert_close(alone, ACTIVATED["swiglu"](x @ w.T + kept), rtol=2e-2, atol=2e-2)
    assert torch.equal(alone, linear(x, w, None, "swiglu", residual=kept.requires_grad_(), simulate=True))


def test_swiglu_of_an_odd_number_of_columns():
    """17 columns of C are no multiple of 16 bytes: written further apart, and copied."""
    x, w = randn(20, 64), randn(34, 64, seed=1)
    ours = linear(x, w, activation="swiglu", simulate=True)
    swiglu = ACTIVATED["swiglu"]
    assert ours.is_contiguous()
    assert_as_good(ours, swiglu(x @ w.T), swiglu(x.double() @ w.double().T))


@pytest.mark.slow
@pytest.mark.parametrize("a_rows, b_rows", [(False, False), (False, True), (True, False), (True, True)])
def test_bmm_reads_every_layout(a_rows, b_rows):
    a, b = randn(3, 40, 24), randn(3, 24, 16, seed=1)
    a = a.mT.contiguous().mT if a_rows else a
    b = b.mT.contiguous().mT if b_rows else b
    assert_as_good(bmm(a, b, simulate=True), torch.bmm(a, b), a.double() @ b.double())


def test_batches_broadcast_as_torchs_do():
    a, b = randn(2, 3, 16, 24), randn(3, 24, 8, seed=1)
    for left, right in ((a, b), (a, b[0]), (a[0, 0], b), (a[:, :1], b), (a[:, :, :, :8], b[:, :8])):
        exact = left.double() @ right.double()
        assert_as_good(matmul(left, right, simulate=True), left @ right, exact)


@pytest.mark.slow
@pytest.mark.parametrize("both", [False, True])
def test_what_is_expanded_over_batches_is_read_once(both):
    a, b = randn(1, 24, 16).expand(3, 24, 16), randn(1 if both else 3, 16, 8, seed=1).expand(3, 16, 8)
    assert copies(a, b) == []
    assert_as_good(bmm(a, b, simulate=True), torch.bmm(a, b), a.double() @ b.double())
    a, b = a[..., 1:], b[:, 1:]
    (said,) = copies(a, b)
    assert "(768 bytes)" in said
    assert_as_good(bmm(a, b, simulate=True), torch.bmm(a, b), a.double() @ b.double())


@pytest.mark.slow
@pytest.mark.parametrize(
    "a, b",
    [
        ((1, 5, 8), (1, 8, 6)),
        ((5, 8), (1, 8, 6)),
        ((1, 1, 5, 8), (8, 6)),
        ((5, 8), (1, 1, 8, 6)),
    ],
)
def test_one_batch_or_none_stays_a_dimension(a, b):
    a, b = randn(*a).requires_grad_(), randn(*b, seed=1).requires_grad_()
    assert_as_good(matmul(a, b, simulate=True), a @ b, a.double() @ b.double())
    matmul(a, b, simulate=True).sum().backward()
    assert a.grad.shape == a.shape and b.grad.shape == b.shape


def test_heads_of_a_fused_projection_are_read_in_place():
    """q and k of a qkv[batch, row, 3 * heads * 16], a head at a time."""
    qkv = randn(2, 24, 3 * 2 * 16)
    q, k = (part.unflatten(-1, (2, 16)).transpose(1, 2)[:, 0] for part in qkv.chunk(3, -1)[:2])
    assert_as_good(bmm(q, k.mT, simulate=True), q @ k.mT, q.double() @ k.double().mT)


def test_baddbmm_broadcasts_what_it_adds():
    kept, a, b = randn(1, 16), randn(2, 24, 32, seed=1), randn(2, 32, 16, seed=2)
    ours = baddbmm(kept, a, b, beta=0.5, alpha=2, simulate=True)
    exact = 0.5 * kept.double() + 2 * (a.double() @ b.double())
    assert_as_good(ours, torch.baddbmm(kept, a, b, beta=0.5, alpha=2), exact)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "rowwise"), [(torch.float8_e4m3fn, True), (torch.float8_e5m2, False)])
def test_scaled_mm_is_that_of_the_scaled_values(dtype, rowwise):
    a, w, bias = randn(40, 64).to(dtype), randn(48, 64, seed=1).to(dtype), randn(48, dtype=torch.bfloat16, seed=2)
    scale_a, scale_b = (torch.rand(shape) + 0.5 for shape in (((40, 1), (1, 48)) if rowwise else ((), ())))
    exact = a.double() @ w.double().T * scale_a.double() * scale_b.double() + bias.double()
    ours = scaled_mm(a, w.T, scale_a, scale_b, bias, simulate=True)
    assert_as_good(ours, exact.to(torch.bfloat16), exact)
    wide = scaled_mm(a, w.T, scale_a, scale_b, out_dtype=torch.float32, simulate=True)
    assert (wide.double() - (exact - bias.double())).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("types", "rowwise"),
    [((torch.float8_e4m3fn, torch.float8_e5m2), False), ((torch.float8_e5m2, torch.float8_e4m3fn), True)],
)
def test_scaled_mm_of_two_types(types, rowwise):
    """Every number of either type is one of bfloat16, also the smallest and the largest."""
    a, w = (torch.arange(256, dtype=torch.uint8).view(kind).view(4, 64) for kind in types)
    a, w = (torch.where(each.float().isfinite(), each.float(), 0).to(each.dtype) for each in (a, w))
    scale_a, scale_b = (torch.rand(shape) + 0.5 for shape in (((4, 1), (1, 4)) if rowwise else ((), ())))
    exact = a.double() @ w.double().T * scale_a.double() * scale_b.double()
    for right in (w.T, w.T.contiguous()):
        ours = scaled_mm(a, right, scale_a, scale_b, out_dtype=torch.float32, simulate=True)
        torch.testing.assert_close(ours.double(), exact, rtol=1e-6, atol=1e-6 * float(exact.abs().max()))
    said = copies(a, w.T)
    assert len(said) == 2 and "(512 bytes): the other one has another type of 8 bits" in said[0]
    with pytest.raises(InputError, match="both must be alike"):
        matmul(a.half(), w.T.bfloat16(), simulate=True)


@pytest.mark.parametrize("absent", [None, "x", torch.eye(4).to_sparse(), torch.nested.nested_tensor([torch.ones(2)])])
def test_what_is_no_dense_tensor_gets_one_sentence_also_without_gradients(absent):
    whole, one = torch.eye(4).half(), torch.ones(())
    offs = torch.tensor([4], dtype=torch.int32)
    for call, name in (
        (lambda: matmul(absent, whole), "input"),
        (lambda: linear(whole, absent), "weight"),
        (lambda: bmm(whole[None], absent), "mat2"),
        (lambda: baddbmm(absent, whole[None], whole[None]), "input"),
        (lambda: scaled_mm(whole.to(torch.float8_e5m2), whole.to(torch.float8_e5m2), one, absent), "scale_b"),
        (lambda: grouped_matmul(whole, absent, offs), "mat_b"),
    ):
        with torch.no_grad(), pytest.raises(InputError, match=f"^{name} .*; it must be a (dense )?tensor"):
            call()


def test_what_beta_leaves_out_may_be_anything():
    a, b, kept = randn(2, 24, 32), randn(2, 32, 16, seed=1), torch.full((2, 24, 16), torch.nan).half()
    for left, right in ((a, b), (a[..., :0], b[:, :0])):
        ours = baddbmm(kept, left, right, beta=0, alpha=2, simulate=True)
        assert_as_good(ours, torch.baddbmm(kept, left, right, beta=0, alpha=2), 2 * (left.double() @ right.double()))


@pytest.mark.slow
def test_nan_stays_nan():
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, -0.0, 2.0]).half()[:, None]
    for activation in ("none", "relu", "silu", "gelu_tanh"):
        ours = linear(x, torch.ones(8, 1).half(), activation=activation, simulate=True)
        torch.testing.assert_close(ours[:, :1], ACTIVATED[activation](x), equal_nan=True)


@pytest.mark.slow
@pytest.mark.parametrize("m, n", [(1, 48), (40, 1), (1, 1)])
def test_a_scale_for_each_column_of_one_row(m, n):
    """One scale alone does not say that there is one for the whole tensor."""
    a, w = randn(m, 64).to(torch.float8_e4m3fn), randn(n, 64, seed=1).to(torch.float8_e4m3fn)
    scale_a, scale_b = torch.rand(m, 1) + 0.5, torch.rand(1, n) + 0.5
    exact = a.double() @ w.double().T * scale_a.double() * scale_b.double()
    assert_as_good(scaled_mm(a, w.T, scale_a, scale_b, simulate=True), exact.to(torch.bfloat16), exact)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATED)
def test_gradients_of_linear_are_torchs(activation):
    x, w, bias, kept = randn(24, 32), randn(16, 32, seed=1), randn(16, seed=2), randn(24, 16, seed=3)
    kept = None if activation == "swiglu" else kept
    ours, torchs = ([None if t is None else t.clone().requires_grad_() for t in (x, w, bias, kept)] for _ in range(2))
    made = linear(*ours[:3], activation, residual=ours[3], beta=0.5, simulate=True)
    z = functional.linear(*torchs[:3]) + (0 if kept is None else 0.5 * torchs[3])
    seed = randn(*made.shape, seed=4)
    made.backward(seed)
    ACTIVATED[activation](z).backward(seed)
    for mine, theirs in zip(ours, torchs, strict=True):
        if mine is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["gelu", "swiglu"])
def test_the_operation_alone_has_the_same_gradients(activation):
    """Where the activation was applied in the kernel, what it was applied to is computed once more."""
    x, y = (randn(24, 32).requires_grad_() for _ in range(2))
    w, v = (randn(16, 32, seed=1).requires_grad_() for _ in range(2))
    made = torch.ops.blackwell_matmul.matmul(x, w.T, activation=activation, simulate=True)
    late = linear(y, v, activation=activation, simulate=True)
    torch.testing.assert_close(made, late, rtol=2e-2, atol=2e-2)
    made.sum().backward()
    late.sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(w.grad, v.grad, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_gradients_of_batches():
    shapes = [((2, 24, 32), (2, 32, 16)), ((24, 32), (2, 32, 16)), ((2, 24, 32), (32, 16))]
    for a_shape, b_shape in shapes:
        ours, torchs = ([randn(*a_shape).requires_grad_(), randn(*b_shape, seed=1).requires_grad_()] for _ in range(2))
        matmul(*ours, simulate=True).sum().backward()
        (torchs[0] @ torchs[1]).sum().backward()
        for mine, theirs in zip(ours, torchs, strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dim", [-2, -1])
def test_gradients_whose_rows_or_columns_are_all_the_same(dim):
    """A sum's gradient is expanded: its stride along that dimension is 0."""
    ours, torchs = ([randn(2, 24, 32).requires_grad_(), randn(2, 32, 16, seed=1).requires_grad_()] for _ in range(2))
    bmm(*ours, simulate=True).sum(dim).backward(seed := randn(2, 16 if dim == -2 else 24, seed=2))
    torch.bmm(*torchs).sum(dim).backward(seed)
    for mine, theirs in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-2, atol=2e-2)


def test_a_linear_layer_copies_nothing_either_way(monkeypatch):
    from blackwell_matmul.ops import launching, placing

    def copied(x):
        pytest.fail(f"copied {tuple(x.shape)} {x.stride()}")

    monkeypatch.setattr(placing, "k_major", copied)
    monkeypatch.setattr(launching, "with_zeros", copied)
    x, w = randn(40, 32).requires_grad_(), randn(16, 32, seed=1).requires_grad_()  # not planned by another test
    linear(x, w, simulate=True).backward(randn(40, 16, seed=2))
    assert x.grad is not None and w.grad is not None


@pytest.mark.slow
def test_torch_compile_takes_a_block_whole():
    def block(x, up, down, bias):
        return linear(linear(x, up, bias, "gelu", simulate=True), down, residual=x, simulate=True)

    args = [randn(24, 32), randn(64, 32, seed=1), randn(32, 64, seed=2), randn(64, seed=3)]
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*args), block(*args))
    wanted = [t.requires_grad_() for t in args]
    compiled(*wanted).sum().backward()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: torch.library.opcheck(
            torch.ops.blackwell_matmul.matmul.default, (a, b, randn(8)), {"simulate": True, "activation": "silu"}
        ),
        lambda a, b: torch.library.opcheck(
            torch.ops.blackwell_matmul.matmul.default, (a[None], b[None], None, randn(1, 16, 8)), {"simulate": True}
        ),
    ],
)
@pytest.mark.parametrize("gradient", [False, True])
def test_opcheck_passes_for_extras(call, gradient):
    results = call(randn(16, 16).requires_grad_(gradient), randn(16, 8, seed=1).requires_grad_(gradient))
    assert set(results.values()) == {"SUCCESS"}


def test_empty_ones_give_empty_ones():
    assert bmm(randn(0, 4, 8), randn(0, 8, 4), simulate=True).shape == (0, 4, 4)
    assert matmul(randn(2, 0, 4, 8), randn(1, 8, 4), simulate=True).shape == (2, 0, 4, 4)
    assert linear(randn(0, 8), randn(6, 8), activation="swiglu", simulate=True).shape == (0, 3)
    bias = randn(6)
    for shape in ((2, 0), (2, 3, 0), (0, 3, 0), (0,)):
        ours = linear(randn(*shape), randn(6, 0), bias, residual=torch.zeros(*shape[:-1], 6).half(), simulate=True)
        assert torch.equal(ours, bias.expand(*shape[:-1], 6))
    assert linear(randn(2, 3, 8), randn(0, 8), residual=randn(2, 3, 0), simulate=True).shape == (2, 3, 0)


X, W = randn(4, 8), randn(6, 8)


@pytest.mark.parametrize(
    "call, reason",
    [
        (
            lambda: linear(X, randn(6, 9)),
            r"input has shape \(4, 8\) and weight \(6, 9\); they must be \(.., k\) and \(n, k\) or \(k,\)",
        ),
        (lambda: linear(X, W[0], randn(4)), r"bias has shape \(4,\); it must be \(\) with a weight of one dimension"),
        (lambda: linear(X, W, randn(4)), r"bias has shape \(4,\); it must be \(6,\)"),
        (lambda: linear(X, W, randn(6).float()), "bias is torch.float32; it must be torch.float16"),
        (lambda: linear(X, W, activation="tanh"), "activation is 'tanh'; it must be one of none, relu, gelu"),
        (lambda: linear(X, randn(5, 8), activation="swiglu"), "n is 5; swiglu makes one column of two"),
        (lambda: linear(X, W, residual=randn(6)), r"residual has shape \(6,\)"),
        (
            lambda: linear(randn(2, 3, 8), W, residual=randn(6, 6)),
            r"residual has shape \(6, 6\); it must be \(2, 3, 6\)",
        ),
        (lambda: linear(randn(2, 3, 8), W, residual=randn(6)[0]), r"residual has shape \(\); it must be \(2, 3, 6\)"),
        (lambda: linear(X, W, residual=randn(4, 6), beta="x"), "beta is 'x'; it must be a number"),
        (lambda: bmm(X, W), r"bmm takes \(batch, m, k\) and \(batch, k, n\)"),
        (lambda: baddbmm(randn(7), X[None], W.T[None]), r"input has shape \(7,\); it must broadcast to \(1, 4, 6\)"),
        (
            lambda: scaled_mm(*(t[None].to(torch.float8_e5m2) for t in (X, W.T)), torch.ones(()), torch.ones(())),
            r"input has shape \(1, 4, 8\); it must be a matrix \(m, k\)",
        ),
        (lambda: scaled_mm(X.float(), W.T.float(), torch.ones(()), torch.ones(())), "input is torch.float32"),
        (
            lambda: scaled_mm(X, W.T, torch.ones(()), torch.ones(())),
            "input is torch.float16; it must be torch.float8_e4m3fn or torch.float8_e5m2; matmul takes it",
        ),
        (
            lambda: scaled_mm(*(t.to(torch.float8_e5m2) for t in (X, W.T)), torch.ones(3), torch.ones(6)),
            r"the scales have shapes \(3,\) and \(6,\); .* shape \(\), .* \(4, 1\) and \(1, 6\), also as \(4,\)",
        ),
        (
            lambda: scaled_mm(*(t.to(torch.float8_e5m2) for t in (X, X.T)), torch.ones(1, 4), torch.ones(4, 1)),
            r"the scales have shapes \(1, 4\) and \(4, 1\); .* \(4, 1\) and \(1, 4\)",
        ),
        (lambda: linear("x", W), "input is 'x'; it must be a tensor"),
        (lambda: linear(X.float(), W.float()), "input is torch.float32; it must be torch.float16 or torch.bfloat16"),
        (
            lambda: matmul(randn(2, 3, 4, 5), randn(2, 3, 6, 5)),
            r"input has shape \(2, 3, 4, 5\) and other \(2, 3, 6, 5\); input must have as many columns",
        ),
        (lambda: baddbmm(randn(7), X[None], X[None]), r"batch1 has shape \(1, 4, 8\) and batch2 \(1, 4, 8\); baddbmm"),
        (lambda: linear(X, W, randn(4, 6), residual=randn(4, 6)), r"bias has shape \(4, 6\); it must be \(6,\)\."),
        (lambda: linear(X, W, randn(4, 6).float()), "bias is torch.float32; it must be torch.float16"),
    ],
)
def test_what_is_no_product_gets_one_sentence(call, reason):
    with pytest.raises(InputError, match=reason) as caught:
        call()
    assert str(caught.value).count(". ") == 0


@pytest.mark.slow
@pytest.mark.parametrize("bias", [None, torch.tensor(0.5, dtype=torch.float16)])
@pytest.mark.parametrize("shape", [(8,), (4, 8), (2, 3, 8)])
def test_a_weight_without_columns_is_torchs(shape, bias):
    x, w = randn(*shape).requires_grad_(), randn(8).requires_grad_()
    exact = (x.double() @ w.double()) + (0 if bias is None else bias.double())
    made = linear(x, w, bias, simulate=True)
    torchs = torch.nn.functional.linear(x, w, None if bias is None or x.dim() == 2 else bias)
    assert made.shape == torchs.shape
    assert_as_good(made.detach(), exact.half().detach(), exact.detach())
    found, wanted = (torch.autograd.grad(each.sum(), (x, w)) for each in (made, exact))
    assert all(torch.allclose(one.float(), two.float(), rtol=1e-3) for one, two in zip(found, wanted))


@pytest.mark.parametrize("scale", [(), (1,), (1, 1), None])
def test_scales_of_every_shape_that_the_refusal_names_are_taken(scale):
    a, b = X.to(torch.float8_e5m2), W.T.to(torch.float8_e5m2)
    shapes = [(4,), (6,)] if scale is None else [scale, scale]
    rows, columns = (4, 1), (1, 6)
    scales = [torch.full(shape, 2.0) for shape in shapes]
    assert torch.equal(
        scaled_mm(a, b, *scales, simulate=True),
        scaled_mm(a, b, torch.full(rows, 2.0), torch.full(columns, 2.0), simulate=True),
    )


def test_cpu_tensors_are_simulated_when_asked_alone():
    one = torch.ones(())
    for call, name in (
        (lambda: linear(X, W), "linear"),
        (lambda: bmm(X[None], W.T[None]), "bmm"),
        (lambda: scaled_mm(X.to(torch.float8_e5m2), W.T.to(torch.float8_e5m2), one, one), "scaled_mm"),
    ):
        with pytest.raises(UnsupportedError, match=f"^{name} got tensors on cpu; it runs CUDA tensors, and simulates"):
            call()
