"""What torch hears of a product: the operation that is called, and the one below autograd, which graphs have."""

import re

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

from blackwell_matmul import bmm, grouped_matmul, linear, matmul
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.ops.two_levels import LAUNCH, TENSORS_ALONE

ops = torch.ops.blackwell_matmul


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


OFFS = torch.tensor([3, 16], dtype=torch.int32)
CALLS = {
    "matmul": (lambda x, w: linear(x, w, simulate=True), (8, 24)),
    "grouped_matmul": (lambda x, w: grouped_matmul(x, w, OFFS, simulate=True), (2, 24, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("trained", [False, True])
def test_a_graph_has_the_operation_below_autograd_alone(name, trained):
    call, shape = CALLS[name]
    graphs = []

    def kept(graph, _):
        graphs.extend(str(each.target) for each in graph.graph.nodes if "blackwell_matmul" in str(each.target))
        return make_boxed_func(graph.forward)

    x, w = randn(16, 24), randn(*shape, seed=1).requires_grad_(trained)
    made = torch.compile(call, backend=aot_autograd(fw_compiler=kept, bw_compiler=kept))(x, w)
    if trained:
        made.sum().backward()
        eager = w.detach().clone().requires_grad_()
        call(x, eager).sum().backward()
        assert torch.equal(w.grad, eager.grad)
    assert torch.equal(made, call(x, w))
    assert graphs == [f"blackwell_matmul.{name}{LAUNCH}.default"] * (2 if trained else 1)


@pytest.mark.parametrize("name", CALLS)
def test_torch_takes_both_operations(name):
    x, w = randn(16, 24), randn(24, 8, seed=1)
    given = (x, w) if name == "matmul" else (x, torch.stack((w, w)), OFFS)
    for each in (name, name + LAUNCH):
        found = torch.library.opcheck(getattr(ops, each).default, given, {"simulate": True})
        assert set(found.values()) == {"SUCCESS"}


def test_autograd_passes_the_lower_one_by():
    x, w = randn(16, 24).requires_grad_(), randn(24, 8, seed=1)
    assert ops.matmul(x, w, simulate=True).requires_grad
    assert not ops.matmul_launch(x, w, simulate=True).requires_grad


@pytest.mark.parametrize(
    ("call", "overload"),
    [
        (lambda x, w, bias: ops.matmul(x, w), TENSORS_ALONE),
        (lambda x, w, bias: ops.matmul(x, w, bias), "default"),
        (lambda x, w, bias: ops.matmul(x, w, activation="relu"), "default"),
    ],
)
def test_a_graph_without_options_has_the_overload_of_two_tensors(call, overload):
    graph = make_fx(call, tracing_mode="fake")(randn(16, 24), randn(24, 8), randn(8)).graph
    found = [str(each.target) for each in graph.nodes if "blackwell_matmul" in str(each.target)]
    assert found == [f"blackwell_matmul.matmul{LAUNCH}.{overload}"]


@pytest.mark.slow
@pytest.mark.process
def test_compiled_code_passes_no_argument_that_has_its_default():
    """With all arguments a call takes torch's dispatch twice as long. A cached code of another version is not read."""
    from torch._inductor import config, utils

    with config.patch(force_disable_caches=True, compile_threads=1):
        call = torch.compile(lambda x, w: linear(x, w, simulate=True))
        x, w = randn(16, 24), randn(8, 24, seed=1)
        made, (code,) = utils.run_and_get_code(call, x, w)
    assert torch.equal(made, linear(x, w, simulate=True))
    (arguments,) = re.findall(r"= torch\.ops\.blackwell_matmul\.matmul_launch\.default\((.*)\)", code)
    assert re.findall(r"(\w+)=", arguments) == ["simulate"]


@pytest.mark.slow
def test_torch_compile_checks_little_of_our_python_before_a_call():
    """Nothing of named tuples, of modules that may be imported, and of symbolic traces."""
    read = []

    def kept(entries):
        read.extend(each.orig_guard.name for each in entries)
        return [True] * len(entries)

    call = torch.compile(lambda x, w: linear(x, w, simulate=True), backend="eager", options={"guard_filter_fn": kept})
    call(randn(16, 24), randn(8, 24, seed=1))
    assert read and not [each for each in read if "_fields" in each or "sys.modules" in each or "fx.Proxy" in each]
    assert len({each for each in read if "blackwell_matmul" in each}) <= 12


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("whole", [False, True])
def test_a_compiled_call_that_does_not_fit_is_told_as_any_other(whole):
    """In torch's own error, where torch has the whole graph."""
    x, w = randn(16, 24), randn(8, 24, seed=1)
    for call in (
        lambda: linear(x, w.T, simulate=True),
        lambda: linear(x, w, None, "softmax", simulate=True),
        lambda: linear(x, w, simulate=1),
        lambda: matmul(x, w, simulate=True),
        lambda: bmm(x[None], w[None], simulate=True),
    ):
        with pytest.raises(InputError) as told:
            call()
        torch.compiler.reset()
        sentence = "" if whole else re.escape(str(told.value))
        with pytest.raises(torch._dynamo.exc.Unsupported if whole else InputError, match=sentence):
            torch.compile(call, backend="aot_eager", fullgraph=whole)()
