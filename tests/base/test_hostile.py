"""A hostile user: every public function and every option of the command line, with generated garbage.

Whatever comes in, there is an answer or an error of this package in one sentence; no file and no process is left
behind, and nothing that the process shares (tilus's target, torch's settings, sys.path) is changed. Each function is
called rightly but for some of its arguments. `bench/hostile.py` runs the same with thousands of cases.
"""

import decimal
import enum
import fractions
import functools
import importlib
import json
import math
import multiprocessing
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tilus
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tilus import float16, int32
from torch._subclasses.fake_tensor import FakeTensorMode

import blackwell_matmul as b
from blackwell_matmul import cli, compiler, kernels, simulate, tuner
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.emulator import Limit
from blackwell_matmul.hardware import detect
from blackwell_matmul.hardware.gpus import GPUS, gpu_for_target
from blackwell_matmul.harness import make_inputs
from blackwell_matmul.harness.outputs import compare
from blackwell_matmul.scheduling import rules, space
from tests.sentences import one_sentence

pytestmark = pytest.mark.filterwarnings("ignore::Warning:tilus")  # of constants that their types cannot hold

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "0"))
"""Cases for each function; 0: a few, and always the same ones."""

LONGEST_SENTENCE = 700


def cases(number: int) -> settings:
    return settings(
        max_examples=EXAMPLES or number,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


class Unprintable:
    """What it prints as is an error."""

    def __repr__(self):
        raise RuntimeError("no text\nfor you")


class Stubborn:
    """Not comparable, not hashable, and without a truth value."""

    __hash__ = None

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    def __bool__(self):
        raise RuntimeError("neither true nor false")


class Closed:
    """Its attributes are errors."""

    def __getattr__(self, name):
        raise RuntimeError(f"no {name} for you")


class Word(str):
    """Text with a mind of its own."""

    def __repr__(self):
        return "two\nlines"

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    def __hash__(self):
        raise RuntimeError("not hashable")


class Eight(enum.IntEnum):
    EIGHT = 8


class Flavoured(torch.Tensor):
    """A subclass, as libraries make them."""


LongName = type("x" * 10_000, (), {})


class Garbage:
    """One value, which hypothesis can print."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        try:
            return repr(self.value)[:300]
        except Exception:
            return f"<{type(self.value).__name__[:80]}>"


def odd_values() -> list[Any]:
    """What no argument of ours should be; some fit in one place or another."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of its rarer kinds of tensors
        return [
            *odd_numbers(),
            *odd_texts(),
            *odd_containers(),
            *odd_objects(),
            *odd_arrays(),
            *odd_tensors(),
            *our_own(),
        ]


def odd_numbers():
    yield from (True, False, 0, -1, 1, 3, 8, 16, 64, 256, 2**31 - 1, 2**31, 2**63, 2**64, 10**5000, -(10**5000))
    yield from (
        0.0,
        8.0,
        math.nan,
        math.inf,
        1e308,
        1j,
        decimal.Decimal(8),
        fractions.Fraction(8),
        10**400,
        Eight.EIGHT,
    )
    yield from (np.int64(8), np.float32(8), np.bool_(True), np.datetime64("2020-01-01"))


def odd_texts():
    yield from ("", "\0", "\ud800", "x\ny", "x" * 10_000, "９", "[red]", "\x1b[2J", b"x", Word("v1"), Word("fp16"))
    yield from ("v1", "fp16", "sm_100a", "sm_90a", "B200", "eager", "block_m=1", "stages=", ".py:", "none.py:X", "/")


def odd_containers():
    endless: list[Any] = []
    endless.append(endless)
    yield from ([], {}, (), set(), [[]], endless, range(3), (number for number in ()), [1, 2, 3], (8, 8, 8.0))
    yield from (["block_m"], ["block_m"] * 2, [None], [Stubborn()], {1: 2}, {Unprintable(): 1}, {"x" * 10_000: 1})
    yield from ({"block_m": 128}, {"block_n": 64}, {"block_n": 64.0}, {"block_n": 10**5000}, {"dtype": "float16"})
    yield from ({"block_n": value} for value in (None, Stubborn(), Unprintable(), np.zeros(3), torch.zeros(8), "64"))


def odd_objects():
    yield from (None, ..., NotImplemented, Exception(), object(), Unprintable(), Stubborn(), Closed(), LongName())
    yield from (mock.Mock(), mock.MagicMock(), types.SimpleNamespace(script_cls=int, pins={}))
    yield from (object, int, type, LongName, torch.Tensor, np.ndarray, torch, os, torch.float16, len, print, max)
    yield from (lambda: None, lambda *args: None, functools.partial(int))


def odd_arrays():
    yield from (
        np.zeros(3),
        np.zeros((8, 8), "float16"),
        np.array("x"),
        np.array(8),
        np.array([None]),
        np.zeros((0, 8)),
    )


def odd_tensors():
    dtypes = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool, torch.complex64, torch.float8_e5m2]
    yield from (torch.zeros(8, 8, dtype=dtype) for dtype in dtypes)
    yield from (torch.zeros(shape, dtype=torch.float16) for shape in [(), (8,), (0, 8), (8, 0), (7, 9), (8, 8, 1)])
    yield torch.zeros(8, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    ones = torch.ones(8, 8, dtype=torch.float16)
    yield from (ones.T, ones[:1].expand(8, 8), ones.repeat(2, 1)[::2], torch.ones(65, dtype=ones.dtype)[1:].view(8, 8))
    yield from (ones * math.inf, ones * math.nan, ones.clone().requires_grad_(), torch.nn.Parameter(ones.clone()))
    yield from (ones.to("meta"), ones.to_sparse(), ones.to_sparse_csr(), ones.float().to_mkldnn())
    yield from (torch._neg_view(ones), torch.ones(8, 8, dtype=torch.complex64).conj(), ones.as_subclass(Flavoured))
    yield from (torch.nested.nested_tensor([ones]), torch.nested.nested_tensor([ones], layout=torch.jagged))
    yield from (torch.quantize_per_tensor(ones.float(), 0.1, 0, torch.qint8), FakeTensorMode().from_tensor(ones))
    with torch.inference_mode():
        yield torch.zeros(8, 8, dtype=torch.float16)


def our_own():
    yield from (b.Problem(8, 8, 8), b.Schedule(), b.Schedule(block_m=128), b.Schedule(block_m=3), GPUS["H100"])
    yield from (b.Script, tilus.Script, Scale, Scale(), b.BlackwellMatmulV1, b.BlackwellMatmulV2(block_n=64), b.Problem)
    yield types.SimpleNamespace(script_cls=b.BlackwellMatmulV1, pins={"block_n": Stubborn()})


def anything() -> st.SearchStrategy[Garbage]:
    knobs = st.sampled_from(["block_m", "block_n", "block_k", "e_block_n", "stages", "dtype", "x"])
    no_size = st.integers().filter(lambda number: not 2**16 < number < 2**31)  # of a product a long one
    return st.one_of(
        st.sampled_from([Garbage(value) for value in odd_values()]),
        st.one_of(st.integers(-3, 300), no_size, st.floats(), st.text(max_size=20), st.binary(max_size=5)).map(Garbage),
        st.dictionaries(knobs, st.integers(-9, 300), max_size=3).map(Garbage),
    )


class Scale(tilus.Script):
    """A script of the user's, with a parameter of each kind."""

    def __init__(self, warps: int = 1):
        super().__init__()
        self.warps = warps

    def __call__(self, n: int, label: str, flip: bool, factor: float, m: int32, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        self.store_global(g_y, self.load_global(g_x, offsets=[0, 0], shape=[8, 8]) * factor, offsets=[0, 0])


def half(fill=1.0):
    return torch.full((8, 8), fill, dtype=torch.float16)


PROBLEM, FULL = b.Problem(8, 8, 8), b.Schedule(128, 64, 16, 16, 2)


def operands() -> dict[str, Any]:
    return {"m": 8, "n": 8, "k": 8, "a": half(), "b": half(), "c": half()}


def simulate_v1(m, n, k, a, b, c, script, **options: Any) -> Any:
    return simulate(script, m, n, k, a, b, c, **options)


def simulate_scale(n, label, flip, factor, m, x, y, **options: Any) -> Any:
    return simulate(Scale, n, label, flip, factor, m, x, y, workers=1, **options)


def scale_arguments() -> dict[str, Any]:
    call = {"n": 8, "label": "x", "flip": False, "factor": 2.0, "m": 8, "x": half(), "y": half()}
    return {**call, "schedule": {"warps": 1}, "target": "sm_100a"}


def scaled() -> dict[str, Any]:
    eights = torch.ones(16, 16).to(torch.float8_e4m3fn)
    return {"input": eights, "mat2": eights.T, "scale_a": torch.ones(1), "scale_b": torch.ones(1)}


PTX = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n, .param .f32 f) { ret; }
"""


def ptx_arguments() -> dict[str, Any]:
    call = {"code": PTX, "x": half(), "n": 8, "f": 1.0, "grid": None, "block": 32, "cluster": None, "shared_bytes": 0}
    return {**call, "kernel": None, "seed": 0, "limit": None}


def emulate_ptx(code, x, n, f, **options: Any) -> Any:
    return b.emulate(code, x, n, f, **options)


def check_ptx(code, x, n, f, **options: Any) -> Any:
    return b.check_ptx(code, x, n, f, **options)


def limited(steps, seconds, bytes) -> Any:
    return b.emulate(PTX, half(), 8, 1.0, limit=Limit(steps, seconds, bytes))


def compile_many(m, n, k, a, b, c, script, **options: Any) -> Any:
    return compiler.compile_many(script, m, n, k, a, b, c, **options)


@functools.cache
def with_marks() -> b.Bundle:
    return b.compile("h1", 8, 8, 8, timeline=64)


@functools.cache
def written() -> torch.Tensor:
    """The buffer of an emulated launch."""
    arguments = (8, half(), half(), half())
    buffer = b.timeline_buffer(with_marks(), *arguments)
    b.emulate(with_marks(), *arguments, buffer)
    return buffer


@dataclass(frozen=True)
class Target:
    """A public function, and keyword arguments that are right."""

    function: Callable[..., Any]
    right: Callable[[], dict[str, Any]]


CALL = {"kernel": "v1", "m": 8, "n": 8, "k": 8, "dtype": "fp16", "schedule": None}
HARNESS = {"seed": 0, "target": "sm_100a", "policy": "eager", "workers": 1, "progress": None}
CALLS = {
    "Problem": Target(b.Problem, lambda: {"m": 8, "n": 8, "k": 8, "dtype": "fp16"}),
    "Schedule": Target(b.Schedule, lambda: FULL.as_dict()),
    "Schedule.parse": Target(b.Schedule.parse, lambda: {"text": "block_m=128"}),
    "rung": Target(kernels.rung, lambda: {"name": "v1"}),
    "parse_schedule": Target(kernels.parse_schedule, lambda: {"name": "v1", "text": "block_m=128"}),
    "gpu_for_target": Target(gpu_for_target, lambda: {"target": "sm_100a"}),
    "projection": Target(space.projection, lambda: {"rung": b.BlackwellMatmulV1}),
    "why_not": Target(rules.why_not, lambda: {"schedule": FULL, "problem": PROBLEM, "gpu": GPUS["B200"]}),
    "choose": Target(
        space.choose, lambda: {"rung": b.BlackwellMatmulV1, "problem": PROBLEM, "gpu": GPUS["B200"], "pins": {}}
    ),
    "make_inputs": Target(make_inputs, lambda: {"problem": PROBLEM, "seed": 0}),
    "check_matmul": Target(
        b.check_matmul,
        lambda: {"a": half(), "b": half(), "c": half(8), "tile_m": 128, "tile_n": 8, "finishing": None},
    ),
    "compare": Target(lambda **given: compare("y", **given), lambda: {"actual": half(), "expected": half()}),
    "schedules": Target(b.schedules, lambda: {**CALL, "gpu": "B200"}),
    "run_matmul": Target(b.run_matmul, lambda: {**CALL, **HARNESS}),
    "check": Target(b.check, lambda: {**CALL, "orders": 1, "seed": 0, "strict": False, "workers": 1}),
    "compile": Target(b.compile, lambda: {**CALL, "target": "sm_100a", "timeline": None}),
    "timeline_buffer": Target(
        lambda bundle, m, a, c: b.timeline_buffer(bundle, m, a, half(), c),
        lambda: {"bundle": with_marks(), "m": 8, "a": half(), "c": half()},
    ),
    "measured_timeline": Target(
        b.measured_timeline, lambda: {"bundle": with_marks(), "buffer": written().clone(), "gpu": "H200", "sm": 0}
    ),
    "run_script": Target(
        b.run_script,
        lambda: {"script": b.BlackwellMatmulV1, "size": (8, 8, 8), "dtype": "fp16", "schedule": None, **HARNESS},
    ),
    "predict": Target(
        b.predict,
        lambda: {**CALL, "target": "B200", "ghz": 1.5},
    ),
    "trace": Target(
        b.trace,
        lambda: {**CALL, "gpu": "B200"},
    ),
    "simulate": Target(
        simulate_v1,
        lambda: {**operands(), "script": b.BlackwellMatmulV1, "schedule": None, **HARNESS, "trace": False},
    ),
    "simulate a script": Target(simulate_scale, scale_arguments),
    "V0": Target(lambda **given: b.BlackwellMatmulV0()(**given), operands),
    "V1": Target(lambda **given: b.BlackwellMatmulV1(block_n=64)(**given), operands),
    "V2 knobs": Target(
        lambda **given: b.BlackwellMatmulV2(**given)(**operands()), lambda: {"block_n": 64, "block_k": 16, "stages": 2}
    ),
    "Epilogue": Target(
        b.Epilogue, lambda: {"bias": True, "activation": "gelu", "scale": "none", "alpha": 2, "beta": 1}
    ),
    "Epilogue.parse": Target(b.Epilogue.parse, lambda: {"text": "bias,gelu", "alpha": 2.0}),
    "Form": Target(b.Form, lambda: {"a_major": "m", "b_stride": 8, "out": "fp32", "epilogue": b.Epilogue()}),
    "form of run_matmul": Target(
        lambda form: b.run_matmul("blackwell", 8, 8, 8, form=form, target="sm_100a", workers=1),
        lambda: {"form": b.Epilogue()},
    ),
    "emulate": Target(emulate_ptx, lambda: {**ptx_arguments(), "order": "late", "unwritten": None, "listener": None}),
    "check_ptx": Target(check_ptx, lambda: {**ptx_arguments(), "orders": ("eager",)}),
    "Limit": Target(limited, lambda: {"steps": 1000, "seconds": 10, "bytes": 1 << 20}),
    "compile_many": Target(
        compile_many,
        lambda: {**operands(), "script": b.BlackwellMatmulV1, "schedules": [], "target": "sm_100a", "workers": 1},
    ),
    "rank": Target(
        lambda **given: tuner.rank(most=0, **given),
        lambda: {"rung": "v1", "problem": PROBLEM, "gpu": "B200", "progress": None, "executor": "", "rows": None},
    ),
    "matmul": Target(b.matmul, lambda: {"input": half(), "other": half(), "simulate": False}),
    "linear": Target(
        b.linear,
        lambda: {"input": half(), "weight": half(), "bias": half()[0], "activation": "gelu", "simulate": False},
    ),
    "bmm": Target(b.bmm, lambda: {"input": half()[None], "mat2": half()[None], "simulate": False}),
    "baddbmm": Target(
        b.baddbmm,
        lambda: {
            "input": half(),
            "batch1": half()[None],
            "batch2": half()[None],
            "beta": 2,
            "alpha": 1,
            "simulate": False,
        },
    ),
    "scaled_mm": Target(b.scaled_mm, lambda: {**scaled(), "out_dtype": torch.float16, "simulate": False}),
    "grouped_matmul": Target(
        b.grouped_matmul,
        lambda: {"mat_a": half(), "mat_b": half()[None], "offs": torch.tensor([8]).int(), "simulate": False},
    ),
    "copies": Target(b.copies, lambda: {"a": half(), "b": half()}),
    "fused_linear": Target(b.fused_linear, lambda: {"backend": "eager", "simulate": False}),
}


def shared_state() -> tuple[Any, ...]:
    """What a call must leave as it was."""
    builder = importlib.import_module("tilus.lang.transpiler.builder")
    return (
        importlib.import_module("tilus.target")._target,
        builder._current_scope,
        len(builder._scope_stack),
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.random.get_rng_state().sum().item(),
        tuple(sys.path),
        sys.dont_write_bytecode,
        sys.stdout,
        sys.stderr,
        os.getcwd(),
        sorted(os.listdir()),
        len(multiprocessing.active_children()),
        len(threading.enumerate()),
    )


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attack(call: Target, wrong: Mapping[str, Any]) -> None:
    """One call, which has to end in an answer or in a sentence and to leave everything as it was."""
    before = shared_state()
    try:
        call.function(**{**call.right(), **wrong})
    except b.BlackwellMatmulError as error:
        one_sentence(error, LONGEST_SENTENCE)
    assert shared_state() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_every_odd_value_in_every_place_gets_an_answer_or_a_sentence(name):
    call = CALLS[name]
    for argument in call.right():
        for value in odd_values():
            try:
                attack(call, {argument: value})
            except Exception as error:
                raise AssertionError(f"{name}({argument}={Garbage(value)})") from error


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_several_odd_values_at_once_get_an_answer_or_a_sentence(name):
    call = CALLS[name]

    @cases(10)
    @given(st.dictionaries(st.sampled_from(sorted(call.right())), anything(), min_size=1, max_size=3))
    def attack_with(wrong: dict[str, Garbage]) -> None:
        attack(call, {name: garbage.value for name, garbage in wrong.items()})

    attack_with()


@pytest.mark.parametrize(
    "call",
    [
        lambda: b.compile("v1", 8, 8, 8, cache=3),
        lambda: b.compile_many(b.BlackwellMatmulV1, *operands().values(), schedules=[{}], cache=None),
        lambda: b.predict("v1", 8, 8, 8, explained="yes"),
        lambda: b.simulate(b.BlackwellMatmulV1, *operands().values(), checks=torch.tensor([1, 2])),
        lambda: b.check("v1", 8, 8, 8, strict=1),
    ],
)
def test_a_switch_is_true_or_false(call: Callable[[], Any]) -> None:
    with pytest.raises(b.InputError, match=r"^\w+ is .*; it must be True or False\.$"):
        call()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"schedules": 3}, {"schedules": "block_n=64"}, {"schedules": {}}, {"schedules": np.zeros(3)}),
        *({"workers": 2**70}, {"progress": len}, {"target": "sm_1"}),
    ],
)
def test_compile_many_says_which_option_is_wrong(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(b.InputError, match=f"^{name} is .*; it must be "):
        b.compile_many(b.BlackwellMatmulV1, *operands().values(), **{"schedules": [{}], **wrong})


@pytest.mark.parametrize(
    ("script", "given", "text"),
    [
        (3, operands(), "3 is no kernel"),
        (b.BlackwellMatmulV1, {"m": 8, "n": 8, "k": 8}, "BlackwellMatmulV1 takes 6 arguments .* but got 3"),
        (b.BlackwellMatmulV1, {**operands(), "m": "8"}, "m of BlackwellMatmulV1 is '8'"),
    ],
)
def test_compile_many_raises_what_no_schedule_can_mend(script: Any, given: dict[str, Any], text: str) -> None:
    with pytest.raises(b.InputError, match=f"^{text}"):
        b.compile_many(script, *given.values(), schedules=[{}, {}])


OPTIONS = {
    "run": [
        *("--size", "--dtype", "--schedule", "--seed", "--target", "--policy", "--workers", "--json"),
        *("--layout", "--epilogue", "--alpha", "--beta", "--out", "--batch"),
    ],
    "schedules": ["--size", "--dtype", "--gpu", "--target", "--all", "--json"],
}
WORDS = st.one_of(
    st.text(max_size=12),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["8", "8", "8", "1", "0", "bf16", "fp16", "eager", "random", "B200", "sm_100a", "sm_90a", "block_n=64"]
    ),
    st.sampled_from(
        ["", "-", "--", "=", ",", "block_n=9,", "\udcff", "\x1b[2J", "[red]", "９", "nan", "9" * 400, "x.py:Y"]
    ),
    st.sampled_from(["/dev/zero.py:X", ".py", "/", "~", "$HOME", "`id`", "%s", "{0}", "a\nb", "v1"]),
)


@st.composite
def command_lines(draw: Callable[..., Any]) -> list[str]:
    """A command with a rung, a small size, and options that are often what they should not be."""
    command = draw(st.sampled_from(sorted(OPTIONS)))
    line = [command, draw(st.one_of(st.sampled_from(["v0", "v1", "v2", "blackwell"]), WORDS)), "--size", "8", "8", "8"]
    for option in draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
        line += [option, *draw(st.lists(WORDS, max_size=3 if option == "--size" else 1))]
    return line


@pytest.mark.slow
def test_a_command_line_of_garbage_ends_in_one_sentence_and_exit_code_2(capsys, monkeypatch):
    monkeypatch.setenv("HOSTILE", "1")

    @cases(120)
    @given(command_lines())
    def attack(argv: list[str]) -> None:
        before = shared_state()
        code = cli.main(argv)
        out, err = capsys.readouterr()
        assert code in (0, 1, 2) and "Traceback" not in out + err and "a fault of" not in err, err
        if code == 2:
            assert err.startswith("error: ") and err.count("\n") == 1, err
            told = [f"error: {terminal.printable(json.loads(line)['error'])}\n" for line in out.splitlines()]
            assert told == [err] * ("--json" in argv)
        else:
            assert err == "" and out
        assert shared_state() == before

    attack()


MEASURING = {
    "bench": ["--suite", "--size", "--rungs", "--dtype", "--rounds", "--repetitions", "--limit", "--bundles", "--draw"],
    "tune": ["--size", "--dtype", "--budget", "--top", "--limit"],
}


@st.composite
def measuring_lines(draw: Callable[..., Any]) -> list[str]:
    command = draw(st.sampled_from(sorted(MEASURING)))
    line = [command] if command == "bench" else [command, draw(st.one_of(st.sampled_from(["v0", "h5", "g0"]), WORDS))]
    for option in draw(st.lists(st.sampled_from(MEASURING[command]), max_size=4)):
        line += [option, *draw(st.lists(WORDS, max_size=3 if option == "--size" else 1))]
    return line


@pytest.mark.slow
def test_measuring_without_a_gpu_or_with_garbage_is_one_sentence_and_leaves_nothing(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(detect, "detect", tuple)  # other tests may have loaded a driver that only records

    @cases(75)
    @given(measuring_lines())
    def attack(argv: list[str]) -> None:
        code = cli.main(argv)
        out, err = capsys.readouterr()
        assert code == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1, (argv, code, err)
        assert "Traceback" not in err and "a fault of" not in err, (argv, err)
        assert list(tmp_path.iterdir()) == []

    attack()


SOURCE = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                "import tilus\n",
                "from tilus import int32, float16, void_p\n",
                "class X(tilus.Script):\n",
                "    def __call__(self, m: int, n: int, k: int, a: void_p, b: void_p, c: void_p):\n",
                "    def __call__(self, m: int32, n: int, k, a: ~float16):\n",
                "    def __init__(self, stages: int):\n",
                "        super().__init__()\n",
                "        self.attrs.blocks = 1\n",
                "        self.attrs.blocks = [m, 0]\n",
                "        self.attrs.warps = 4\n",
                "        self.sync()\n",
                "        x: int32 = 0\n",
                "        for i in range(m):\n            self.sync()\n",
                "        1 / 0\n",
                "        import os\n",
                "        g = self.global_view(c, dtype=float16, shape=[m, n])\n",
                "        self.store_global(g, self.load_global(g, offsets=[0, 0], shape=[8, 8]), offsets=[0, 0])\n",
                "        return 3\n",
                "        pass\n",
                "X = 3\n",
                "def example_args(m=8, n=8, k=8): return m, n, k\n",
                "def reference(*args): return {}\n",
                "raise KeyboardInterrupt from None\n".replace("KeyboardInterrupt", "Exception('x\\ny')"),
                "tolerance = float('nan'), 1\n",
            ]
        ),
        max_size=9,
    ).map("".join),
)


def test_a_file_of_garbage_is_run_or_refused_in_one_sentence(empty_folder):
    file = empty_folder / "script.py"
    file.write_text("")

    @cases(60)
    @given(SOURCE, st.sampled_from(["", ":X"]))
    def attack(text: str, script: str) -> None:
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        before = shared_state()
        try:
            b.run_script(f"{file}{script}", (8, 8, 8), workers=1)
        except b.BlackwellMatmulError as error:
            one_sentence(error, LONGEST_SENTENCE)
        assert shared_state() == before

    attack()
