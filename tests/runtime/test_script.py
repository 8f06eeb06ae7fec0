"""`Script` and `Kernel`: pins, devices, findings, and that tilus still sees an ordinary script."""

import copy
import dataclasses
import inspect
import pickle

import numpy
import pytest
import tilus
import torch
from tilus import float32, int32, void_p

import blackwell_matmul.simulator
from blackwell_matmul.base.errors import InputError, SimulationError, UnsupportedError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.runtime.script import Kernel, Script
from blackwell_matmul.simulator.findings import Finding, Run, Severity

RUN = Run("Copy", "sm_100a", {}, (1, 1, 1), 0.0)
RACE = Finding("race", Severity.ERROR, "two writers.", location=Location("copy.py", 3))


class Copy(Script):
    def __init__(self, block: int, stages: int = 2):
        super().__init__()
        self.block = block
        self.stages = stages

    def __call__(self, n: int32, source: void_p, target: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1


class NoKnobs(Script):
    def __call__(self, source: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1


class Checked(Copy):
    @classmethod
    def check_arguments(cls, n, source, target):
        raise InputError(f"{cls.__name__} saw n={n}.")


class Named(Copy):
    knobs = ("block",)


@pytest.fixture
def simulated(monkeypatch):
    """The calls that reach the simulator, which is replaced."""
    calls = []

    def simulate(*args):
        calls.append(args)
        return RUN

    monkeypatch.setattr(blackwell_matmul.simulator, "simulate", simulate, raising=False)
    return calls


def tensors(device="cpu"):
    return torch.zeros(4, device=device), torch.zeros(4, device=device)


@pytest.mark.parametrize(
    "kernel, pins",
    [
        (lambda: Copy(), {}),
        (lambda: Copy(64), {"block": 64}),
        (lambda: Copy(64, 3), {"block": 64, "stages": 3}),
        (lambda: Copy(stages=3), {"stages": 3}),
        (lambda: NoKnobs(), {}),
    ],
)
def test_pins_are_bound_to_the_names_of_init(kernel, pins):
    made = kernel()
    assert isinstance(made, Kernel) and made.pins == pins
    assert made.script_cls in (Copy, NoKnobs)


def test_repr_is_the_class_and_its_pins():
    assert repr(Copy(64, stages=3)) == "Copy(block=64, stages=3)" and repr(NoKnobs()) == "NoKnobs()"


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Copy(blok=1), "Copy has the knobs block, stages: got an unexpected keyword argument 'blok'."),
        (lambda: Copy(1, 2, 3), "Copy has the knobs block, stages: too many positional arguments."),
        (lambda: Copy(1, block=2), "Copy has the knobs block, stages: multiple values for argument 'block'."),
        (lambda: NoKnobs(block_m=1), "NoKnobs has no knobs: got an unexpected keyword argument 'block_m'."),
    ],
)
def test_unknown_knobs_get_one_sentence_with_the_names(call, message):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message


def test_a_class_may_name_the_parameters_that_are_knobs():
    assert Named(block=64).pins == {"block": 64}
    with pytest.raises(InputError, match=r"Named takes its knobs by name \(block\); it got 64 without one"):
        Named(64)
    with pytest.raises(InputError, match="Named has no knob 'colour'; its knobs are block"):
        Named(colour=3)


def test_a_kernel_can_be_copied_and_pickled():
    for again in (copy.deepcopy(Copy(64)), pickle.loads(pickle.dumps(Copy(64)))):
        assert again.script_cls is Copy and again.pins == {"block": 64}


def test_cpu_tensors_go_to_the_simulator(simulated):
    source, target = tensors()
    kernel = Copy(64)
    assert kernel(4, source, target) is RUN
    assert kernel(n=4, target=target, source=source) is RUN
    for made, n, got_source, got_target in simulated:
        assert made is kernel and n == 4 and got_source is source and got_target is target


def test_numpy_arrays_count_as_cpu(simulated):
    Copy(64)(4, numpy.zeros(4), torch.zeros(4))
    assert len(simulated) == 1


def test_mixed_devices_get_one_sentence(simulated):
    with pytest.raises(InputError, match=r"Copy got tensors on different devices \(source on cpu; target on meta\)"):
        Copy(64)(4, tensors()[0], tensors("meta")[1])
    assert not simulated


def test_tensors_elsewhere_are_not_supported(simulated):
    with pytest.raises(UnsupportedError, match="Copy got tensors on meta: pass CUDA tensors to run it, or CPU"):
        Copy(64)(4, *tensors("meta"))
    assert not simulated


@pytest.mark.parametrize(
    "args, kwargs, reason",
    [
        ((4,), {}, "missing a required argument: 'source'"),
        ((4, *tensors(), 5), {}, "too many positional arguments"),
        ((4, *tensors()), {"alpha": 1}, "got an unexpected keyword argument 'alpha'"),
    ],
)
def test_arguments_that_do_not_fit_get_one_sentence(simulated, args, kwargs, reason):
    with pytest.raises(InputError) as caught:
        Copy(64)(*args, **kwargs)
    assert str(caught.value) == f"Copy is called with the arguments n, source, target: {reason}."


def test_the_class_checks_its_arguments_before_the_simulator_does(simulated):
    with pytest.raises(InputError, match="Checked saw n=4"):
        Checked(64)(4, *tensors())
    assert not simulated


@pytest.mark.parametrize(
    "findings, message",
    [
        ([RACE], "Copy ran with 1 error: race: two writers. (copy.py:3)"),
        ([RACE, RACE], "Copy ran with 2 errors, the first being race: two writers."),
    ],
)
def test_errors_are_never_silent(monkeypatch, findings, message):
    run = dataclasses.replace(RUN, findings=tuple(findings))
    monkeypatch.setattr(blackwell_matmul.simulator, "simulate", lambda *args: run, raising=False)
    with pytest.raises(SimulationError) as caught:
        Copy(64)(4, *tensors())
    assert str(caught.value).startswith(message)


class ReadsTooEarly(Script):
    def __call__(self, source: ~float32, target: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_source = self.global_view(source, dtype=float32, shape=[64, 64])
        g_target = self.global_view(target, dtype=float32, shape=[64, 64])
        tile = self.shared_tensor(dtype=float32, shape=[64, 64])
        self.copy_async(g_source, tile, offsets=[0, 0])
        self.copy_async_commit_group()
        self.sync()  # no copy_async_wait_group(0) before it
        self.store_global(g_target, self.load_shared(tile), offsets=[0, 0])


def test_a_kernel_with_a_wait_removed_raises_with_its_line():
    with pytest.raises(SimulationError, match=r"ReadsTooEarly ran with .*test_script.py:\d+"):
        ReadsTooEarly()(torch.ones(64, 64), torch.zeros(64, 64))


def test_what_is_unguaranteed_does_not_raise(monkeypatch):
    run = dataclasses.replace(RUN, findings=(dataclasses.replace(RACE, severity=Severity.UNGUARANTEED),))
    monkeypatch.setattr(blackwell_matmul.simulator, "simulate", lambda *args: run, raising=False)
    assert Copy(64)(4, *tensors()) is run


def test_tilus_sees_an_ordinary_script():
    assert issubclass(Copy, tilus.Script) and list(inspect.signature(Copy.__call__).parameters)[1:3] == ["n", "source"]
    script = object.__new__(Copy)
    Copy.__init__(script, 64)
    assert (script.block, script.stages) == (64, 2) and script.attrs.warps is None
