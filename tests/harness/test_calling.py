"""Every function that takes a kernel is called alike: a size, a Problem, or the arguments of its call."""

import pytest
import torch
from tilus import float32

import blackwell_matmul as b
from blackwell_matmul import InputError, Problem, Script
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.harness.calls.kernel_call import resolve
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.ops.finished import NO_TENSORS, finished
from blackwell_matmul.problem.form import BLOCK_SCALES, Epilogue, Form

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_form_is_given_in_a_problem_by_keyword_or_by_the_kernel():
    turned = Problem(*SIZE, form=Form(a_major="m", epilogue=Epilogue(bias=True, activation="gelu")))
    assert (
        b.schedules("blackwell", turned).problem == b.schedules("blackwell", *SIZE, form=turned.form).problem == turned
    )
    ways = [
        ("blackwell", (turned,), None),
        ("blackwell", SIZE, turned.form),
        (b.BlackwellMatmul(form=turned.form), SIZE, None),
    ]
    assert b.check(b.HopperMatmul(form=turned.form.epilogue), *SIZE).ok
    for kernel, given, form in ways:
        result = b.run_matmul(kernel, *given, form=form)
        assert result.ok and result.problem == turned and "form" not in result.schedule
    assert b.assert_clean("hopper", *SIZE, form=turned.form, orders=2).ok
    assert "a_major=m" in str(b.predict("blackwell", turned).schedule["form"])


def test_of_tensors_a_form_is_what_they_say_and_the_epilogue_that_is_given():
    a, w, c = torch.randn(64, 128).half().T, torch.randn(64, 64).half(), torch.empty(128, 64).half()
    result = b.run_matmul("blackwell", *SIZE, a, w, c, form=Epilogue(activation="relu"))
    assert result.ok and str(result.problem) == "128x64x64 fp16, a_major=m, relu" and (c >= 0).all()


@pytest.mark.parametrize(
    ("form", "wrong"), [(Epilogue(activation="gelu_tanh"), "gelu"), (Epilogue(activation="swiglu"), "silu")]
)
def test_another_activation_is_wrong(form, wrong):
    problem = Problem(*SIZE, form=Form(out="fp32", epilogue=form))
    _, _, _, x, w, c, *rest = arguments_of(problem, 0)
    good = b.run_matmul("blackwell", *SIZE, x, w, c, form=form)
    z = x.float() @ w.float().T
    c.copy_(finished(z if c.shape == z.shape else z[:, ::2], NO_TENSORS, wrong))
    assert good.ok and not check_product(problem, (x, w, c, *rest)).ok


@pytest.mark.process
@pytest.mark.parametrize("scale", BLOCK_SCALES)
def test_another_scale_of_a_block_is_wrong(scale):
    problem = Problem(136, 144, 400, "e4m3", Form(epilogue=Epilogue(scale=scale)))
    arguments = arguments_of(problem, 0)
    good = b.run_matmul("hopper", *arguments, form=problem.form.epilogue)
    operands = arguments[3:]
    assert good.ok and check_product(problem, operands).ok
    operands[5][1, 1] *= 2  # of scale_a
    assert not check_product(problem, operands).ok


def test_of_batches_the_wrong_one_is_named():
    problem = Problem(*SIZE, form=Form(b_major="n"), batches=3)
    _, _, _, x, w, c, *rest = arguments_of(problem, 0)
    c.copy_(x @ w.mT)
    assert check_product(problem, (x, w, c, *rest)).ok
    c[1, 5, 7] += 1
    verdict = check_product(problem, (x, w, c, *rest))
    assert verdict.batch == 1 and "1 of 8192 elements of batch 1" in verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("form", [Form(a_stride=72, b_major="n", b_stride=96), Form(c_stride=72, a_batch_stride=9000)])
def test_made_up_inputs_lie_as_the_form_says(form):
    problem = Problem(*SIZE, form=form, batches=2)
    result = b.run_matmul("hopper", problem)
    assert result.ok and result.as_dict()["form"]["c_stride"] == form.c_stride
    *arguments, batches = arguments_of(problem, None)
    assert b.BlackwellMatmul.problem_of({}, *arguments, batches)[0] == problem


@pytest.mark.parametrize(
    ("kernel", "form", "sentence"),
    [
        (
            "v6",
            Epilogue(bias=True),
            "BlackwellMatmulV6 computes one product of K-major matrices, without bias; blackwell and",
        ),
        ("blackwell", "gelu", "form is 'gelu'; it must be a Form or an Epilogue."),
        (
            b.BlackwellMatmul(form=Epilogue()),
            Epilogue(bias=True),
            "the kernel was made with another one; give one of",
        ),
        (
            "blackwell",
            Form(c_stride=8),
            "strides of 8 and 1024 elements are too small for 128 lines of 64; make them larger.",
        ),
        ("blackwell", Epilogue(activation="swiglu", residual=True), "swiglu takes no residual"),
    ],
)
def test_what_is_no_form_of_a_kernel_is_refused_in_a_sentence(kernel, form, sentence):
    with pytest.raises(InputError) as caught:
        b.run_matmul(kernel, *SIZE, form=form)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_arguments_are_made_where_they_are_used():
    call = resolve("v1", (Problem(*[2**30] * 3),))
    assert call.problem.k == 2**30 and b.schedules("v1", call.problem).problem == call.problem
    with pytest.raises(InputError, match="does not fit into this machine's memory"):
        len(call.arguments)
    called = resolve("v1", SIZE, target=GPUS["B200"])
    assert called.arguments is called.arguments and called.arch == "sm_100a"


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
