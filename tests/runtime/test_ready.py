"""Calls of known kinds, against the driver that records: one is checked and packed, the next ones are launched at their
own addresses; and no other kind of call takes its launch."""

import contextlib
import threading

import pytest
import torch
from fake_gpu import OnGpu

from blackwell_matmul import bmm, linear, matmul, scaled_mm
from blackwell_matmul.ops import direct, ready
from blackwell_matmul.ops.gradients import GRADIENTS
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.launches import Launches
from blackwell_matmul.runtime.recent import Recent

pytestmark = pytest.mark.process

BF16 = torch.bfloat16


@pytest.fixture
def kinds(gpu, monkeypatch):
    """The calls whose kind is known, none at first; tensors that claim to be on the GPU are plain ones."""
    known = Recent(64)
    monkeypatch.setattr(ready, "_ready", known)
    for module in (ready, direct):
        monkeypatch.setattr(module, "PLAIN_TYPES", {*direct.PLAIN_TYPES, OnGpu})
    monkeypatch.setattr(torch_cuda, "_fast_empty", torch._C._dynamo.guards._empty_strided_cpu)
    return known


def zeros(*shape, dtype=BF16):
    return OnGpu.of(torch.zeros(shape, dtype=dtype))


def addresses(gpu):
    """Of each launch: the pointers among its arguments, and the tensors of its maps, in the driver's order."""
    found = []
    for record in gpu.calls("cuLaunchKernelEx"):
        words = [value for name, value in record.items() if name.startswith("p") and name[1:].isdigit()]
        raw = [bytes.fromhex(each.partition(":")[2] or each) for each in words]
        found.append([int.from_bytes(each, "little") for each in raw if len(each) == 8])
    return found


def told_arguments(gpu, known):
    """Have the driver record the arguments of the known kind."""
    (found,) = known._entries.values()
    plan = found._launches._code[0].bundle.plan
    sizes = {"tensor_map": 128, "workspace": 8}
    wide = {"pointer": 8, "int64": 8}
    gpu.parameters(*(sizes.get(each.kind) or wide.get(each.type, 4) for each in plan.arguments))
    gpu.clear()
    return [each.pointer for each in plan.tensor_maps]


@pytest.mark.slow
def test_known_calls_are_launched_at_their_own_addresses(gpu, kinds):
    """Where the same tensor is both operands at first, too."""
    x, bias = zeros(64, 64), zeros(64)
    linear(x, x, bias, "relu")
    maps = told_arguments(gpu, kinds)
    given = [(zeros(64, 64), zeros(64, 64), zeros(64)) for _ in range(3)]
    made = [linear(*each, "relu") for each in (*given, given[0])]
    assert len(kinds) == 1 and not gpu.calls("cuTensorMapEncodeTiled")
    for found, tensors, c in zip(addresses(gpu), (*given, given[0]), made, strict=True):
        a, b, of_bias, of_c = (each.data_ptr() for each in (*tensors, c))
        by_name = {"a_ptr": a, "b_ptr": b, "c_ptr": of_c}
        assert [each for each in found if each] == [a, b, of_c, of_bias, *(by_name[name] for name in maps)]


CALLS = {
    "matmul": lambda: matmul(zeros(64, 64), zeros(64, 64)),
    "w.T": lambda: matmul(zeros(64, 64), zeros(64, 64).T),
    "fp16": lambda: matmul(zeros(64, 64, dtype=torch.float16), zeros(64, 64, dtype=torch.float16)),
    "rows": lambda: matmul(zeros(72, 64), zeros(64, 64)),
    "a slice": lambda: matmul(zeros(64, 128)[:, :64], zeros(64, 64)),
    "3-D": lambda: matmul(zeros(2, 32, 64), zeros(64, 64)),
    "linear": lambda: linear(zeros(64, 64), zeros(64, 64)),
    "bias": lambda: linear(zeros(64, 64), zeros(64, 64), zeros(64)),
    "residual": lambda: linear(zeros(64, 64), zeros(64, 64), residual=zeros(64, 64)),
    "beta": lambda: linear(zeros(64, 64), zeros(64, 64), residual=zeros(64, 64), beta=0.5),
    "silu": lambda: linear(zeros(64, 64), zeros(64, 64), None, "silu"),
    "swiglu of 3-D": lambda: linear(zeros(2, 32, 64), zeros(64, 64), None, "swiglu"),
    "bmm": lambda: bmm(zeros(2, 64, 64), zeros(2, 64, 64)),
    "fp8": lambda: scaled_mm(
        *(zeros(64, 64, dtype=torch.float8_e4m3fn), zeros(64, 64, dtype=torch.float8_e4m3fn).T),
        *(zeros(1, dtype=torch.float32), zeros(1, dtype=torch.float32)),
    ),
}


@pytest.mark.slow
def test_each_kind_has_a_launch_of_its_own(gpu, kinds):
    first = {name: call() for name, call in CALLS.items()}
    assert len(kinds) == len(CALLS)
    launches = {id(each._launches) for each in kinds._entries.values()}
    assert len(launches) == len(CALLS) - 2  # of 3-D, and of linear, matmul is the same product
    gpu.clear()
    for name, call in CALLS.items():
        again = call()
        assert again.shape == first[name].shape and again.dtype == first[name].dtype and again.is_contiguous()
    assert len(kinds) == len(CALLS) and not gpu.calls("cuTensorMapEncodeTiled")
    assert len(gpu.calls("cuLaunchKernelEx")) == len(CALLS)


@pytest.mark.slow
def test_streams_and_copies_and_misaligned_tensors(gpu, kinds, monkeypatch):
    x, w = zeros(64, 64), zeros(64, 64)
    matmul(x, w)
    monkeypatch.setattr(torch_cuda, "_raw_stream", lambda: lambda device: 0x77)
    gpu.clear()
    for _ in range(2):
        matmul(x, w)
    assert [int(each["stream"], 16) for each in gpu.calls("cuLaunchKernelEx")] == [0x77] * 2 and len(kinds) == 1
    matmul(x, zeros(64, 128)[:, ::2])  # copied by torch
    matmul(x, OnGpu.of(w.as_subclass(torch.Tensor)))
    assert len(kinds) == 1
    unaligned = zeros(64 * 64 + 1)[1:].view(64, 64)  # copied by a kernel
    gpu.clear()
    for _ in range(3):
        matmul(x, unaligned)
    assert len(gpu.calls("cuLaunchKernelEx")) == 6 and len(kinds) == 2


@pytest.mark.slow
def test_two_operands_with_odd_rows_are_copied_by_one_launch(gpu, kinds):
    """C has odd rows, too, and the product stores them."""
    x, w = zeros(64, 63), zeros(65, 63)
    made = [matmul(x, w.T) for _ in range(3)]
    assert len(gpu.calls("cuLaunchKernelEx")) == 6 and len(kinds) == 1
    assert all(each.shape == (64, 65) and each.is_contiguous() for each in made)


@pytest.mark.slow
def test_threads_launch_at_their_own_addresses(gpu, kinds):
    matmul(zeros(64, 64), zeros(64, 64))
    told_arguments(gpu, kinds)
    seen, go = [], threading.Barrier(4)

    def work():
        x, w = zeros(64, 64), zeros(64, 64)
        go.wait()
        for _ in range(20):
            seen.append({x.data_ptr(), w.data_ptr(), matmul(x, w).data_ptr()})

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    launched = [set(each) - {0} for each in addresses(gpu)]
    assert len(launched) == len(seen) == 80
    assert sorted(map(sorted, launched)) == sorted(map(sorted, seen))


@pytest.mark.slow
def test_gradients_want_no_launch_of_their_own(gpu, kinds):
    """The product in a forward pass is of the same kind as without gradients."""
    linear(zeros(64, 64), zeros(64, 64))
    gpu.clear()
    x, w = zeros(64, 64).requires_grad_(), zeros(64, 64).requires_grad_()
    made = linear(x, w)
    assert made.requires_grad and len(kinds) == 1 and len(gpu.calls("cuLaunchKernelEx")) == 1
    with torch.no_grad():
        assert not linear(x, w).requires_grad
    assert len(kinds) == 1 and not gpu.calls("cuTensorMapEncodeTiled")


def backward(made, dz):
    """Take a result back, of a type whose backward pass leaves its operands' type alone."""
    with torch._C.DisableTorchFunctionSubclass():
        plain = made.as_subclass(torch.Tensor)
    torch.autograd.backward(plain, dz)


TRAINED = {
    "linear": (linear, lambda: (zeros(32, 64), zeros(64, 64))),
    "3-D, bias": (linear, lambda: (zeros(2, 16, 64), zeros(64, 64), zeros(64))),
    "turned operands": (linear, lambda: (zeros(64, 32).T, zeros(64, 64).T)),
    "w.T": (matmul, lambda: (zeros(32, 64), zeros(64, 64).T)),
    "batches": (bmm, lambda: (zeros(2, 32, 64), zeros(2, 64, 64).mT)),
    "batches of batches": (matmul, lambda: (zeros(2, 2, 64, 32).mT, zeros(2, 2, 64, 64))),
    "square": (matmul, lambda: (zeros(64, 64), zeros(64, 64))),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_backward_pass_is_launched_at_its_own_addresses(gpu, kinds, monkeypatch, name):
    """The kernels, operands and layouts of later passes are those of the first, also of one tensor in both places, and
    of a frozen operand."""
    operation, operands = TRAINED[name]
    launched, at = [], Launches.at

    def recorded(launches, addresses):
        launched.append((launches, addresses[:2]))
        return at(launches, addresses)

    def passed(*tensors, frozen=None):
        """Return each launch with its operands' places, and the gradients' layouts."""
        for place, each in enumerate(tensors):
            each.requires_grad_(place != frozen).grad = None
        launched.clear()
        made = operation(*tensors)
        dz = zeros(*made.shape)
        backward(made, dz)
        places = {each.data_ptr(): place for place, each in enumerate((dz, *tensors))}
        return [(launches, *map(places.get, read)) for launches, read in launched], [
            (each.grad.shape, each.grad.stride()) for each in tensors if each.requires_grad
        ]

    monkeypatch.setattr(Launches, "at", recorded)
    if name == "square":
        passed(*[zeros(64, 64)] * 2)
    all_frozen = [None, 0, 1]
    first, count = [passed(*operands(), frozen=each) for each in all_frozen], len(kinds)
    gpu.clear()
    for _ in range(3):
        assert [passed(*operands(), frozen=each) for each in all_frozen] == first
    whole, *parts = [{frozenset(read) for _, *read in launches} for launches, _ in first]
    of_product, of_x, of_w = (frozenset(each) for each in ((1, 2), (0, 2), (0, 1)))  # the places that each reads
    assert whole == {of_product, of_x, of_w} and parts == [{of_product, of_w}, {of_product, of_x}]
    assert len(kinds) == count and not gpu.calls("cuTensorMapEncodeTiled")
    assert any(kind[0] == GRADIENTS for kind in kinds._entries)


@pytest.mark.slow
def test_only_needed_gradients_are_launched(gpu, kinds):
    for needing in (0, 1, 0, 1):
        given = zeros(32, 64), zeros(64, 64)
        given[needing].requires_grad_()
        made = linear(*given)
        gpu.clear()
        backward(made, zeros(32, 64))
        assert len(gpu.calls("cuLaunchKernelEx")) == 1 and given[needing].grad.shape == given[needing].shape


@pytest.mark.slow
def test_saved_tensors_that_moved_are_read_where_they_are(gpu, kinds, monkeypatch):
    """Memory of another place or layout may have been given to a tensor since."""
    read, at = [], Launches.at
    monkeypatch.setattr(Launches, "at", lambda launches, given: read.append(given[:2]) or at(launches, given))
    for moved in (None, lambda: zeros(32, 64), lambda: zeros(64, 32).T):
        x, w, dz = zeros(32, 64).requires_grad_(), zeros(64, 64).requires_grad_(), zeros(32, 64)
        made = linear(x, w)
        if moved is not None:
            x.data = moved()
        read.clear()
        backward(made, dz)
        assert [{*each} for each in read] == [{dz.data_ptr(), each.data_ptr()} for each in (w, x)]
        assert x.grad.stride() == x.stride()


# --- who has to be asked


def call_of(*given):
    """The call, of no known kind."""
    made, call = ready.launched(*given)
    assert made is None
    return call


class Subclass(torch.Tensor):
    pass


PLAIN = torch.zeros(4, 4)
OTHERS = {
    "a subclass": lambda: PLAIN.as_subclass(Subclass),
    "no tensor": lambda: [[1.0]],
    "a reversed sign": lambda: torch._neg_view(PLAIN),
    "zeros without memory": lambda: torch._efficientzerotensor((4, 4)),
    "no elements": lambda: torch.zeros(0, 4),
    "no values": lambda: torch.zeros(4, 4, device="meta"),
    "sparse": lambda: PLAIN.to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([PLAIN]),
}


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("other", OTHERS)
def test_a_tensor_that_is_no_plain_one_has_no_kind(other):
    assert call_of("matmul", (PLAIN, PLAIN)) is not None
    assert call_of("matmul", (PLAIN, OTHERS[other]())) is None


def dispatch_mode():
    from torch.utils._python_dispatch import TorchDispatchMode

    return TorchDispatchMode()


def fake_mode():
    from torch._subclasses.fake_tensor import FakeTensorMode

    return FakeTensorMode()


def function_mode():
    from torch.overrides import TorchFunctionMode

    return TorchFunctionMode()


@pytest.mark.parametrize(
    "listening",
    [
        dispatch_mode,
        fake_mode,
        function_mode,
        torch.autograd.forward_ad.dual_level,
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
    ],
)
def test_who_listens_hears_of_a_call(listening):
    with listening():
        assert call_of("matmul", (PLAIN, PLAIN)) is None
    assert call_of("matmul", (PLAIN, PLAIN)) is not None


def test_a_transform_hears_of_a_call():
    kinds = []

    def of(x):
        kinds.append(call_of("matmul", (x, PLAIN)))
        return x.sum()

    torch.func.vmap(of)(PLAIN)
    torch.func.grad(of)(PLAIN)
    assert kinds == [None, None]


@pytest.mark.parametrize(
    "mode, graded", [(contextlib.nullcontext, True), (torch.no_grad, False), (torch.inference_mode, False)]
)
def test_a_call_wants_gradients_where_torch_takes_some(mode, graded):
    x = torch.zeros(4, 4, requires_grad=True)
    with mode():
        call, other = (call_of("matmul", (each, PLAIN)) for each in (x, PLAIN))
    assert call.graded is graded and other.graded is False
    assert call.kind == other.kind
    assert call.addresses == [x.data_ptr(), PLAIN.data_ptr()]


def test_what_is_no_flag_has_no_kind():
    """1 == True, and is refused all the same."""
    assert call_of("matmul", (PLAIN, PLAIN), (True, False)) is not None
    assert all(call_of("matmul", (PLAIN, PLAIN), (odd,)) is None for odd in (1, 1.0, 0, None, [True]))


def test_a_kind_has_all_that_a_launch_depends_on():
    base = torch.zeros(16, 16)
    tensors = [base, base.T, base[:, :8], base.half(), base.view(1, 16, 16), base.view(-1)[1:].view(15, 17)]
    kinds = {call_of("matmul", (each, base)).kind for each in tensors}
    kinds |= {call_of(name, (base, base, None), (), *options).kind for name, options in (
        ("matmul", ()), ("linear", ()), ("linear", ("relu",)), ("linear", ("relu", 0.5)),
    )}  # fmt: skip
    kinds |= {call_of("linear", (base, None, base)).kind}
    assert len(kinds) == len(tensors) + 5


@pytest.mark.slow
def test_a_long_k_has_two_launches_that_share_sums(gpu, kinds):
    given = [(zeros(16, 8192), zeros(64, 8192), zeros(64)) for _ in range(3)]
    linear(*given[0], "relu")
    gpu.clear()
    gpu.parameters(*[8] * 8)  # the first ones of both kernels, in slots of 8 bytes
    made = [linear(*each, "relu") for each in given]
    assert len(kinds) == 1 and not gpu.calls("cuTensorMapEncodeTiled")
    launched = iter(addresses(gpu))
    for tensors, c in zip(given, made):
        a, b, bias = (each.data_ptr() for each in tensors)
        (*sizes, of_a, of_b, sums, _, _), (parts, *of_c, line, of_sums, to, of_bias, _) = next(launched), next(launched)
        assert (sizes, of_c, line) == ([16, 64, 8192], [16, 64], 64) and parts > 8
        assert (of_a, of_b, of_sums, to, of_bias) == (a, b, sums, c.data_ptr(), bias)
    assert next(launched, None) is None
