"""A hostile user: every public function and every option of the command line, with generated garbage.

Whatever comes in, there is an answer or an error of this package in one sentence; no file and no process is left
behind, and nothing that the process shares (tilus's target, torch's settings, sys.path) is changed. Each function is
called rightly but for some of its arguments. `bench/hostile.py` runs the same with thousands of cases.
"""

import decimal
import importlib
import math
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import blackwell_matmul as b
from blackwell_matmul import cli, kernels
from blackwell_matmul.gpus import GPUS, gpu_for_target
from blackwell_matmul.harness import make_inputs
from blackwell_matmul.harness.outputs import compare
from blackwell_matmul.kernels import space

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


def numpy_values():
    return st.sampled_from(
        [np.int64(8), np.float32(8), np.zeros(3), np.zeros((8, 8), "float16"), np.array("x"), np.nan]
    )


def tensors():
    dtype = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.int8, torch.bool, torch.complex64])
    shape = st.lists(st.sampled_from([0, 1, 7, 8, 9]), max_size=3)
    device = st.sampled_from(["cpu", "cpu", "cpu", "meta"])
    return st.builds(lambda d, s, on: torch.zeros(s, dtype=d, device=on), dtype, shape, device)


def odd_tensors():
    half = torch.float16
    return st.sampled_from(
        [
            torch.zeros(16, 8, dtype=half)[::2],
            torch.zeros(8, 8, dtype=half).T,
            torch.zeros(65, dtype=half)[1:].view(8, 8),
            torch.zeros(1, 8, dtype=half).expand(8, 8),
            torch.zeros(8, 8, dtype=half).to_sparse(),
            torch.zeros(8, 8, dtype=half, requires_grad=True),
            torch.full((8, 8), math.inf, dtype=half),
            torch.zeros(8, 8, dtype=half).conj(),
            torch.nn.Parameter(torch.zeros(8, 8, dtype=half)),
        ]
    )


GARBAGE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 300),
    st.sampled_from([10**5000, -(10**5000), 2**31, 2**63, 2**64]),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["", "\0", "\ud800", "x\ny", "x" * 10_000, "９", "sm_90a", "sm_100a", "fp16", "v1", "block_m=1", ".py:"]
    ),
    st.binary(max_size=5),
    st.sampled_from(
        [[], {}, (), set(), [[]], {"block_m": 128}, {"block_n": 64}, {1: 2}, {"x": None}, ["block_m"], [1, 2, 3]]
    ),
    st.dictionaries(
        st.sampled_from(["block_m", "block_n", "stages", "dtype", "x", 3]), st.integers(-9, 300), max_size=3
    ),
    st.sampled_from(
        [object(), int, object, len, Ellipsis, NotImplemented, 1j, decimal.Decimal(3), range(3), Exception()]
    ),
    st.builds(Unprintable),
    st.builds(Stubborn),
    numpy_values(),
    tensors(),
    odd_tensors(),
    st.sampled_from(
        [b.Problem(8, 8, 8), b.Schedule(block_m=128), b.Schedule(block_m=3), GPUS["H100"], b.BlackwellMatmulV1]
    ),
    st.sampled_from([b.BlackwellMatmulV2(block_n=64), b.Script, torch.float16, torch, os]),
)


def half(fill=1.0):
    return torch.full((8, 8), fill, dtype=torch.float16)


PROBLEM, FULL = b.Problem(8, 8, 8), b.Schedule(128, 64, 16, 16, 2)


def operands() -> dict[str, Any]:
    return {"m": 8, "n": 8, "k": 8, "a": half(), "b": half(), "c": half()}


def simulate_v1(**given: Any) -> Any:
    arguments = {name: given.pop(name) for name in ("m", "n", "k", "a", "b", "c")}
    return b.simulate(given.pop("script"), *arguments.values(), **given)


@dataclass(frozen=True)
class Target:
    """A public function, and keyword arguments that are right."""

    function: Callable[..., Any]
    right: Callable[[], dict[str, Any]]


HARNESS = {"seed": 0, "target": "sm_100a", "policy": "eager", "workers": 1, "progress": None}
CALLS = {
    "Problem": Target(b.Problem, lambda: {"m": 8, "n": 8, "k": 8, "dtype": "fp16"}),
    "Schedule.parse": Target(b.Schedule.parse, lambda: {"text": "block_m=128"}),
    "rung": Target(kernels.rung, lambda: {"name": "v1"}),
    "gpu_for_target": Target(gpu_for_target, lambda: {"target": "sm_100a"}),
    "projection": Target(space.projection, lambda: {"rung": b.BlackwellMatmulV1}),
    "why_not": Target(space.why_not, lambda: {"schedule": FULL, "problem": PROBLEM, "gpu": GPUS["B200"]}),
    "choose": Target(
        space.choose, lambda: {"rung": b.BlackwellMatmulV1, "problem": PROBLEM, "gpu": GPUS["B200"], "pins": {}}
    ),
    "make_inputs": Target(make_inputs, lambda: {"problem": PROBLEM, "seed": 0}),
    "check_matmul": Target(
        b.check_matmul, lambda: {"a": half(), "b": half(), "c": half(8), "tile_m": 128, "tile_n": 8}
    ),
    "compare": Target(lambda **given: compare("y", **given), lambda: {"actual": half(), "expected": half()}),
    "schedules": Target(b.schedules, lambda: {"rung": "v1", "problem": PROBLEM, "gpu": "B200"}),
    "run_matmul": Target(b.run_matmul, lambda: {"rung": "v1", "problem": PROBLEM, "schedule": None, **HARNESS}),
    "run_script": Target(
        b.run_script,
        lambda: {"script": b.BlackwellMatmulV1, "size": (8, 8, 8), "dtype": "fp16", "schedule": None, **HARNESS},
    ),
    "simulate": Target(
        simulate_v1,
        lambda: {**operands(), "script": b.BlackwellMatmulV1, "schedule": None, **HARNESS, "trace": False},
    ),
    "V0": Target(lambda **given: b.BlackwellMatmulV0()(**given), operands),
    "V1": Target(lambda **given: b.BlackwellMatmulV1(block_n=64)(**given), operands),
    "V2 knobs": Target(
        lambda **given: b.BlackwellMatmulV2(**given)(**operands()), lambda: {"block_n": 64, "block_k": 16, "stages": 2}
    ),
}

NOT_YET = dict.fromkeys(
    [
        "Problem",
        "Schedule.parse",
        "rung",
        "gpu_for_target",
        "projection",
        "why_not",
        "choose",
        "run_matmul",
        "run_script",
    ]
    + ["simulate", "V0", "V1", "V2 knobs"],
    "problem.py, gpus.py, kernels/, bind.py, tilus_compat.py, simulate.py: values that cannot be compared or printed",
)
"""Functions with a known fault, and the fault."""


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


def require_sentence(error: Exception) -> None:
    text = str(error)
    assert text.endswith(".") and "\n" not in text and "Traceback" not in text, text
    assert len(text) <= LONGEST_SENTENCE, f"{len(text)} characters: {text}"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", CALLS)
def test_garbage_gets_an_answer_or_a_sentence(name, request):
    if name in NOT_YET and not EXAMPLES:
        request.applymarker(pytest.mark.xfail(reason=NOT_YET[name], strict=False))
    call = CALLS[name]
    names = sorted(call.right())

    @cases(40)
    @given(st.dictionaries(st.sampled_from(names), GARBAGE, min_size=1, max_size=2))
    def attack(wrong: dict[str, Any]) -> None:
        before = shared_state()
        try:
            call.function(**{**call.right(), **wrong})
        except b.BlackwellMatmulError as error:
            require_sentence(error)
        assert shared_state() == before

    attack()


OPTIONS = {
    "run": ["--size", "--dtype", "--schedule", "--seed", "--target", "--policy", "--workers", "--json"],
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
    line = [command, draw(st.one_of(st.sampled_from(["v0", "v1", "v2"]), WORDS)), "--size", "8", "8", "8"]
    for option in draw(st.lists(st.sampled_from(OPTIONS[command]), max_size=3)):
        line += [option, *draw(st.lists(WORDS, max_size=3 if option == "--size" else 1))]
    return line


def test_a_command_line_of_garbage_ends_in_one_sentence_and_exit_code_2(capsys, monkeypatch):
    monkeypatch.setenv("HOSTILE", "1")

    @cases(250)
    @given(command_lines())
    def attack(argv: list[str]) -> None:
        before = shared_state()
        code = cli.main(argv)
        out, err = capsys.readouterr()
        assert code in (0, 1, 2) and "Traceback" not in out + err and "a fault of" not in err, err
        if code == 2:
            assert out == "" and err.startswith("error: ") and err.count("\n") == 1, err
        else:
            assert err == "" and out
        assert shared_state() == before

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

    @cases(120)
    @given(SOURCE, st.sampled_from(["", ":X"]))
    def attack(text: str, script: str) -> None:
        file.write_bytes(text.encode("utf-8", "surrogatepass"))
        before = shared_state()
        try:
            b.run_script(f"{file}{script}", (8, 8, 8), workers=1)
        except b.BlackwellMatmulError as error:
            require_sentence(error)
        assert shared_state() == before

    attack()
