"""Every function that takes a kernel is called alike: a size, a Problem, or the arguments of its call."""

import pytest
import torch
from tilus import float32

import blackwell_matmul as b
from blackwell_matmul import InputError, Problem, Script
from blackwell_matmul.form import Form
from blackwell_matmul.gpus import GPUS

FUNCTIONS = [b.run_matmul, b.schedules, b.compile, b.check, b.assert_clean, b.predict, b.trace]
SIZE = (128, 64, 64)
PINS = {"block_n": 64, "block_k": 64}


def tensors():
    torch.manual_seed(0)
    m, n, k = SIZE
    return torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16(), torch.zeros(m, n, dtype=torch.bfloat16)


class AddOne(Script):
    """Three parameters, which are no size."""

    def __call__(self, n: int, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float32, shape=[8, n])
        y = self.global_view(y_ptr, dtype=float32, shape=[8, n])
        self.store_global(y, self.load_global(x, offsets=[0, 0], shape=[8, 8]) + 1.0, offsets=[0, 0])


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("given", ["numbers", "tuple", "problem", "tensors"])
def test_one_shape_of_call(function, given):
    behind = {"numbers": SIZE, "tuple": (SIZE,), "problem": (Problem(*SIZE, "bf16"),), "tensors": (*SIZE, *tensors())}
    dtype = {"dtype": "bf16"} if given in ("numbers", "tuple") else {}
    found = function("v1", *behind[given], **dtype, schedule=PINS, target="B200")
    schedule = found.chosen.as_dict() if isinstance(found, b.ScheduleList) else getattr(found, "schedule", PINS)
    assert {name: schedule[name] for name in PINS} == PINS
    assert "bf16" in str(getattr(found, "problem", "bf16"))


@pytest.mark.parametrize("function", [b.schedules, b.predict, b.trace], ids=lambda each: each.__name__)
def test_a_target_is_a_name_an_architecture_or_a_gpu(function):
    found = [function("v1", *SIZE, **{word: each}) for word in ("target", "gpu") for each in ("B200", "sm_100a")]
    texts = {str(each) for each in (*found, function("v1", *SIZE, target=GPUS["B200"]))}
    assert len(texts) == 1
    with pytest.raises(InputError, match="which is the same; give one of the two"):
        function("v1", *SIZE, target="B200", gpu="B200")


def test_the_tensors_that_are_given_are_those_that_are_used():
    m, n, k = SIZE
    a, w, c = tensors()
    assert b.run_matmul("v1", m, n, k, a, w, c).ok
    assert torch.allclose(c.float(), a.float() @ w.float().T, rtol=0.02, atol=0.1)


def test_pins_leave_the_schedules_that_have_them():
    every, some = b.schedules("v1", *SIZE), b.schedules(b.BlackwellMatmulV1(block_n=64), *SIZE, schedule="block_k=64")
    assert 0 < len(some.rows) < len(every.rows)
    assert {(row.schedule.block_n, row.schedule.block_k) for row in some.rows} == {(64, 64)}


class Clear(Script):
    """One parameter."""

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        zeros = self.register_tensor(dtype=float32, shape=[8, 8], init=0.0)
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[8, 8]), zeros, offsets=[0, 0])


def test_a_kernel_with_one_parameter_is_called_with_it():
    y = torch.ones(8, 8)
    assert b.check(Clear, y).ok and not y.any()
    assert b.compile(Clear, y).name == "Clear" and b.predict(Clear, y).tflops is None


def test_a_kernel_with_three_parameters_is_called_with_them():
    x, y = torch.zeros(8, 8), torch.zeros(8, 8)
    assert b.check(AddOne, 8, x, y).ok and (y == 1).all()


def test_a_form_is_for_schedules_alone():
    turned = Problem(*SIZE, form=Form(a_major="m"))
    assert b.schedules("v7", turned).problem == turned
    with pytest.raises(InputError, match="inputs are made up for plain products, not for 128x64x64 fp16"):
        b.check("v7", turned)


def test_without_a_size_it_is_1024_each():
    assert str(b.schedules("v1").problem) == "1024x1024x1024 fp16"


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ((128, 64), {}, "(128, 64) stands behind BlackwellMatmulV1; give m, n and k, a Problem, or the arguments of"),
        ((128, 64, 0), {}, "k is 0; it must be an integer from 1 to 2147483647."),
        ((Problem(8, 8, 8),), {"dtype": "bf16"}, "dtype is 'bf16' and the Problem's is 'fp16'; give one of the two."),
        ((*SIZE, *tensors()), {"dtype": "fp16"}, "gets tensors, which have their own; leave it out."),
    ],
)
def test_what_contradicts_itself_is_refused_in_a_sentence(given, options, sentence):
    for function in FUNCTIONS:
        with pytest.raises(InputError) as caught:
            function("v1", *given, **options)
        assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_no_matmul_is_not_judged_as_one():
    with pytest.raises(InputError, match=r"AddOne has other arguments of its own, not C = A @ B\.T; run_script"):
        b.run_matmul(AddOne, 8, torch.zeros(8, 8), torch.zeros(8, 8))
