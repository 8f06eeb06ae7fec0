"""`blackwell_matmul.matmul`: what torch asks of an operation, layouts, gradients, and what is refused."""

import pytest
import torch

import blackwell_matmul
from blackwell_matmul import InputError, UnsupportedError
from blackwell_matmul.hardware import gpus
from blackwell_matmul.kernels import KERNELS, LADDERS, rung
from blackwell_matmul.ops import launching, library, placing
from blackwell_matmul.runtime.recent import Recent

matmul = blackwell_matmul.matmul


def matrix(rows, columns, dtype=torch.float16, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_product(c, a, b):
    """Within the rounding of c's type, of a product in float64."""
    expected = a.double() @ b.double()
    assert c.dtype == a.dtype and c.is_contiguous()
    error = (c.double() - expected).abs().max() / expected.abs().max()
    assert error <= torch.finfo(c.dtype).eps


def transposed(x):
    return x.T.contiguous().T


def unaligned(x):
    room = torch.zeros(x.numel() + 1, dtype=x.dtype)[1:]
    return room.copy_(x.flatten()).view(x.shape)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "a_layout, b_layout",
    [
        (lambda x: x, transposed),
        (lambda x: x, lambda x: x),
        (transposed, transposed),
        (unaligned, lambda x: unaligned(x.T).T),
        (lambda x: torch.cat([x, x], 1)[:, ::2][:, : x.shape[1]], lambda x: x.flip(0)),
    ],
)
def test_every_layout_gives_the_product(a_layout, b_layout, dtype):
    a, b = a_layout(matrix(40, 64, dtype)), b_layout(matrix(64, 72, dtype, seed=1))
    assert_product(matmul(a, b, simulate=True), a, b)


def test_what_the_epilogue_reads_may_begin_anywhere(monkeypatch):
    """It is copied then, as it loads several elements at a time."""
    read = []
    monkeypatch.setattr(launching.Launches, "__call__", lambda self, tensors, made: read.extend(tensors))
    x, w, bias, residual = matrix(24, 32), matrix(16, 32, seed=1), matrix(1, 16)[0], matrix(24, 16, seed=2)
    blackwell_matmul.linear(x, w, unaligned(bias), residual=unaligned(residual), simulate=True)
    _a, _b, _c, *extras = read
    assert [each.data_ptr() % 16 for each in extras] == [0, 0]
    assert torch.equal(extras[0], bias) and torch.equal(extras[1], residual)


@pytest.mark.slow
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (3, 5, 7), (130, 65, 33), (16, 8, 130)])
def test_every_shape_gives_the_product(m, n, k):
    a, b = matrix(m, k), matrix(k, n, seed=1)
    assert_product(matmul(a, b, simulate=True), a, b)


@pytest.mark.parametrize("m, n, k", [(0, 4, 4), (4, 0, 4), (4, 4, 0)])
def test_empty_matrices_give_zeros(m, n, k):
    c = matmul(matrix(m, k), matrix(k, n), simulate=True)
    assert c.shape == (m, n) and not c.any()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 64), (64, 1), (1, 1)])
def test_one_line_for_all_is_copied(shape):
    """As the gradient of a sum over rows is, where nothing else lies behind it."""
    x, y = matrix(*shape).expand(64, 64), matrix(64, 64, seed=1)
    assert_product(matmul(x, y, simulate=True), x, y)
    assert_product(matmul(y, x, simulate=True), y, x)
    assert len(placing.copies(x, y)) == 1
    weight = y.clone().requires_grad_()
    matmul(y, weight, simulate=True).sum(0).backward(matrix(1, 64)[0])
    assert_product(weight.grad, y.T, matrix(1, 64).expand(64, 64))


def test_copies_are_told():
    a, w = matrix(40, 64), matrix(72, 64)
    assert placing.copies(a, w.T) == placing.copies(a, w.T.contiguous()) == placing.copies(transposed(a), w.T) == []
    assert placing.copies(torch.cat([a, a], 1)[:, 8:72], w.T) == placing.copies(a[None].expand(3, 40, 64)[0], w.T) == []
    small, wide = a.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
    assert placing.copies(small, wide.T) == []
    assert "8 bits" in placing.copies(small, wide.T.contiguous())[0]
    odd = placing.copies(matrix(4, 7), matrix(8, 7).T)
    assert len(odd) == 2 and "(64 bytes): its lines are 14 bytes apart, which is no multiple of 16" in odd[0]
    assert odd[1].startswith("b with shape (7, 8) and strides (1, 7) is copied (128 bytes)")
    far = placing.copies(matrix(4, 100)[:, :99], matrix(8, 104)[:, :99].T)
    assert len(far) == 1 and f"({4 * 128 * 2} bytes)" in far[0]
    (shifted,) = placing.copies(unaligned(a), w.T)
    assert "does not start at a multiple of 16 bytes" in shifted
    (spread,) = placing.copies(torch.cat([a, a], 1)[:, ::2], w.T)
    assert "neither of its last two dimensions is contiguous (strides (128, 2))" in spread
    with pytest.raises(InputError, match="a is 'x'; it must be a tensor"):
        placing.copies("x", w)


def test_copies_of_several_dimensions_of_batches_are_told():
    """The heads of a projection lie at two distances: those of a row, and those of the next sequence."""
    heads = matrix(2 * 24, 64).view(2, 24, 4, 16).transpose(1, 2)
    assert placing.copies(heads[0], heads[0].mT) == placing.copies(heads.contiguous(), heads.contiguous().mT) == []
    first, second = placing.copies(heads, heads.mT)
    assert first.startswith("a with shape (2, 4, 24, 16)") and second.startswith("b with shape (2, 4, 16, 24)")
    assert "(6144 bytes): its batches do not lie at one distance from each other" in first
    assert placing.copies(matrix(48, 16).view(2, 24, 16), matrix(16, 8)) == []
    assert len(placing.copies(matrix(48, 16).view(2, 24, 16).transpose(0, 1), matrix(16, 8))) == 1
    with pytest.raises(InputError, match="their batches differ"):
        placing.copies(heads, heads[:, :3].mT)


@pytest.fixture
def unplanned(monkeypatch):
    """Nothing planned before, and nothing of this test afterwards."""
    monkeypatch.setattr(library, "_plans", Recent(16))


def test_what_is_read_as_it_is_is_not_copied(monkeypatch, unplanned):
    a, w = matrix(40, 64), matrix(72, 64)
    seen = []
    monkeypatch.setattr(
        launching,
        "_kernel",
        lambda name, *form: lambda m, n, k, a, b, c, *rest: seen.append((a.data_ptr(), b.data_ptr())),
    )
    matmul(a, w.T, simulate=True)
    qkv, rows = matrix(40, 192), matrix(64, 72)
    matmul(qkv[:, 64:128], rows, simulate=True)
    matmul(transposed(a), rows, simulate=True)
    assert seen[:2] == [(a.data_ptr(), w.data_ptr()), (qkv.data_ptr() + 128, rows.data_ptr())]
    assert seen[2][1] == rows.data_ptr()


def test_gradients_are_those_of_torch():
    a, b = matrix(24, 32).requires_grad_(), transposed(matrix(32, 16, seed=1)).requires_grad_()
    seed = matrix(24, 16, seed=2)
    matmul(a, b, simulate=True).backward(seed)
    assert_product(a.grad, seed, b.detach().T)
    assert_product(b.grad.contiguous(), a.detach().T, seed)


def test_a_reversed_sign_and_zeros_without_memory_are_seen():
    a, b = matrix(24, 32), matrix(32, 16, seed=1)
    assert torch.equal(matmul(torch._neg_view(a), b, simulate=True), -matmul(a, b, simulate=True))
    assert not matmul(torch._efficientzerotensor((24, 32), dtype=a.dtype), b, simulate=True).any()
    x, y = a.clone().requires_grad_(), a.clone().requires_grad_()
    seed = matrix(24, 16, seed=2)
    matmul(x, b, simulate=True).backward(torch._neg_view(seed))
    matmul(y, b, simulate=True).backward(seed)
    assert torch.equal(x.grad, -y.grad)


def in_forward_mode(multiply, a):
    with torch.autograd.forward_ad.dual_level():
        return multiply(torch.autograd.forward_ad.make_dual(a, a))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    "derive",
    [
        in_forward_mode,
        lambda multiply, a: torch.func.jvp(multiply, (a,), (a,)),
        lambda multiply, a: torch.func.grad(lambda x: multiply(x).sum())(a),
        lambda multiply, a: torch.func.grad(lambda x: torch.func.vmap(multiply)(x[None]).sum())(a),
        lambda multiply, a: torch.func.vmap(torch.func.grad(lambda x: multiply(x).sum()))(a[None]),
    ],
)
def test_derivatives_that_torch_would_leave_out_are_refused(derive):
    a, b, ends = matrix(24, 32), matrix(32, 16, seed=1), torch.tensor([24]).int()
    with pytest.raises(
        UnsupportedError, match=r"^matmul has no derivatives by torch\.func or in forward mode; \.backward"
    ):
        derive(lambda x: matmul(x, b, simulate=True), a)
    with pytest.raises(UnsupportedError, match="grouped_matmul has no derivatives"):
        derive(lambda x: blackwell_matmul.grouped_matmul(x, b[None], ends, simulate=True), a)


def tangent(multiply, a):
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.unpack_dual(multiply(torch.autograd.forward_ad.make_dual(a, a))).tangent


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "derive",
    [
        tangent,
        lambda multiply, a: torch.func.jvp(multiply, (a,), (a,)),
        lambda multiply, a: torch.func.jacfwd(multiply)(a),
        lambda multiply, a: torch.func.grad(lambda x: multiply(x).sum())(a),
        lambda multiply, a: torch.func.grad(lambda x: torch.func.vmap(multiply)(x[None]).sum())(a),
        lambda multiply, a: torch.func.vmap(torch.func.grad(lambda x: multiply(x).sum()))(a[None]),
    ],
)
def test_they_are_refused_in_what_is_compiled(derive, whole):
    """Where torch has the whole graph, in torch's own error."""
    a, b, ends = matrix(24, 32), matrix(32, 16, seed=1), torch.tensor([24]).int()
    for name, multiply in (
        ("bmm", lambda x: blackwell_matmul.bmm(x[None], b[None], simulate=True)),
        ("grouped_matmul", lambda x: blackwell_matmul.grouped_matmul(x, b[None], ends, simulate=True)),
    ):
        torch.compiler.reset()
        compiled = torch.compile(lambda x: derive(multiply, x), backend="aot_eager", fullgraph=whole)  # noqa: B023
        error = torch._dynamo.exc.Unsupported if whole else UnsupportedError
        with pytest.raises(error, match=f"{name} has no derivatives by torch.func or in forward mode"):
            compiled(a)


@pytest.mark.slow
def test_the_way_back_of_a_function_is_compiled_whole():
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w.T

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return matmul(grad, w, simulate=True), matmul(grad.T, x, simulate=True)

    x, w = matrix(24, 32).requires_grad_(), matrix(16, 32, seed=1).requires_grad_()
    torch.compiler.reset()
    torch.compile(lambda: Product.apply(x, w).sum(), backend="aot_eager", fullgraph=True)().backward()
    ones = torch.ones(24, 16).half()
    assert_product(x.grad, ones, w.detach())
    assert_product(w.grad, ones.T, x.detach())


def test_rows_of_a_jacobian_at_once():
    """By torch's older vmap, whose tensors have no memory of their own."""
    a, b = matrix(4, 8).requires_grad_(), matrix(8, 2, seed=1)
    found = torch.autograd.functional.jacobian(lambda a: matmul(a, b, simulate=True), a, vectorize=True)
    torch.testing.assert_close(found, torch.autograd.functional.jacobian(lambda a: a @ b, a))


def test_what_torch_func_does_not_follow_is_multiplied():
    a, b = matrix(24, 32), matrix(32, 16, seed=1)
    exact = matmul(a, b, simulate=True)
    seen = torch.func.grad(lambda x: (x * matmul(a, b, simulate=True)).sum())(torch.ones_like(exact))
    assert torch.equal(seen, exact)
    assert torch.equal(torch.func.vmap(lambda x: matmul(x, b, simulate=True))(a[None])[0], exact)


def test_only_the_gradient_that_is_needed_is_computed(monkeypatch, unplanned):
    a, b = matrix(24, 32), matrix(32, 16, seed=1).requires_grad_()
    product, kernels = matmul(a, b, simulate=True), []
    original = launching._kernel
    monkeypatch.setattr(launching, "_kernel", lambda name, *form: kernels.append(name) or original(name, *form))
    product.sum().backward()
    assert a.grad is None and b.grad is not None and len(kernels) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("n", "forms"), [(64, False), (65, True), (68, True), (72, False)])
def test_rows_of_c_that_tma_does_not_write_are_copied_out_of_longer_ones(monkeypatch, unplanned, n, forms):
    """Kernels without TMA need no copy, and take up to three times as long on an H200."""
    kernels, original = [], launching._kernel
    monkeypatch.setattr(launching, "_kernel", lambda name, *form: kernels.append(name) or original(name, *form))
    a, b = matrix(136, 64), matrix(n, 64, seed=1).T  # more rows than the product for few rows takes
    made = matmul(a, b, simulate=True)
    names = LADDERS["sm_100a"]
    wanted = next(name for name in names if "forms" in rung(name).features) if forms else names[0]
    assert kernels == [wanted] and made.is_contiguous()
    torch.testing.assert_close(made, a @ b)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
def test_opcheck_passes(gradient):
    a, b = matrix(16, 16).requires_grad_(gradient), matrix(16, 8, seed=1).requires_grad_(gradient)
    results = torch.library.opcheck(torch.ops.blackwell_matmul.matmul.default, (a, b), {"simulate": True})
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.parametrize("turned", [False, True])
def test_a_gradient_lies_in_memory_as_what_it_is_of(turned: bool) -> None:
    """Otherwise autograd copies it, as large as the weights are."""
    x, w = (each.T.contiguous().T if turned else each for each in (matrix(16, 32), matrix(24, 32, seed=1)))
    strides, leaves = {}, {"x": x.requires_grad_(), "w": w.requires_grad_()}
    for name, leaf in leaves.items():
        leaf.register_hook(lambda grad, name=name: strides.__setitem__(name, grad.stride()))
    seed = matrix(16, 24, seed=2)
    matmul(x, w.T, simulate=True).backward(seed)
    assert strides == {name: leaf.stride() for name, leaf in leaves.items()}
    torch.testing.assert_close(w.grad, seed.T @ x.detach())
    torch.testing.assert_close(x.grad, seed @ w.detach())


def test_torch_compile_takes_it_whole():
    def layer(x, w):
        return torch.relu(matmul(x, w.T, simulate=True) + 1)

    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x, w = matrix(16, 32).requires_grad_(), matrix(24, 32, seed=1).requires_grad_()
    out = compiled(x, w)
    torch.testing.assert_close(out, layer(x, w))
    out.sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape


def test_torch_compile_takes_a_dynamic_m():
    compiled = torch.compile(
        lambda x, w: matmul(x, w.T, simulate=True), backend="aot_eager", fullgraph=True, dynamic=True
    )
    w = matrix(24, 32, seed=1)
    for m in (16, 40):
        x = matrix(m, 32)
        assert_product(compiled(x, w), x, w.T)


def test_cpu_tensors_are_simulated_only_when_asked():
    with pytest.raises(UnsupportedError) as caught:
        matmul(matrix(4, 4), matrix(4, 4))
    assert (
        str(caught.value)
        == "matmul got tensors on cpu; it runs CUDA tensors, and simulates CPU tensors with simulate=True."
    )


@pytest.mark.parametrize(
    "a, b, reason",
    [
        (
            matrix(4, 4),
            matrix(5, 4),
            r"input has shape \(4, 4\) and other \(5, 4\); input must have as many columns as other",
        ),
        (
            matrix(4, 4)[0, 0],
            matrix(4, 4),
            r"input has shape \(\) and other \(4, 4\); both must have one dimension or more",
        ),
        (
            matrix(4, 4)[0],
            matrix(5, 4),
            r"input has shape \(4,\) and other \(5, 4\); input must have as many columns as other",
        ),
        (matrix(4, 4).expand(2, 4, 4), matrix(4, 4).expand(3, 4, 4), "their batches differ"),
        (
            matrix(4, 4).float(),
            matrix(4, 4).float(),
            "input is torch.float32; it must be torch.float16 or torch.bfloat16",
        ),
        (matrix(4, 4).to(torch.float8_e5m2), matrix(4, 4).to(torch.float8_e5m2), "scaled_mm takes it"),
        (matrix(4, 4), matrix(4, 4).bfloat16(), "input is torch.float16 on cpu and other is torch.bfloat16"),
        (matrix(4, 4), matrix(4, 4).to("meta"), "both must be alike"),
        (3, matrix(4, 4), "input is 3; it must be a tensor"),
    ],
)
def test_what_does_not_fit_gets_one_sentence(a, b, reason):
    with pytest.raises(InputError, match=reason) as caught:
        matmul(a, b, simulate=True)
    assert str(caught.value).count(". ") == 0


def test_a_gpu_without_rungs_is_named(monkeypatch):
    monkeypatch.setattr(launching, "LADDERS", {"sm_100a": LADDERS["sm_100a"]})
    with pytest.raises(UnsupportedError, match=r"no kernel for B300 \(sm_103a\) yet; it has some for sm_100a"):
        launching.best_rung(gpus.GPUS["B300"], 64, 64, 64, torch.float16)


@pytest.mark.parametrize(
    "m, n, rung", [(136, 64, LADDERS["sm_100a"][0]), (136, 65, LADDERS["sm_100a"][0]), (128, 64, "few")]
)
def test_the_best_rung_that_takes_the_shape_is_used(m, n, rung):
    assert launching.best_rung(gpus.GPUS["B200"], m, n, 64, torch.float16) == rung


def test_every_ladder_names_rungs_of_known_targets():
    for arch, rungs in LADDERS.items():
        assert gpus.gpu_for_target(arch) and rungs and set(rungs) <= set(KERNELS)


def large(*shape):
    """Without memory for each element."""
    return torch.zeros(1, dtype=torch.float16).expand(shape)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: matmul(large(2**31, 8), large(8, 8), simulate=True),
            "the result has 2147483648 rows, and matmul counts up to 2147483392 in 32 bits; multiply parts of it.",
        ),
        (
            lambda: matmul(large(8, 8), large(8, 2**31), simulate=True),
            "the result has 2147483648 columns, and matmul counts up to 2147483392 in 32 bits; multiply parts of it.",
        ),
        (
            lambda: blackwell_matmul.linear(large(8, 2**31), large(8, 2**31), simulate=True),
            "input has 2147483648 columns, and linear counts up to 2147483392 in 32 bits; multiply parts of it.",
        ),
        (
            lambda: blackwell_matmul.linear(
                large(2**16, 8), large(2**16, 8), residual=large(2**16, 2**16), simulate=True
            ),
            "residual has 4294967296 elements, and linear counts up to 2147483647 of it in 32 bits; multiply parts of "
            "it, or add it to the result.",
        ),
    ],
)
def test_what_kernels_cannot_count_is_refused_in_the_callers_words(call, sentence):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == sentence


def test_of_linear_no_bias_and_no_activation_are_none():
    x, w = matrix(8, 32), matrix(16, 32, seed=1)
    expected = blackwell_matmul.linear(x, w, simulate=True)
    assert torch.equal(blackwell_matmul.linear(x, w, None, simulate=True), expected)
    assert torch.equal(blackwell_matmul.linear(x, w, None, None, simulate=True), expected)


class Model(torch.nn.Module):
    def forward(self, x, w):
        y = blackwell_matmul.linear(x, w, activation="relu", residual=x[:, :16], simulate=True)
        return matmul(blackwell_matmul.bmm(y[None], y.mT[None], simulate=True), y, simulate=True)


def test_a_symbolic_trace_records_the_calls():
    x, w = matrix(24, 32), matrix(16, 32, seed=1)
    traced = torch.fx.symbolic_trace(Model())
    assert blackwell_matmul.linear in {node.target for node in traced.graph.nodes}
    assert torch.equal(traced(x, w), Model()(x, w))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_who_counts_operations_counts_these():
    from torch.utils.flop_counter import FlopCounterMode

    x, w = matrix(24, 32).requires_grad_(), matrix(16, 32, seed=1).requires_grad_()
    experts, ends = torch.stack([w.detach().T] * 2).requires_grad_(), torch.tensor([8, 24]).int()
    for multiply in (
        lambda: blackwell_matmul.linear(x, w, simulate=True),
        lambda: blackwell_matmul.grouped_matmul(x, experts, ends, simulate=True),
    ):
        with FlopCounterMode(display=False) as counter:
            made = multiply()
            assert counter.get_total_flops() == 2 * 24 * 16 * 32
            made.sum().backward()
        assert counter.get_total_flops() == 3 * 2 * 24 * 16 * 32


def test_an_operation_whose_file_nobody_has_imported_counts_nothing(monkeypatch):
    from torch.utils.flop_counter import FlopCounterMode

    from blackwell_matmul.ops import counting

    monkeypatch.setattr(counting, "FORMULAS", {"of_another_file": counting.of_groups, **counting.FORMULAS})
    x = matrix(24, 24)
    with FlopCounterMode(display=False) as counter:
        matmul(x, x, simulate=True)
    assert counter.get_total_flops() == 2 * 24**3


def test_a_profile_shows_the_operation():
    x = matrix(24, 24)
    with torch.profiler.profile(record_shapes=True) as profile:
        matmul(x, x, simulate=True)
    (found,) = [each for each in profile.events() if each.name == "blackwell_matmul::matmul"]
    assert found.input_shapes[:2] == [[24, 24], [24, 24]]


def test_kernels_of_many_factors_are_forgotten():
    assert launching._form.cache_info().maxsize == launching._kernel.cache_info().maxsize == launching.KEPT_KERNELS
