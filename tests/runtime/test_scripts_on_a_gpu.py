"""Scripts on CUDA tensors, against the driver that records: which code, which schedule, and who may not run."""

import types

import pytest
import tilus
import torch
from tilus import float16, int32, void_p

import blackwell_matmul
from blackwell_matmul import (
    BlackwellMatmul,
    BlackwellMatmulV1,
    BlackwellMatmulV2,
    HopperMatmul,
    InputError,
    Script,
    UnsupportedError,
)
from blackwell_matmul.compiler import compiling, entries
from blackwell_matmul.hardware import gpus
from blackwell_matmul.kernels import LADDERS
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime import script_calls
from blackwell_matmul.scheduling import space

pytestmark = pytest.mark.process

MADE = {}
"""The code of all tests, by key: what is compiled again in another one is not of interest here."""


@pytest.fixture
def compiled(monkeypatch, tmp_path, forget):
    """The schedules that were compiled, with a disk cache of the test's own."""
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", str(tmp_path))
    made = compiling._compiled
    monkeypatch.setattr(compiling, "_compiled", lambda *of: MADE.get(of[2]) or MADE.setdefault(of[2], made(*of)))
    forget()
    original, calls = compiling.compile, []

    def compile(kernel, *args, schedule=None, target):
        calls.append((target, schedule))
        return original(kernel, *args, schedule=schedule, target=target)

    monkeypatch.setattr(blackwell_matmul.compiler, "compile", compile, raising=False)
    return calls


@pytest.fixture
def forget(monkeypatch):
    """What a process has in memory, as a fresh one has it."""
    from blackwell_matmul.runtime import script_calls
    from blackwell_matmul.runtime.recent import Recent

    def forget():
        compiling._memo.clear()
        monkeypatch.setattr(script_calls, "_loaded", Recent(64))

    return forget


@pytest.fixture
def b200(gpu):
    gpu.is_a("NVIDIA B200", (10, 0), 148, 232448)
    return gpu


@pytest.fixture
def operands(on_gpu):
    def make(m, n, k, dtype=torch.float16):
        return m, n, k, *(on_gpu(torch.zeros(shape, dtype=dtype)) for shape in ((m, k), (n, k), (m, n)))

    return make


class Scale(Script):
    """Runs everywhere: no instruction of one architecture."""

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p, factor: int32 = 3):
        self.attrs.blocks = [tilus.utils.cdiv(m, 64)]
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        row: int32 = 64 * self.blockIdx.x
        self.store_global(y, self.load_global(x, offsets=[row, 0], shape=[64, 64]) * factor, offsets=[row, 0])


FACTOR = 3


class Constant(Script):
    """Reads a constant of its module."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.global_view(x_ptr, dtype=float16, shape=[64, 64])
        y = self.global_view(y_ptr, dtype=float16, shape=[64, 64])
        self.store_global(y, self.load_global(x, offsets=[0, 0], shape=[64, 64]) * FACTOR, offsets=[0, 0])


class Block(Script):
    """With a knob."""

    def __init__(self, block_n: int = 64):
        super().__init__()
        self.block_n = block_n

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.store_global(g_c, self.load_global(g_a, offsets=[0, 0], shape=[64, self.block_n]), offsets=[0, 0])


def test_a_rung_is_launched_and_the_call_returns_none(b200, compiled, operands):
    arguments = operands(1000, 256, 128)
    assert BlackwellMatmulV2()(*arguments) is None
    (launch,), maps = b200.calls("cuLaunchKernelEx"), b200.calls("cuTensorMapEncodeTiled")
    assert {int(record["address"], 16) for record in maps} == {tensor.data_ptr() for tensor in arguments[3:]}
    assert launch["grid"].startswith("8,") and compiled[0][0] == "sm_100a"


def test_the_schedule_is_the_one_of_the_cpu(b200, compiled, operands):
    BlackwellMatmulV1(block_k=32)(*operands(512, 512, 256))
    expected = space.choose(BlackwellMatmulV1, Problem(512, 512, 256), gpus.GPUS["B200"], {"block_k": 32})
    ((_, schedule),) = compiled
    assert {name: value for name, value in schedule.items() if name != "dtype"} == expected.as_dict()


@pytest.mark.slow
def test_one_compilation_serves_every_m_and_every_kernel_object(b200, compiled, operands):
    kernel = BlackwellMatmulV2()
    for m in (1000, 1001, 1792, 1000):
        kernel(*operands(m, 256, 128))
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    assert len(compiled) == 1 and len(b200.calls("cuLibraryLoadData")) == 1
    kernel(*operands(1000, 256, 192))
    kernel(*operands(1000, 256, 128, torch.bfloat16))
    assert len(compiled) == 3


@pytest.fixture
def choices(monkeypatch):
    """The problems for which a schedule was chosen."""
    original, seen = space._first_that_runs, []
    monkeypatch.setattr(space, "_first_that_runs", lambda *args: seen.append(args[1]) or original(*args))
    return seen


def test_a_call_that_another_process_has_made_needs_no_choice_and_no_build(b200, compiled, operands, forget, choices):
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    (first,), met = b200.calls("cuLaunchKernelEx"), len(choices)
    assert met
    forget()
    b200.clear()
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    (again,) = b200.calls("cuLaunchKernelEx")
    assert again["grid"] == first["grid"] and len(compiled) == 1 and len(choices) == met
    BlackwellMatmulV2()(*operands(1001, 256, 128))
    assert len(choices) > met and len(b200.calls("cuLibraryLoadData")) == 1


@pytest.fixture
def builds(monkeypatch):
    """The scripts that were built."""
    original, seen = compiling.build_first, []
    monkeypatch.setattr(
        compiling, "build_first", lambda these, target: seen.append(these[0].script_cls) or original(these, target)
    )
    return seen


def pinned(rung):
    """A kernel with all knobs."""
    return rung(**space.choose(rung, Problem(512, 512, 512), gpus.gpu_for_target(rung.target)).as_dict())


@pytest.mark.slow
@pytest.mark.parametrize("rung", [BlackwellMatmul, HopperMatmul])
def test_another_n_and_k_need_no_build_where_the_schedule_is_known(gpu, compiled, operands, forget, builds, rung):
    if rung.target == "sm_100a":
        gpu.is_a("NVIDIA B200", (10, 0), 148, 232448)
    kernel = pinned(rung)
    for n, k in ((512, 512), (1000, 72)):
        kernel(*operands(512, n, k))
    assert builds == [rung] and len(gpu.calls("cuLibraryLoadData")) == 1
    forget()
    pinned(rung)(*operands(512, 248, 640))
    assert builds == [rung] and len(gpu.calls("cuLaunchKernelEx")) == 3
    kernel(*operands(512, 512, 512, torch.bfloat16))
    assert builds == [rung] * 2


def test_a_kernel_that_is_lost_is_built_again(b200, compiled, operands, forget, builds, tmp_path):
    for k, damage in ((512, "codes/*.json"), (576, "*/*/kernel.cubin"), (640, "calls/*.json")):
        pinned(BlackwellMatmul)(*operands(512, 512, k))
        for file in tmp_path.glob(damage):
            file.write_bytes(b"{}")
        forget()
    pinned(BlackwellMatmul)(*operands(512, 512, 640))
    assert len(builds) == 3


@pytest.mark.slow
def test_an_n_that_is_a_multiple_of_less_has_code_of_its_own(b200, compiled, on_gpu, builds):
    """What an epilogue reads begins at other addresses."""
    kernel, k = pinned(BlackwellMatmul), 64
    for n in (256, 512, 252, 508):
        a, b, whole = (on_gpu(torch.zeros(rows, columns).half()) for rows, columns in ((64, k), (n, k), (64, 1024)))
        kernel(64, n, k, a, b, whole[:, :n])
    assert len(builds) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda operands: BlackwellMatmulV2(block_k=32)(*operands(1000, 256, 128)),
        lambda operands: BlackwellMatmulV2()(*operands(1000, 256, 128, torch.bfloat16)),
        lambda operands: BlackwellMatmulV1()(*operands(1000, 256, 128)),
        lambda operands: BlackwellMatmulV2()(*operands(1000, 256, 192)),
    ],
)
def test_a_call_of_another_kind_is_none_that_is_known(b200, compiled, operands, forget, change):
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    forget()
    change(operands)
    assert len(compiled) == 2


@pytest.mark.parametrize("damage", ["calls/*.json", "*/*/kernel.cubin"])
def test_a_known_call_that_is_damaged_or_has_lost_its_kernel_is_made_again(
    b200, compiled, operands, forget, tmp_path, damage
):
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    (file,) = tmp_path.glob(damage)
    file.write_bytes(b"{}")
    forget()
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    assert len(compiled) == 2 and len(b200.calls("cuLaunchKernelEx")) == 2


def test_an_entry_that_names_other_code_is_made_again(b200, compiled, operands, forget, tmp_path):
    """Whole, and kept under its own name."""
    BlackwellMatmulV1()(*operands(1000, 256, 128))
    (file,) = tmp_path.glob("calls/*V1*")
    other = entries.read_key(file)
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    (file,) = tmp_path.glob("calls/*V2*")
    right = entries.read_key(file)
    entries.keep_key(file, other)
    forget()
    b200.clear()
    BlackwellMatmulV2()(*operands(1000, 256, 128))
    assert entries.read_key(file) == right and len(b200.calls("cuLaunchKernelEx")) == 1


@pytest.mark.parametrize(
    "odd", [{"block_n": 8}, {"block_n": "64"}, {"block_n": None}, {"nonsense": 1}, {"block_n": 10**30}, {"dtype": 1.5}]
)
@pytest.mark.parametrize("kernel", [BlackwellMatmulV1, Block], ids=["rung", "own"])
def test_a_winner_that_leads_nowhere_is_passed_over(b200, compiled, operands, monkeypatch, kernel, odd):
    """Such as one that was tuned for a neighbour of m, or before a knob was renamed."""
    monkeypatch.setattr(script_calls, "pins_for_call", lambda *_: odd)
    kernel()(*operands(128, 64, 64))
    assert len(b200.calls("cuLaunchKernelEx")) == 1


def test_with_a_winner_that_leads_nowhere_wrong_arguments_are_told_as_ever(b200, compiled, operands, monkeypatch):
    monkeypatch.setattr(script_calls, "pins_for_call", lambda *_: {"block_n": 8})
    m, n, _, a, b, c = operands(128, 64, 64)
    with pytest.raises(InputError, match="a has shape"):
        BlackwellMatmulV1()(m, n, 32, a, b, c)


def test_a_script_of_a_users_own_is_not_known_by_its_name(b200, compiled, on_gpu, tmp_path):
    Scale()(64, 64, on_gpu(torch.zeros(64, 64, dtype=torch.float16)), on_gpu(torch.zeros(64, 64, dtype=torch.float16)))
    assert compiled and not list(tmp_path.glob("calls/*"))


def refuse(cls, m, n, k, a, b, c):
    raise AssertionError("the arguments are checked once")


def test_a_repeated_call_goes_straight_to_the_driver(b200, compiled, operands, monkeypatch):
    kernel, arguments = BlackwellMatmulV2(), operands(1000, 256, 128)
    kernel(*arguments)
    monkeypatch.setattr(BlackwellMatmulV2.check_arguments.__func__, "__code__", refuse.__code__)
    b200.clear()
    kernel(*arguments)
    assert [record["function_called"] for record in b200.calls()] == ["cuLaunchKernelEx"]


def test_a_rung_that_is_patched_is_compiled_again(b200, compiled, operands, monkeypatch):
    kernel, arguments = BlackwellMatmulV2(), operands(1000, 256, 128)
    kernel(*arguments)
    original = BlackwellMatmulV2.__call__
    others = {**original.__globals__, "cdiv": lambda a, b: (a + b - 1) // b}
    patched = types.FunctionType(original.__code__, others)
    patched.__annotations__ = original.__annotations__
    monkeypatch.setattr(BlackwellMatmulV2, "__call__", patched)
    kernel(*arguments)
    kernel(*arguments)
    assert len(compiled) == 2 and len(b200.calls("cuLaunchKernelEx")) == 3


def test_a_rung_whose_module_changed_is_compiled_again(b200, compiled, operands, monkeypatch):
    kernel, arguments = BlackwellMatmulV2(), operands(1000, 256, 128)
    kernel(*arguments)
    monkeypatch.setitem(BlackwellMatmulV2.__call__.__globals__, "cdiv", lambda a, b: (a + b - 1) // b)
    kernel(*arguments)
    kernel(*arguments)
    assert len(compiled) == 2 and len(b200.calls("cuLaunchKernelEx")) == 3


def test_a_script_whose_constant_changed_is_compiled_again(gpu, compiled, on_gpu, monkeypatch):
    x, y = (on_gpu(torch.zeros(64, 64, dtype=torch.float16)) for _ in range(2))
    kernel = Constant()
    for value, met in ((FACTOR, 1), (FACTOR, 1), (5, 2), (5, 2), (-0.0, 3), (0.0, 4)):
        monkeypatch.setitem(globals(), "FACTOR", value)
        kernel(x, y)
        assert len(compiled) == met


def test_arguments_are_checked_before_anything_is_compiled(b200, compiled, operands, on_gpu):
    m, n, k, a, b, c = operands(64, 64, 64)
    kernel = BlackwellMatmulV2()
    kernel(m, n, k, a, b, c)
    for bad, message in (((m, n, 32, a, b, c), "a has shape"), ((m, n, k, a, b, a), "c shares memory with a")):
        with pytest.raises(InputError, match=message):
            kernel(*bad)
    assert len(compiled) == 1 and len(b200.calls("cuLaunchKernelEx")) == 1


def test_names_and_defaults_reach_the_same_launch(gpu, compiled, on_gpu):
    x, y = (on_gpu(torch.zeros(100, 64, dtype=torch.float16)) for _ in range(2))
    kernel = Scale()
    kernel(100, 64, x, y)
    kernel(100, 64, y_ptr=y, x_ptr=x)
    kernel(100, 64, x, y, 3)
    assert len(compiled) == 1 and compiled[0][0] == "sm_90a"
    first, *others = gpu.calls("cuLaunchKernelEx")
    assert len(others) == 2 and all(other == first for other in others)


def test_a_blackwell_rung_on_a_hopper_gets_one_sentence(gpu, compiled, operands):
    with pytest.raises(UnsupportedError) as caught:
        BlackwellMatmulV2()(*operands(1000, 256, 128))
    assert str(caught.value) == (
        "BlackwellMatmulV2 cannot run: sm_90a (H100, H200) has no tcgen05 instructions; B200, GB200 and B300 have "
        f"them, and the kernels for sm_90a are g0, {', '.join(sorted(LADDERS['sm_90a']))}; CPU tensors are simulated."
    )
    assert not compiled


def test_a_script_that_does_not_compile_for_the_gpu_is_told_what_runs(gpu, compiled, on_gpu):
    class Allocates(Script):
        def __call__(self, x_ptr: void_p):
            self.attrs.blocks = 1
            self.attrs.warps = 4
            t_acc = self.tcgen05.alloc(dtype=tilus.float32, shape=[128, 32])
            self.sync()
            self.tcgen05.dealloc(t_acc)

    told = r"^Allocates does not compile for sm_90a: .*; GPU 0 \(H200\) runs scripts with wgmma, tma and mma.sync, and"
    with pytest.raises(UnsupportedError, match=told):
        Allocates()(on_gpu(torch.zeros(4)))


def test_wrong_arguments_are_not_blamed_on_the_gpu(gpu, compiled, operands):
    with pytest.raises(InputError, match="TMA needs a multiple of 16"):
        BlackwellMatmulV2()(*operands(64, 64, 7))


def test_pins_cannot_change_under_a_compiled_kernel():
    with pytest.raises(TypeError):
        BlackwellMatmulV1(block_k=32).pins["block_k"] = 64


def test_a_tensor_without_memory_gets_one_sentence(b200, compiled, operands):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        arguments = [torch.empty(shape, dtype=torch.float16, device="cuda") for shape in ((64, 64),) * 3]
    with pytest.raises(InputError, match=r"without memory|has no memory|no tensor|must be on one CUDA device"):
        BlackwellMatmulV2()(64, 64, 64, *arguments)


@pytest.mark.slow
def test_matmul_reaches_the_gpu(b200, compiled, on_gpu):
    """The kernels' side of the op; torch would not dispatch a tensor that only claims to be on a GPU."""
    from blackwell_matmul.ops.finished import NO_TENSORS
    from blackwell_matmul.ops.launching import planned
    from blackwell_matmul.ops.operand_checks import How

    a, w = on_gpu(torch.zeros(136, 128, dtype=torch.float16)), on_gpu(torch.zeros(256, 128, dtype=torch.float16))
    planned(a, w.T, NO_TENSORS, gpus.GPUS["B200"], torch.float16, How())(a, w.T, NO_TENSORS)
    assert len(b200.calls("cuLaunchKernelEx")) == 1
    addresses = {int(record["address"], 16) for record in b200.calls("cuTensorMapEncodeTiled")}
    assert {a.data_ptr(), w.data_ptr()} < addresses


@pytest.mark.slow
def test_a_product_is_packed_once_for_all_addresses(b200, compiled, on_gpu):
    """Tensors of one kind are checked once. And the kernel has null in the places of what the call is without."""
    from blackwell_matmul.ops.finished import EpilogueTensors
    from blackwell_matmul.ops.launching import planned
    from blackwell_matmul.ops.operand_checks import How

    a, w = on_gpu(torch.zeros(64, 128, dtype=torch.float16)), on_gpu(torch.zeros(256, 128, dtype=torch.float16))
    biases = [EpilogueTensors(on_gpu(torch.zeros(256, dtype=torch.float16))) for _ in range(2)]
    plan = planned(a, w.T, biases[0], gpus.GPUS["B200"], torch.float16, How())
    packed, pack, checked = [], plan.launches._packed, []

    def counted(calls, arguments, addresses, stream):
        packed.append((arguments, addresses, stream))
        return pack(calls, arguments, addresses, stream)

    plan.launches._packed = counted
    check = plan.launches._calls._check
    plan.launches._calls._check = lambda *arguments: checked.append(arguments) or check(*arguments)
    kept = [plan(a, w.T, bias) for bias in biases]
    del kept[0]
    for _ in range(8):
        plan(a, w.T, biases[0])
    assert len(b200.calls("cuLaunchKernelEx")) == 10 and len(checked) == len(packed) == 1
    ((arguments, addresses, stream),) = packed
    assert arguments[:3] == (64, 256, 128) and arguments[7:] == (0, 0, 0, 1)
    assert arguments[3] is a and arguments[4].data_ptr() == w.data_ptr() and arguments[4].shape == (256, 128)
    assert [each.data_ptr() for each in arguments[3:7]] == addresses and stream == 0x51


@pytest.mark.slow
def test_grouped_products_reach_the_gpu(b200, compiled, on_gpu):
    from blackwell_matmul.ops.grouped import _product, _sums

    x, w = on_gpu(torch.zeros(64, 128, dtype=torch.float16)), on_gpu(torch.zeros(4, 128, 256, dtype=torch.float16))
    offs = on_gpu(torch.zeros(4, dtype=torch.int32))
    made = _product(x, w, offs, (64, 256), gpus.GPUS["B200"])(x, w, offs)
    sums = _sums(x.mT, w[0, :64], offs, (4, 128, 256), gpus.GPUS["B200"])(x.mT, w[0, :64], offs)
    assert made.shape == (64, 256) and sums.shape == (4, 128, 256)
    assert len(b200.calls("cuLaunchKernelEx")) == 2
    addresses = {int(record["address"], 16) for record in b200.calls("cuTensorMapEncodeTiled")}
    assert {x.data_ptr(), w.data_ptr()} <= addresses


@pytest.mark.slow
def test_a_product_of_any_form_reaches_the_gpu(b200, compiled, on_gpu):
    """A slice and a row-major b, where they are; null pointers for what the epilogue does not read."""
    from blackwell_matmul.ops.finished import NO_TENSORS
    from blackwell_matmul.ops.launching import planned
    from blackwell_matmul.ops.operand_checks import How

    qkv, y = on_gpu(torch.zeros(64, 384, dtype=torch.float16)), on_gpu(torch.zeros(128, 256, dtype=torch.float16))
    x = qkv[:, 128:256]
    planned(x, y, NO_TENSORS, gpus.GPUS["B200"], torch.float16, How("relu"))(x, y, NO_TENSORS)
    assert len(b200.calls("cuLaunchKernelEx")) == 1
    addresses = {int(record["address"], 16) for record in b200.calls("cuTensorMapEncodeTiled")}
    assert {x.data_ptr(), y.data_ptr()} < addresses and x.data_ptr() == qkv.data_ptr() + 256
