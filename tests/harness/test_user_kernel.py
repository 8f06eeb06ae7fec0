"""Scripts from a user's own file: both conventions, schedules of any kind, and a sentence for every bad file."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from blackwell_matmul import BlackwellMatmulError, InputError, Result, ScriptResult, run_script, schedules
from blackwell_matmul.harness.calls.user_kernel import importable
from blackwell_matmul.problem.problem import Problem
from tests.sentences import one_sentence

MATMUL = """
import tilus
from tilus import DataType, bfloat16, float16, float32, int32, void_p
from tilus.utils import cdiv


class OuterProduct(tilus.Script):
    def __init__(self, block: int = 32, waits: bool = True, scale: float = 1.0, label: str = "none", free=None):
        super().__init__()
        self.block, self.waits = block, waits

    def __call__(self, rows: int32, columns: int, depth: int, x_ptr: POINTER, w_ptr: POINTER, y_ptr: POINTER):
        self.attrs.blocks = [cdiv(rows, self.block), cdiv(columns, self.block)]
        self.attrs.warps = 4
        row: int32 = self.blockIdx.x * self.block
        column: int32 = self.blockIdx.y * self.block
        g_x = self.global_view(x_ptr, dtype=TYPE, shape=[rows, depth])
        g_w = self.global_view(w_ptr, dtype=TYPE, shape=[columns, depth])
        g_y = self.global_view(y_ptr, dtype=TYPE, shape=[rows, columns])
        s_x = self.shared_tensor(dtype=TYPE, shape=[self.block, 32])
        s_w = self.shared_tensor(dtype=TYPE, shape=[self.block, 32])
        acc = self.register_tensor(dtype=float32, shape=[self.block, self.block], init=0.0)
        for k in range(0, depth, 32):
            self.copy_async(g_x, s_x, offsets=[row, k])
            self.copy_async(g_w, s_w, offsets=[column, k])
            self.copy_async_commit_group()
            if self.waits:
                self.copy_async_wait_group(0)
            self.sync()
            acc = self.dot(self.load_shared(s_x), self.load_shared(s_w).transpose(), acc)
            self.sync()
        self.copy_async_wait_group(0)
        self.store_global(g_y, acc.to(TYPE), offsets=[row, column])
"""

DOUBLE = """
import torch, tilus
from tilus import float32, int32

FACTOR = 2.0

class Double(tilus.Script):
    def __init__(self, rows: int = 32):
        super().__init__()
        self.rows = rows

    def __call__(self, m: int32, n: int, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [(m + self.rows - 1) // self.rows]
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, n])
        first: int32 = self.blockIdx.x * self.rows
        tile = self.load_global(g_x, offsets=[first, 0], shape=[self.rows, 16])
        self.store_global(g_y, tile * 2.0, offsets=[first, 0])
"""

ARGS = """
def example_args(m=40, n=16, k=0):
    x = torch.randn(m, n)
    return m, n, x, torch.empty_like(x)
"""

REFERENCE = """
def reference(m, n, x, y):
    x *= 2  # a copy: the kernel does not see it
    return {"y_ptr": x}
"""


def matmul(pointer="~float16", element="float16"):
    return MATMUL.replace("POINTER", pointer).replace("TYPE", element)


@pytest.fixture
def write(tmp_path):
    def make(text, name="my_kernel.py"):
        file = tmp_path / name
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(file)

    return make


@pytest.fixture
def command(command_line):
    return command_line


def test_a_tensor_that_a_kernel_without_strides_takes_as_row_major_is_refused(write):
    args = ARGS.replace("torch.randn(m, n)", "torch.randn(n, m).T").replace("empty_like(x)", "empty(m, n)")
    assert refused(write(DOUBLE + args + REFERENCE), (16, 16, 1)) == (
        "x_ptr of Double is a transposed view of shape [16, 16] with strides (1, 16), and Double takes x_ptr as "
        "row-major: pass x_ptr.contiguous(), or give its views strides."
    )


def test_a_wrong_result_names_a_tensor_that_is_not_what_the_kernel_takes_it_as(write):
    args = ARGS.replace("torch.randn(m, n)", "torch.randn(n, m).T").replace("empty_like(x)", "empty(m, n)")
    taking = DOUBLE.replace("shape=[m, n])", "shape=[m, n], strides=[m, 1])", 1)
    result = run_script(write(taking + args + REFERENCE), (16, 16, 1))
    assert not result.ok
    blamed = (
        "x_ptr is a transposed view of shape [16, 16] with strides (1, 16); the kernel takes it as row-major [16, 16]"
    )
    assert result.message.endswith(f"; {blamed}: pass x_ptr.contiguous().")
    assert blamed in str(result) and blamed in result.as_dict()["verdict"]
    unchecked = run_script(write(taking + args), (16, 16, 1))
    assert unchecked.ok and unchecked.message.startswith(f"not checked: no reference; {blamed}")


def refused(*args, **options):
    with pytest.raises(InputError) as caught:
        run_script(*args, **options)
    return one_sentence(caught.value)


# --- C = A @ B.T


@pytest.mark.parametrize(
    "pointer, element, dtype", [("~float16", "float16", "fp16"), ("~bfloat16", "bfloat16", "bf16")]
)
def test_typed_pointers_decide_the_type(write, pointer, element, dtype):
    result = run_script(write(matmul(pointer, element)), (40, 48, 64))
    assert isinstance(result, Result) and result.ok, str(result)
    assert (result.kernel, result.problem) == ("OuterProduct", Problem(40, 48, 64, dtype))


def test_void_pointers_leave_the_type_to_the_user(write):
    file = write(matmul("void_p", "bfloat16")) + ":OuterProduct"
    assert run_script(file, (32, 32, 32), "bf16").ok
    assert not run_script(file, (32, 32, 32)).ok  # fp16 bits read as bf16


def test_a_type_that_the_pointers_contradict_is_refused(write):
    assert "dtype is 'bf16' and OuterProduct is called with x_ptr: ~float16" in refused(write(matmul()), dtype="bf16")
    assert "x_ptr: ~float32; as a matmul" in refused(write(matmul("~float32", "float32")))


def test_a_missing_wait_is_shown_with_its_lines(write, command, monkeypatch):
    file = Path(write(matmul()))
    monkeypatch.chdir(file.parent)
    code, out, err = command(
        "run", f"{file.name}:OuterProduct", "--size", "32", "32", "64", "--schedule", "waits=false"
    )
    assert code == 1 and err == "" and "OuterProduct  32x32x64 fp16  block=32,waits=False" in out
    line = next(i for i, text in enumerate(matmul().splitlines(), 1) if "self.copy_async(g_x" in text)
    assert "  error read-before-complete  seen " in out
    assert f"    my_kernel.py:{line} | self.copy_async(g_x, s_x, offsets=[row, k])\n" in out


def test_a_schedule_may_have_any_argument_of_init(write):
    result = run_script(write(matmul()), (64, 64, 32), schedule="block=64, waits=true,scale=2,label=3,free=1e3")
    assert result.schedule == {"block": 64, "waits": True, "scale": 2.0, "label": "3", "free": 1000.0}
    assert run_script(write(matmul()), (64, 64, 32), schedule={"block": 64, "free": None}).schedule["block"] == 64


@pytest.mark.parametrize(
    "schedule, words",
    [
        ("block=x", "schedule gives block the value 'x'; it must be an integer."),
        ("block=1.5", "the value '1.5'; it must be an integer."),
        ("waits=1", "schedule gives waits the value '1'; it must be true or false."),
        ("scale=true", "the value 'true'; it must be a number."),
        ("block", "schedule has 'block'; it must be NAME=VALUE"),
        ("=1", "it must be NAME=VALUE"),
        ("block=1,block=2", "names 'block' twice"),
        ("blocks=1", "has no schedule parameter 'blocks'; its parameters are block, waits"),
        ("block=" + "9" * 5000, "it must be an integer"),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(write, schedule, words):
    assert words in refused(write(matmul()), (32, 32, 32), schedule=schedule)


def test_a_parameter_without_a_value_is_named_beside_the_others(write):
    file = write(matmul().replace("block: int = 32", "block: int"))
    for given in (None, "scale=2"):
        words = refused(file, (32, 32, 32), schedule=given)
        assert "needs a value for block; give it in the schedule, whose parameters are block, waits" in words


def test_a_subclass_of_a_rung_chooses_from_the_space(write):
    file = write(
        """
        from blackwell_matmul import BlackwellMatmulV1

        class Mine(BlackwellMatmulV1):
            "A rung of my own."
        """
    )
    assert run_script(file, (64, 64, 64), "bf16", "block_n=64").schedule["block_n"] == 64
    listing = schedules(file, Problem(64, 64, 64))
    assert listing.kernel == "Mine" and len(listing.rows) == 72
    with pytest.raises(InputError, match="Double has no knobs of the space"):
        schedules(write(DOUBLE), Problem(64, 64, 64))


def test_a_dtype_that_init_asks_for_is_filled_in(write):
    text = matmul("void_p", "self.dtype").replace("block: int = 32,", "dtype: DataType, block: int = 32,")
    text = text.replace(
        "self.block, self.waits = block, waits", "self.block, self.waits, self.dtype = block, waits, dtype"
    )
    file = write(text)
    assert run_script(file, (32, 32, 32), "bf16").ok
    assert not run_script(file, (32, 32, 32), "bf16", "dtype=float16").ok
    assert "it must be a tilus type such as float16" in refused(file, (8, 8, 8), schedule="dtype=float61")


# --- example_args and reference


def test_a_reference_is_compared_with_the_outputs(write):
    result = run_script(write(DOUBLE + ARGS + REFERENCE))
    assert isinstance(result, ScriptResult) and result.ok and result.correct and result.size is None
    assert str(result).startswith("Double  rows=32  correct: y_ptr is exact  simulated in ")
    assert run_script(write(DOUBLE + ARGS + REFERENCE), (70, 16, 1)).size == (70, 16, 1)


def test_what_m_n_and_k_mean_is_up_to_example_args_and_0_may_be_a_size(write, command):
    file = write(DOUBLE + ARGS + REFERENCE)
    assert run_script(file, (70, 16, 0)).size == (70, 16, 0)
    code, out, _ = command("run", file, "--size", "70", "16", "0")
    assert code == 0 and "70x16x0" in out
    assert command("run", file, "--size", "70", "16", "-1")[2].startswith(
        "error: k is -1; it must be an integer from 0"
    )
    assert command("run", "v1", "--size", "70", "16", "0")[2].startswith("error: k is 0; it must be an integer from 1")


def test_a_wrong_output_is_named_with_its_element(write, command):
    file = write(DOUBLE + ARGS + REFERENCE.replace("x *= 2", "x *= 2; x[7, 3] += 1"))
    code, out, _ = command("run", file)
    assert code == 1
    assert "wrong: 1 of 640 elements of y_ptr beyond rtol 1.3e-06, atol 3.1e-05, largest error 1 at y_ptr[7, 3]" in out
    assert run_script(write(DOUBLE + ARGS + REFERENCE.replace("{", "{3: x + 1e-4} or {") + "tolerance = (0, 1e-3)")).ok


def test_without_a_reference_it_is_run_and_not_checked(write, command):
    file = write(DOUBLE + ARGS)
    code, out, _ = command("run", file)
    assert code == 0 and "Double  rows=32  not checked: no reference  simulated in" in out
    _, out, _ = command("run", file, "--size", "8", "16", "1", "--json")
    record = json.loads(out)
    assert (record["correct"], record["outputs"], record["m"], record["dtype"]) == (None, [], 8, None)


def test_the_seed_gives_the_random_inputs_and_leaves_the_users_own_alone(write):
    file = write(DOUBLE + ARGS + "def reference(m, n, x, y):\n    print(float(x[0, 0]))\n    return {'y_ptr': 2 * x}\n")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    assert run_script(file, seed=1).ok
    assert torch.equal(torch.rand(3), expected)


def test_the_seed_repeats_the_inputs(write, capsys):
    file = write(DOUBLE + ARGS + "def reference(m, n, x, y):\n    print(float(x[0, 0]))\n    return {'y_ptr': 2 * x}\n")
    for seed in (1, 1, 2):
        run_script(file, seed=seed)
    first, again, other = capsys.readouterr().out.split()
    assert first == again != other


def test_a_reference_alone_replaces_the_check_of_a_matmul(write):
    reference = (
        "def reference(m, n, k, a, b, c):\n    return {5: a.double() @ b.double().T}\ntolerance = (1e-2, 1e-2)\n"
    )
    result = run_script(write(matmul() + reference), (32, 32, 32))
    assert isinstance(result, ScriptResult) and result.ok and result.size == (32, 32, 32)


@pytest.mark.parametrize(
    "text, options, words",
    [
        (DOUBLE, {}, "Double is called with (m, n, x_ptr, y_ptr), and nothing says what these are: make it (m, n, k,"),
        (DOUBLE + ARGS, {"dtype": "fp16"}, "Double has example_args, which makes its own; leave it out."),
        (DOUBLE + "example_args = 3", {}, "example_args beside Double is 3; it must be a function."),
        (
            DOUBLE + "def example_args(m, n, k): return m",
            {},
            "cannot be called without a size; it must be example_args(m, n, k)",
        ),
        (DOUBLE + "def example_args(m=1): return m", {"size": (1, 2, 3)}, "does not take M, N and K"),
        (DOUBLE + "def example_args(): return 7", {}, "example_args beside Double returned 7; it must return a tuple."),
        (
            DOUBLE + "def example_args(): return 7, 8",
            {},
            "Double takes 4 arguments (m, n, x_ptr, y_ptr) but got 2 from example_args.",
        ),
        (
            DOUBLE + "def example_args(): return 7, 8, 9\ndef reference(m, n, x_ptr, y_ptr): return {}",
            {},
            "Double takes 4 arguments (m, n, x_ptr, y_ptr) but got 3 from example_args.",
        ),
        (DOUBLE + "def example_args(): 1 / 0", {}, "my_kernel.py:20 raises ZeroDivisionError: division by zero."),
        (DOUBLE + "def example_args(): raise SystemExit", {}, "my_kernel.py:20 raises SystemExit."),
        (DOUBLE + ARGS + "def reference(*a): return a[3]", {}, "return a dict like {'y_ptr': tensor}."),
        (DOUBLE + ARGS + "def reference(*a): return {'z': a[3]}", {}, "names 'z'; its tensors are x_ptr, y_ptr."),
        (DOUBLE + ARGS + "def reference(*a): return {0: a[3]}", {}, "names 0; its tensors are x_ptr, y_ptr."),
        (DOUBLE + ARGS + "def reference(*a): return {3: a[3][0]}", {}, "has shape (16,) and y_ptr has (40, 16)"),
        (
            DOUBLE + ARGS + "def reference(*a): return {3: 'x'}",
            {},
            "the reference of y_ptr is 'x'; it must be a tensor",
        ),
        (
            DOUBLE + "import threading\ndef example_args(): return 1, 1, threading.Lock(), 0\ndef reference(*a): pass",
            {},
            "the arguments of Double cannot be copied for its reference: cannot pickle '_thread.lock' object.",
        ),
        (DOUBLE + ARGS + f"tolerance = 1{'0' * 400}, 0", {}, "tolerance beside Double is an object of type tuple"),
        (DOUBLE + ARGS + "tolerance = 1", {}, "tolerance beside Double is 1; it must be (rtol, atol)"),
        ("from __future__ import annotations\n" + matmul(), {}, "are annotated with text, and tilus needs the types"),
        (matmul(), {"size": (1, 2)}, "size must be three integers"),
        (matmul(), {"size": (1, 2, 0)}, "k is 0; it must be an integer from 1"),
        (matmul(), {"size": "abc"}, "size must be three integers"),
        (matmul(), {"seed": -1}, "seed is -1; it must be an integer from 0"),
        (matmul(), {"schedule": 3}, "schedule is 3; it must be a Schedule"),
    ],
)
def test_conventions_that_are_not_kept_get_one_sentence(write, text, options, words):
    got = refused(write(text), **options)
    assert words in got, got


CLASS = """
import tilus
from tilus import int32, void_p

class Odd(tilus.Script):
    MEMBER
    def __call__(self, m: int32, n: int, k: int, a: void_p, b: void_p, c: void_p):
        self.attrs.blocks = BLOCKS
        self.attrs.warps = 1
        STATEMENT
"""


def odd(member="x = 0", blocks="1", statement="self.sync()"):
    return CLASS.replace("MEMBER", member).replace("BLOCKS", blocks).replace("STATEMENT", statement)


@pytest.mark.parametrize(
    "text, words",
    [
        (odd("__init__ = None"), "__init__ of Odd is None; it must be a function with self."),
        (odd() + "    __call__ = staticmethod(__call__)", "__call__ of Odd is <staticmethod("),
        (odd("def __init__(self): raise SystemExit(0)"), "Odd exits while it is compiled; a kernel cannot."),
        (odd("debug_schedule = [1]"), "debug_schedule of Odd is [1]; it must be a dict."),
        (odd("_autotune_space = 3"), "_autotune_space of Odd is 3; it must be a dict."),
        (odd("_autotune_space = {'x': []}"), "The autotune space of Odd has no schedule."),
        (odd("complete = lambda *args: 3"), "complete of Odd returned 3; it must return a dict."),
        (odd("complete = lambda *args: 1 / 0"), "complete of Odd raises ZeroDivisionError: division by zero."),
        (
            odd(statement="assert m > 9"),
            "Odd does not compile for sm_100a: a kernel cannot have assert; do that in __init__",
        ),
        (odd(blocks="[m, 65535, 65535]"), "a grid of 8x65535x65535 CTAs; the simulator runs 4194304 at most"),
        (odd(blocks="m // 0"), "`m // 0` has no value: it divides an integer by 0"),
        (odd(blocks="8 // (m // 1000)"), "Odd divides by zero in attrs.blocks, so that its grid has no extent."),
        (odd(blocks="0"), "Odd asks for a grid of 0x1x1 CTAs; each extent must be at least 1"),
    ],
)
def test_an_odd_script_gets_one_sentence(write, text, words):
    with pytest.raises(BlackwellMatmulError) as caught:
        run_script(write(text), (8, 8, 8), workers=1)
    assert words in str(caught.value) and "\n" not in str(caught.value)


# --- the file


@pytest.mark.parametrize(
    "text, script, words",
    [
        ("class A: pass", ":A", "A in my_kernel.py is no tilus.Script class but another class; it has no tilus.Script"),
        ("A = 3", ":A", "A in my_kernel.py is no tilus.Script class but an object of type int"),
        (DOUBLE, ":A", "my_kernel.py has no class 'A'; its scripts are Double."),
        (DOUBLE, ":tilus", "is no tilus.Script class but an object of type module"),
        (DOUBLE, ":__name__", "is no tilus.Script class but an object of type str"),
        (
            DOUBLE + "class B(Double): pass",
            "",
            "has several scripts (Double, B); say which, as in my_kernel.py:Double.",
        ),
        ("", "", "my_kernel.py has no tilus.Script class."),
        ("def f(:", ":A", "my_kernel.py:1 is not Python: invalid syntax."),
        ("x = 1\n\nraise ValueError('two\\nlines')", ":A", "my_kernel.py:3 raises ValueError: two lines."),
        ("import no_such_module", ":A", "my_kernel.py:1 raises ModuleNotFoundError: No module named 'no_such_module'."),
        ("import sys\nsys.exit(3)", ":A", "exits while it is loaded; put what it does under `if __name__"),
        ("assert 0", ":A", "my_kernel.py:1 raises AssertionError."),
        ("def f(): f()\nf()", ":A", "raises RecursionError: maximum recursion depth exceeded."),
        ("x = '\x00'", ":A", "my_kernel.py"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_sentence(write, text, script, words):
    got = refused(write(text) + script)
    assert words in got, got


@pytest.mark.parametrize("script", ["none.py:A", ".py:", ".py", "x\0.py:A", "\ud800.py", "/.py:A", "a" * 5000 + ".py"])
def test_a_file_that_is_not_there_gets_one_sentence(script):
    assert "cannot read" in refused(script)


@pytest.mark.parametrize("script", ["", "v1", "x.txt:A", ":A", 3, None, int, object()])
def test_what_is_no_script_gets_one_sentence(script):
    assert "script is" in refused(script)


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "x.py").mkdir()
    assert "it is a folder" in refused(f"{tmp_path}/x.py:A")


def test_bytes_that_are_no_text_get_one_sentence(tmp_path):
    (tmp_path / "x.py").write_bytes(b"\xff\xfe\x00class")
    assert "x.py:" in refused(f"{tmp_path}/x.py:A")


NAMES = ("torch.py", "glob.py", "random.py", "my kernel-2.py", "größe.py")


@pytest.fixture
def named(write):
    """A folder of kernel files that import a neighbour, named like modules and like none."""
    write("TWO = 2.0", "neighbour_of_a_kernel.py")
    return {name: write("from neighbour_of_a_kernel import TWO\n" + DOUBLE + ARGS + REFERENCE, name) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_file_may_have_any_name_and_imports_its_neighbours(named, command, tmp_path, name):
    module = sys.modules.get(name.removesuffix(".py"))
    assert command("run", f"{named[name]}:Double")[::2] == (0, "")
    assert sys.modules.get(name.removesuffix(".py")) is module
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["neighbour_of_a_kernel.py", *NAMES])


@pytest.mark.process
def test_a_file_hides_no_module_that_is_yet_to_be_imported(named, tmp_path):
    """A fresh process has imported none of those that the files are named like."""
    argv = [sys.executable, "-m", "blackwell_matmul", "run", f"{named['torch.py']}:Double"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path.parent, env=env)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["neighbour_of_a_kernel.py", *NAMES])


def test_loading_leaves_the_process_as_it_was(write):
    path, bytecode, modules = list(sys.path), sys.dont_write_bytecode, set(sys.modules)
    refused(write("1 / 0"))
    assert (sys.path, sys.dont_write_bytecode, set(sys.modules) - modules) == (path, bytecode, set())
    assert run_script(write(DOUBLE + ARGS)).ok
    assert (sys.path, sys.dont_write_bytecode) == (path, bytecode)


def test_an_edited_file_is_read_again(write):
    assert run_script(write(DOUBLE + ARGS + REFERENCE)).ok
    assert not run_script(write(DOUBLE.replace("tile * 2.0", "tile * 3.0") + ARGS + REFERENCE)).ok


def test_what_the_file_prints_is_no_json(write, command):
    code, out, err = command("run", write("print('hello')\n" + DOUBLE + ARGS), "--json")
    assert code == 0 and json.loads(out)["ok"] and err == "hello\n"


def test_a_name_that_a_method_assigns_is_its_own_beside_a_global_one(write):
    text = DOUBLE.replace("tile = self", "FACTOR = self").replace("tile * 2.0", "FACTOR * 2.0")
    assert "FACTOR = 2" in text and run_script(write(text + ARGS + REFERENCE)).ok


def test_the_page_shows_what_a_kernel_file_prints(tmp_path, monkeypatch, command):
    page = (Path(__file__).resolve().parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    kernel = next(text for language, text in blocks if language == "python" and "class Relu" in text)
    shell, shown = next(text.splitlines() for language, text in blocks if language == "console" and "Relu" in text)
    (tmp_path / "my_kernel.py").write_text(kernel)
    monkeypatch.chdir(tmp_path)
    code, out, err = command(*shell.removeprefix("$ blackwell-matmul ").split())
    assert (code, err) == (0, "")
    assert out.split("simulated")[0] == shown.split("simulated")[0]


def test_threads_that_end_in_another_order_leave_the_path_as_it_was(tmp_path: Path) -> None:
    """Both folders are importable until their threads end."""
    before = list(sys.path), sys.dont_write_bytecode
    one, other = importable(tmp_path / "one"), importable(tmp_path / "other")
    one.__enter__()
    other.__enter__()
    assert sys.path == [*before[0], str(tmp_path / "one"), str(tmp_path / "other")]
    one.__exit__(None, None, None)
    assert str(tmp_path / "other") in sys.path and sys.dont_write_bytecode
    other.__exit__(None, None, None)
    assert (sys.path, sys.dont_write_bytecode) == before
