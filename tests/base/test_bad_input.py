"""Every way to call a rung wrongly ends in one sentence that names the argument, the value and the rule.

From Python it is an InputError or UnsupportedError, on the command line exit code 2; nothing from inside tilus shows.
"""

import dataclasses
import math
import re
from functools import partial

import numpy
import pytest
import tilus
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tilus import float16

from blackwell_matmul import (
    BlackwellMatmulV0,
    BlackwellMatmulV1,
    BlackwellMatmulV2,
    cli,
    kernels,
    run_matmul,
    schedules,
    simulate,
)
from blackwell_matmul.base.errors import BlackwellMatmulError, InputError, UnsupportedError
from blackwell_matmul.hardware.gpus import GPUS, gpu_for_target
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import can_run
from blackwell_matmul.scheduling.space import projection
from tests import sentences

RUNGS = [BlackwellMatmulV0, BlackwellMatmulV1, BlackwellMatmulV2]
M, N, K = 64, 48, 32


def operands(**changes):
    """Arguments that are right, but for `changes`."""
    right = {
        "m": M,
        "n": N,
        "k": K,
        "a": torch.zeros(M, K, dtype=torch.float16),
        "b": torch.zeros(N, K, dtype=torch.float16),
        "c": torch.zeros(M, N, dtype=torch.float16),
    }
    return {**right, **changes}


def half(*shape, **options):
    return torch.zeros(*shape, dtype=torch.float16, **options)


def misaligned(rows, columns):
    return half(rows * columns + 1)[1:].view(rows, columns)


one_sentence = partial(sentences.one_sentence, longest=499)


@dataclasses.dataclass
class Wrong:
    """Arguments with a fault, and what the sentence about it must mention."""

    name: str
    changes: dict
    words: tuple[str, ...]


WRONG = [
    Wrong("dtype not served", {"a": torch.zeros(M, K)}, ("a ", "torch.float32", "torch.float16", "torch.bfloat16")),
    Wrong("integers", {"b": torch.zeros(N, K, dtype=torch.int16)}, ("b ", "torch.int16")),
    Wrong("two dtypes", {"b": torch.zeros(N, K, dtype=torch.bfloat16)}, ("b ", "bfloat16", "a ")),
    Wrong("one dimension", {"a": half(M * K)}, ("a ", f"({M * K},)", f"({M}, {K})")),
    Wrong("three dimensions", {"c": half(1, M, N)}, ("c ", f"(1, {M}, {N})")),
    Wrong("no dimension", {"a": half(())}, ("a ", "()")),
    Wrong("transposed b", {"b": half(K, N)}, ("b ", f"({K}, {N})", f"({N}, {K})")),
    Wrong("m does not fit", {"m": M + 1}, ("a ", f"({M}, {K})", f"({M + 1}, {K})")),
    Wrong("view with strides", {"a": half(K, M).T}, ("a ", "strides", "contiguous")),
    Wrong("every other column", {"c": half(M, 2 * N)[:, ::2]}, ("c ", "strides", "contiguous")),
    Wrong("expanded", {"a": half(1, K).expand(M, K)}, ("a ", "strides")),
    Wrong("misaligned view", {"a": misaligned(M, K)}, ("a ", "2 bytes", "16", "clone")),
    Wrong("two devices", {"c": half(M, N, device="meta")}, ("c on meta", "a, b on cpu")),
    Wrong(
        "meta device",
        {name: half(*shape, device="meta") for name, shape in [("a", (M, K)), ("b", (N, K)), ("c", (M, N))]},
        ("meta", "CPU"),
    ),
    Wrong("zero m", {"m": 0, "a": half(0, K), "c": half(0, N)}, ("m ", "0", "from 1")),
    Wrong("zero k", {"k": 0, "a": half(M, 0), "b": half(N, 0)}, ("k ", "0", "from 1")),
    Wrong("negative n", {"n": -N}, ("n ", f"-{N}", "from 1")),
    Wrong("huge m", {"m": 10**30}, ("m ", "2147483647")),
    Wrong("m is a float", {"m": float(M)}, ("m ", "64.0", "integer")),
    Wrong("m is NaN", {"m": math.nan}, ("m ", "nan", "integer")),
    Wrong("m is True", {"m": True}, ("m ", "True")),
    Wrong("m is a word", {"m": "６４"}, ("m ", "６４")),
    Wrong("m is None", {"m": None}, ("m ", "None")),
    Wrong("m and a swapped", {"m": half(M, K), "a": M}, ("m ",)),
    Wrong("no tensor", {"a": None}, ("a ", "None")),
    Wrong("a list", {"b": [[0.0] * K] * N}, ("b ", "list")),
    Wrong("a dtype as tensor", {"b": torch.float16}, ("b ", "torch.float16", "torch.Tensor")),
    Wrong("sparse", {"a": half(M, K).to_sparse()}, ("a ",)),
    Wrong("c is a", {"n": K, "b": half(K, K), "a": (shared := half(M, K)), "c": shared}, ("c ", "a")),
    Wrong("c requires grad", {"c": half(M, N, requires_grad=True)}, ("c ", "detach")),
]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_arguments_get_one_sentence(rung, wrong):
    with pytest.raises((InputError, UnsupportedError)) as caught:
        rung()(**operands(**wrong.changes))
    text = one_sentence(caught.value)
    assert all(word in text for word in wrong.words), text


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_simulate_says_no_as_well(wrong):
    with pytest.raises((InputError, UnsupportedError)) as caught:
        simulate(BlackwellMatmulV1, *operands(**wrong.changes).values())
    one_sentence(caught.value)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("count", [0, 5, 7])
def test_a_wrong_number_of_arguments_gets_one_sentence(rung, count):
    arguments = [*operands().values(), None][:count]
    with pytest.raises(InputError) as caught:
        rung()(*arguments)
    one_sentence(caught.value)


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(
    "pins, words",
    [
        ({"block_m": 100}, ("block_m", "100", "128")),
        ({"block_n": 0}, ("block_n", "0", "64")),
        ({"block_k": -64}, ("block_k", "-64")),
        ({"block_n": "128"}, ("block_n", "'128'")),
        ({"block_n": None}, ("block_n", "None")),
        ({"block_n": math.nan}, ("block_n", "nan")),
        ({"block_n": 10**40}, ("block_n",)),
        ({"block_x": 1}, ("block_x", "block_m")),
        ({"größe": 1}, ("größe", "block_m")),
    ],
)
def test_a_schedule_outside_of_the_space_gets_one_sentence(rung, pins, words):
    with pytest.raises(InputError) as caught:
        rung(**pins)(**operands())
    text = one_sentence(caught.value)
    assert all(word in text for word in words), text
    with pytest.raises(InputError) as caught:
        simulate(rung, *operands().values(), schedule=pins)
    one_sentence(caught.value)


def test_a_pin_and_a_schedule_that_disagree_get_one_sentence():
    with pytest.raises(InputError) as caught:
        simulate(BlackwellMatmulV1(block_n=64), *operands().values(), schedule={"block_n": 128})
    assert "block_n" in one_sentence(caught.value)


@pytest.mark.parametrize("target", ["sm_100", "sm_90a", "sm_120a", "H100", "", "ＳＭ", 100])
def test_a_target_that_cannot_run_it_gets_one_sentence(target):
    with pytest.raises(BlackwellMatmulError) as caught:
        simulate(BlackwellMatmulV1, *operands().values(), target=target)
    one_sentence(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels.KERNELS)
def test_a_target_is_answered_with_those_there_are_or_with_those_that_the_rung_runs_on(name, capsys):
    rung = kernels.rung(name)
    for target, known in (("sm_999", dict.fromkeys(gpu.arch for gpu in GPUS.values())), ("sm_80", rung.targets)):
        assert cli.main(["compile", name, "--target", target]) == 2
        assert re.search(r"sm_\w+(, sm_\w+)*(?=\)?\.$)", capsys.readouterr().err.strip())[0] == ", ".join(known)
    for arch in {gpu.arch for gpu in GPUS.values()}:
        problem = Problem(128, 128, 64, "nvfp4" if "scaled" in rung.features else "fp16")
        some = any(can_run(each, problem, gpu_for_target(arch)) for each in projection(rung)[::23])
        assert some == (arch in rung.targets)


def test_every_message_lists_the_knobs_of_a_rung_in_one_order(capsys):
    told = [
        capsys.readouterr().err
        for command in ("run", "check", "compile")
        if cli.main([command, "v1", "--schedule", "stages=1"])
    ]
    for pins, schedule in (({"stages": 1}, None), ({}, {"stages": 1})):
        with pytest.raises(InputError) as caught:
            simulate(BlackwellMatmulV1(**pins), *operands().values(), schedule=schedule)
        told.append(str(caught.value))
    lists = {re.search(r"knobs are (.*)\.", text)[1] for text in told}
    (row, *_) = schedules("v1", Problem(128, 128, 64)).rows
    assert len(told) == 5 and lists == {", ".join(dict(row.schedule))} == {"block_m, block_n, block_k, e_block_n"}


@pytest.mark.parametrize("command", ["run", "check", "compile"])
def test_a_knob_of_no_rung_is_answered_with_all_knobs(command, capsys):
    assert cli.main([command, "v1", "--schedule", "bogus=1"]) == 2
    told = re.search(r"names 'bogus'; the knobs are (.*), of which each rung has some\.", capsys.readouterr().err)[1]
    assert told == ", ".join(Schedule.knob_names())


def test_what_is_neither_a_size_nor_a_call_gets_one_sentence():
    with pytest.raises(
        InputError, match=r"^\(128, 128\) stands behind BlackwellMatmulV1; give m, n and k, a Problem, or"
    ):
        schedules(BlackwellMatmulV1, 128, 128)
    with pytest.raises(InputError, match=r"; give m, n and k, a Problem, or the arguments of its call \(m, n, k, "):
        schedules("v1", Problem(128, 128, 64), "B200", 7)


@pytest.mark.parametrize("rung", ["v9", "", "V", "v1 ", "v１", "../v1", "v1\0"])
def test_an_unknown_rung_gets_one_sentence_with_the_names_that_exist(rung):
    with pytest.raises(InputError) as caught:
        run_matmul(rung, Problem(8, 8, 8))
    assert "v0" in one_sentence(caught.value)


def test_numpy_arrays_are_no_torch_tensors():
    arrays = {name: numpy.zeros(value.shape, "float16") for name, value in operands().items() if name in "abc"}
    with pytest.raises(InputError) as caught:
        BlackwellMatmulV1()(**operands(**arrays))
    assert "torch.Tensor" in one_sentence(caught.value)


class Copy(tilus.Script):
    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.global_view(x_ptr, dtype=float16, shape=[8, 8])
        y = self.global_view(y_ptr, dtype=float16, shape=[8, 8])
        self.store_global(y, self.load_global(x, offsets=[0, 0], shape=[8, 8]), offsets=[0, 0])


@pytest.mark.parametrize(
    "value, words",
    [
        (numpy.ones((8, 8), "float16", order="F"), "is not contiguous; numpy.ascontiguousarray makes"),
        (numpy.ones((16, 8), "float16")[::2], "is not contiguous"),
        (numpy.ones((8, 8), "float16")[::-1], "is not contiguous"),
        (numpy.ones((8, 8), ">f2"), "another byte order"),
        (numpy.array([[None] * 8] * 8), "is an array of object and the kernel takes ~float16"),
        (numpy.array(1, "float16"), "must have numbers and a dimension"),
        (half(8, 8).to_sparse(), "without memory of its own; pass a dense tensor"),
        (half(8, 8, device="meta"), "the simulator runs CPU tensors, so pass torch.zeros_like"),
        (numpy.float16(1), "it must be a tensor, an array or an address"),
        (torch.Tensor, "it must be a tensor, an array or an address"),
        (2**64, "it must be a tensor, an array or an address"),
    ],
)
def test_what_no_kernel_can_read_or_write_gets_one_sentence(value, words):
    good = half(8, 8)
    for arguments in ((value, good), (good, value)):
        with pytest.raises((InputError, UnsupportedError)) as caught:
            simulate(Copy, *arguments)
        assert words in one_sentence(caught.value)


def test_a_contiguous_array_is_read_and_written_in_place():
    x, y = numpy.arange(64, dtype="float16").reshape(8, 8), numpy.zeros((8, 8), "float16")
    assert simulate(Copy, x, y).ok and (x == y).all()


def command(capsys, *argv):
    code = cli.main(argv)
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and "a fault of" not in err, err
    return err


@pytest.mark.parametrize("rung", ["v0", "v1", "v2"])
@pytest.mark.parametrize(
    "options, words",
    [
        (["--schedule", "block_m=100"], ("block_m", "100", "128")),
        (["--schedule", "block_m=nan"], ("block_m", "nan")),
        (["--schedule", "größe=1"], ("größe", "block_m")),
        (["--schedule", "block_n=64,block_n=128"], ("block_n", "twice")),
        (["--size", "0", "64", "64"], ("m ", "0")),
        (["--size", "64", "-1", "64"], ("n ", "-1")),
        (["--size", "64", "64", "99999999999999999999"], ("k ", "99999999999999999999")),
        (["--size", "nan", "64", "64"], ("nan",)),
        (["--dtype", "ｂｆ16"], ("dtype", "fp16")),
        (["--target", "sm_90a", "--size", "8", "8", "8"], ("tcgen05",)),
        (["--target", "quatsch", "--size", "8", "8", "8"], ("target", "quatsch", "sm_100a")),
        (["--seed", "9" * 40, "--size", "8", "8", "8"], ("seed",)),
        (["--size", "8", "8", "7"], ("7",)),
    ],
)
def test_the_command_line_says_so_with_exit_code_2(capsys, rung, options, words):
    err = command(capsys, "run", rung, *options)
    assert all(word in err for word in words), err


def test_the_command_line_names_the_rungs_that_exist(capsys):
    assert "v0, v1, v2" in command(capsys, "run", "v17")


KNOB_VALUES = st.one_of(st.integers(-(2**40), 2**40), st.sampled_from([16, 32, 64, 128, 256]))


@settings(max_examples=100, deadline=None)
@given(pins=st.dictionaries(st.sampled_from(["block_m", "block_n", "block_k", "e_block_n", "stages"]), KNOB_VALUES))
def test_any_schedule_is_chosen_from_the_space_or_refused_in_one_sentence(pins):
    try:
        chosen = BlackwellMatmulV2.complete(pins, list(operands().values()), "sm_100a")
    except InputError as error:
        one_sentence(error)
    else:
        assert Schedule(**{name: value for name, value in chosen.items() if name != "dtype"}).matches(pins)
