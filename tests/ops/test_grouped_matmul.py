"""`grouped_matmul`: values and gradients beside torch's, what torch asks of an operation, and what is refused."""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from blackwell_matmul import InputError, UnsupportedError, bmm, copies, grouped_matmul
from blackwell_matmul.hardware import gpus
from blackwell_matmul.ops import grouped
from blackwell_matmul.ops.direct import bypasses_dispatch
from blackwell_matmul.runtime.recent import Recent

operation = torch.ops.blackwell_matmul.grouped_matmul.default
launch = torch.ops.blackwell_matmul.grouped_matmul_launch.default


def randn(*shape, dtype=torch.bfloat16, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


def by_group(x, w, offs):
    """As torch has it, one product after the other; rows of no group are zeros."""
    begins = [0, *offs.tolist()]
    groups = [slice(*each) for each in itertools.pairwise(begins)]
    if w.dim() == 2:
        return torch.stack([x[:, rows] @ w[rows] for rows in groups])
    rest = x.new_zeros(x.shape[0] - begins[-1], w.shape[2])
    return torch.cat([*(x[rows] @ w[group] for group, rows in enumerate(groups)), rest])


def assert_as_good(ours, torchs, exact):
    """At most twice torch's own error in the same types."""
    assert ours.shape == torchs.shape and ours.dtype == torchs.dtype
    error, allowed = ((x.double() - exact).abs().max() for x in (ours, torchs))
    assert error <= 2 * allowed, (error, allowed)


def assert_by_group(x, w, offs):
    ours = grouped_matmul(x, w, offs, simulate=True)
    assert ours.is_contiguous()
    assert_as_good(ours, by_group(x, w, offs), by_group(x.double(), w.double(), offs))


def nested():
    """Which imports half of torch, so not while tests are collected."""
    return torch.nested.nested_tensor([randn(16, 8)] * 4, layout=torch.jagged)


OFFS = ends(10, 10, 50, 55)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows", [False, True])
def test_both_orders_of_the_weights(dtype, rows):
    x, w = randn(60, 40, dtype=dtype), randn(4, 24, 40, dtype=dtype, seed=1).mT
    assert_by_group(x, w.contiguous() if rows else w, OFFS)


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no _grouped_mm")
def test_torchs_own_gives_the_same():
    x, w = randn(55, 40), randn(4, 40, 24, seed=1)
    ours, theirs = grouped_matmul(x, w, OFFS, simulate=True), torch._grouped_mm(x, w, offs=OFFS)
    assert_as_good(ours, theirs, by_group(x.double(), w.double(), OFFS))
    y = randn(55, 24, seed=2)
    ours, theirs = grouped_matmul(x.T, y, OFFS, simulate=True), torch._grouped_mm(x.T, y, offs=OFFS)
    assert_as_good(ours, theirs, by_group(x.T.double(), y.double(), OFFS))


@pytest.mark.slow
@pytest.mark.parametrize("m, n, k", [(33, 21, 37), (5, 1, 1), (70, 136, 8)])
def test_every_shape(m, n, k):
    offs = ends(2, m, m)
    assert_by_group(randn(m, k), randn(3, k, n, seed=1), offs)
    assert_by_group(randn(k, m), randn(m, n, seed=1), offs)


def test_columns_by_group():
    """As torch's fourth form; the last columns are of no group, and zeros."""
    x, w = randn(4, 24, 40), randn(60, 40, seed=1).T
    left, right = x.clone().requires_grad_(), w.clone().requires_grad_()
    ours = grouped_matmul(left, right, OFFS, simulate=True)
    assert ours.is_contiguous()
    assert_as_good(ours.mT, by_group(w.mT, x.mT, OFFS), by_group(w.mT.double(), x.mT.double(), OFFS))
    seed = randn(24, 60, seed=2)
    ours.backward(seed)
    assert_as_good(left.grad.mT, by_group(w, seed.mT, OFFS), by_group(w.double(), seed.mT.double(), OFFS))
    assert_as_good(right.grad.mT, by_group(seed.mT, x, OFFS), by_group(seed.mT.double(), x.double(), OFFS))
    assert copies(x, w, OFFS) == [] and len(copies(x, w.contiguous(), OFFS)) == 1
    with pytest.raises(
        InputError, match=r"\(4, 24, 40\), \(40, 60\) and \(3,\); they must be \(groups, m, k\), \(k, n\)"
    ):
        grouped_matmul(x, w, OFFS[:3], simulate=True)


def test_copies_are_told():
    x, w, y = randn(64, 40), randn(4, 24, 40, seed=1), randn(64, 24, seed=2)
    assert copies(x, w.mT, OFFS) == copies(x, w.mT.contiguous(), OFFS) == copies(x.T, y, OFFS) == []
    (columns,) = copies(x.T.contiguous().T, w.mT, OFFS)
    assert columns.startswith("a with shape (64, 40)") and "a group may begin at any of them" in columns
    assert copies(x.T.contiguous().T, w[:1].mT) == []  # for matmul it is nothing
    (told,) = copies(x.T, y.T.contiguous().T, OFFS)
    assert told.startswith("b with shape (64, 24)") and "(3072 bytes)" in told
    with pytest.raises(InputError, match="each group has one"):
        copies(x, w.mT, OFFS[:3])


@pytest.mark.slow
def test_slices_and_columns():
    """What TMA reads where it is, and what it does not."""
    x, w = randn(60, 80), randn(4, 40, 48, seed=1)
    for left in (x[:, 8:48], x.T.contiguous().T[:, :40], x[:, ::2], x[:, :1].expand(60, 40)):
        assert_by_group(left, w[..., 8:32], OFFS)
        assert_by_group(left.T, x[:, 40:64], OFFS)
    assert_by_group(x[:, :40], w[:1].expand(4, 40, 48), OFFS)


def test_what_is_read_as_it_is_is_not_copied(monkeypatch):
    seen = []
    monkeypatch.setattr(grouped, "_kernel", lambda *_: lambda *args: seen.append([x.data_ptr() for x in args[4:6]]))
    x, w, y = randn(60, 80), randn(4, 24, 40, seed=1), randn(60, 24, seed=2)
    grouped_matmul(x[:, 8:48], w.mT, OFFS, simulate=True)
    grouped_matmul(x[:, 8:48].T, y, OFFS, simulate=True)
    assert seen == [[x.data_ptr() + 16, w.data_ptr()], [x.data_ptr() + 16, y.data_ptr()]]


@pytest.mark.parametrize(
    "x, w, groups", [((0, 8), (2, 8, 8), 2), ((8, 0), (2, 0, 8), 2), ((8, 8), (2, 8, 0), 2), ((8, 8), (0, 8, 8), 0)]
)
def test_empty_tensors_give_zeros(x, w, groups):
    made = grouped_matmul(randn(*x), randn(*w), ends(*[x[0]] * groups), simulate=True)
    assert made.shape == (x[0], w[2]) and not made.any()
    sums = grouped_matmul(randn(x[1], x[0]), randn(x[0], w[2]), ends(*[x[0]] * groups), simulate=True)
    assert sums.shape == (groups, x[1], w[2])


def test_gradients_are_those_of_each_group():
    """Also of the rows of no group: they are zeros."""
    x, w, seed = randn(60, 40), randn(4, 40, 24, seed=1), randn(60, 24, seed=2)
    results = []
    for multiply in (lambda *args: grouped_matmul(*args, simulate=True), by_group):
        left, right = x.clone().requires_grad_(), w.clone().requires_grad_()
        multiply(left, right, OFFS).backward(seed)
        results.append((left.grad, right.grad))
    exact = by_group(seed.double(), w.double().mT, OFFS), by_group(x.double().T, seed.double(), OFFS)
    for ours, torchs, wanted in zip(*results, exact):
        assert_as_good(ours, torchs, wanted)
    assert not results[0][0][55:].any() and not results[0][1][1].any()


def test_gradients_of_sums():
    x, y, seed = randn(40, 60), randn(60, 24, seed=1), randn(4, 40, 24, seed=2)
    left, right = x.clone().requires_grad_(), y.clone().requires_grad_()
    grouped_matmul(left, right, OFFS, simulate=True).backward(seed)
    assert_as_good(left.grad.T, by_group(y, seed.mT, OFFS), by_group(y.double(), seed.double().mT, OFFS))
    assert_as_good(right.grad, by_group(x.T, seed, OFFS), by_group(x.T.double(), seed.double(), OFFS))


def test_ends_differ_between_calls_that_are_planned_alike():
    x, w = randn(60, 40), randn(4, 40, 24, seed=1)
    for offs in (OFFS, ends(0, 0, 60, 60), ends(1, 2, 3, 4)):
        assert_by_group(x, w, offs)
    with pytest.raises(InputError, match="the ends ascend from 0 to 60"):
        grouped_matmul(x, w, ends(10, 5, 20, 30), simulate=True)


def test_who_listens_to_torch_hears_it_and_nobody_else_pays_for_that():
    x, w, heard = randn(60, 40), randn(4, 40, 24, seed=1), []

    class Listener(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            heard.append(function)
            return function(*args, **kwargs or {})

    with Listener():
        made = grouped_matmul(x, w, OFFS, simulate=True)
    assert heard[0] is launch and torch.equal(made, grouped_matmul(x, w, OFFS, simulate=True))
    assert (
        bypasses_dispatch((x, w, OFFS))
        and not bypasses_dispatch((x, None, OFFS))
        and bypasses_dispatch((x, w), (None, OFFS))
    )


def test_a_reversed_sign_and_zeros_without_memory_are_seen():
    x, w = randn(60, 40), randn(4, 40, 24, seed=1)
    made = grouped_matmul(x, w, OFFS, simulate=True)
    assert torch.equal(grouped_matmul(torch._neg_view(x), w, OFFS, simulate=True), -made)
    assert not grouped_matmul(torch._efficientzerotensor((60, 40), dtype=x.dtype), w, OFFS, simulate=True).any()


def test_only_the_gradient_that_is_needed_is_computed(monkeypatch):
    monkeypatch.setattr(grouped, "_plans", Recent(16))
    x, w = randn(60, 40), randn(4, 40, 24, seed=1).requires_grad_()
    made, kernels = grouped_matmul(x, w, OFFS, simulate=True), []
    original = grouped._kernel
    monkeypatch.setattr(grouped, "_kernel", lambda *args: kernels.append(args[1]) or original(*args))
    made.sum().backward()
    assert x.grad is None and w.grad is not None and kernels == ["GroupedGradient"]


@pytest.mark.slow
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("shapes", [((20, 16), (4, 16, 8)), ((16, 20), (20, 8))])
def test_opcheck_passes(shapes, gradient):
    x, w = (randn(*shape, seed=i).requires_grad_(gradient) for i, shape in enumerate(shapes))
    results = torch.library.opcheck(operation, (x, w, ends(3, 3, 10, 18)), {"simulate": True})
    assert set(results.values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_takes_it_whole(dynamic):
    def experts(x, w, v, offs):
        hidden = torch.relu(grouped_matmul(x, w, offs, simulate=True))
        return grouped_matmul(hidden, v, offs, simulate=True) + 1

    compiled = torch.compile(experts, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    w, v = (randn(4, *shape, seed=1).requires_grad_() for shape in ((16, 24), (24, 16)))
    for m in (20, 40)[: 1 + dynamic]:
        x, offs = randn(m, 16).requires_grad_(), ends(3, 3, 10, 18)
        torch.testing.assert_close(compiled(x, w, v, offs), experts(x, w, v, offs))
    compiled(x, w, v, offs).sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({"mat_a": 3}, "mat_a is 3; it must be a tensor"),
        ({"mat_a": randn(20, 16).to_sparse()}, "mat_a has layout torch.sparse_coo; it must be a dense tensor"),
        ({"mat_b": nested}, "mat_b is nested; it must be a dense tensor"),
        ({"simulate": "yes"}, "simulate is 'yes'; it must be True or False"),
        (
            {"mat_a": randn(20, 16, 1)},
            r"mat_a, mat_b and offs have shapes \(20, 16, 1\), \(4, 16, 8\) and \(4,\); they must be",
        ),
        ({"offs": torch.tensor(3)}, r"they must be \(m, k\), \(groups, k, n\) and \(groups,\), or \(k, m\), \(m, n\)"),
        (
            {"mat_a": randn(20, 17)},
            r"mat_a has shape \(20, 17\) and mat_b \(4, 16, 8\); mat_a must have as many columns",
        ),
        ({"offs": ends(1, 2, 3)}, "mat_b has 4 groups and offs 3 ends; each group has one"),
        ({"offs": torch.tensor([1, 2, 3, 4])}, r"offs is torch.int64; it must be torch.int32, as offs.int\(\) is"),
        (
            {"mat_a": randn(20, 16).float()},
            r"mat_a is torch.float32; it must .* as mat_a.to\(torch.bfloat16\) is, also under torch.autocast",
        ),
        (
            {"mat_b": randn(4, 16, 8).half()},
            "mat_b is torch.float16 and mat_a is torch.bfloat16; mat_a, mat_b must share one type",
        ),
        (
            {"mat_b": randn(4, 16, 8).to("meta")},
            "mat_a is on cpu, mat_b on meta and offs on cpu; all must be on one device",
        ),
        ({"offs": None}, r"mat_a has shape \(20, 16\) and mat_b \(4, 16, 8\), without offs; both must have three"),
    ],
)
def test_what_does_not_fit_gets_one_sentence(new, reason):
    new = {name: value() if callable(value) else value for name, value in new.items()}
    given = {"mat_a": randn(20, 16), "mat_b": randn(4, 16, 8), "offs": ends(1, 2, 3, 4), "simulate": True, **new}
    with pytest.raises(InputError, match=reason) as caught:
        grouped_matmul(**given)
    assert str(caught.value).count(". ") == 0


def test_what_torchs_takes_besides():
    x, w = randn(4, 20, 16), randn(4, 16, 8, seed=1)
    assert torch.equal(grouped_matmul(mat_a=x, mat_b=w, simulate=True), bmm(x, w, simulate=True))
    rows = grouped_matmul(x[0], w, ends(5, 10, 15, 20), simulate=True)
    named = {"offs": ends(5, 10, 15, 20), "bias": None, "out_dtype": torch.bfloat16}
    assert torch.equal(grouped_matmul(x[0], w, **named, simulate=True), rows)
    for wrong, reason in (({"bias": w}, "bias is given"), ({"out_dtype": torch.float32}, "out_dtype is torch.float32")):
        with pytest.raises(UnsupportedError, match=reason):
            grouped_matmul(x[0], w, ends(5, 10, 15, 20), **wrong, simulate=True)


def test_cpu_tensors_are_simulated_only_when_asked():
    with pytest.raises(
        UnsupportedError, match="grouped_matmul got tensors on cpu; it runs CUDA tensors, and simulates"
    ):
        grouped_matmul(randn(20, 16), randn(4, 16, 8), ends(1, 2, 3, 4))


@pytest.mark.parametrize("gpu, kernel", [("B300", "BlackwellGroupedMatmul"), ("H200", "HopperGroupedMatmul")])
def test_the_kernel_is_the_gpus(gpu, kernel):
    assert grouped._kernel(gpus.GPUS[gpu], "GroupedMatmul").script_cls.__name__ == kernel


def test_a_gpu_without_a_kernel_is_named():
    with pytest.raises(UnsupportedError, match=r"no kernel for RTX 5090 \(sm_120a\) yet; it has some for sm_100a"):
        grouped._kernel(gpus.GPUS["RTX 5090"], "GroupedMatmul")


@pytest.mark.parametrize("ends", [[5, 4, 32], [-5, 6, 32], [5, 20, 40]])
def test_ends_that_do_not_ascend_in_the_rows_are_refused_where_they_are_known(ends):
    x, w = torch.zeros(32, 16).half(), torch.zeros(3, 16, 8).half()
    for operands in ((x, w), (x.T, torch.zeros(32, 8).half())):
        with pytest.raises(InputError, match=r"offs is \[.*\] for 32 rows; the ends ascend from 0 to 32 at most\."):
            grouped_matmul(*operands, torch.tensor(ends).int(), simulate=True)
