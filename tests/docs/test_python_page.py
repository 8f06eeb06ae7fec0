"""Each line of the page on Python is simulated, and compiled and executed, and does what the page says; the lines that
do what Python does are run in Python, too, and together they have every kind of node of Python's grammar."""

from __future__ import annotations

import ast
import functools
import importlib.util
import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from blackwell_matmul import compile, emulate, simulate
from blackwell_matmul.base.errors import CompileError

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text()
HELPERS, METHODS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
METHODS = textwrap.indent(METHODS, " " * 4)
N, V, F = 7, -7, 2.5

HEAD = """
import functools

import tilus
from tilus import RegisterTensor, float16, float32, int8, int32, int64, uint8

SCALE = 40

"""
KERNEL = """

class {name}(tilus.Script):
    def __init__(self):
        super().__init__()
        self.k, self.xs, self.none, self.table = -7, [1, 2, 3], None, {{"a": 4}}

{methods}
    def __call__(self, n: int32, v: int32, f: float32, x_ptr: ~int32, out_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        self.g_x = self.global_view(x_ptr, dtype=int32, shape=[32])
        g_out = self.global_view(out_ptr, dtype=float32, shape=[{rows}, 32])
        x = self.load_global(self.g_x, offsets=[0], shape=[32])
        y = x.to(float32) * 0.5
{body}
"""
ROW = """
    def row_{place}(self, n: int32, v: int32, f: float32, x: RegisterTensor, y: RegisterTensor):
{body}
        return {result}
"""
TILE = "self.store_global(g_out, {value}.to(float32), offsets=[{place}, 0], dims=[1])"
NUMBER = """s_{place} = float32({value})
t_{place} = self.register_tensor(dtype=float32, shape=[32], init=lambda i: s_{place})
self.store_global(g_out, t_{place}, offsets=[{place}, 0], dims=[1])
"""


class Row(NamedTuple):
    code: str
    here: str
    how: str

    @property
    def result(self) -> str:
        """What the line gives a value: s, a number, or t, a tile."""
        return "t" if re.search(r"^t\b", self.code, re.MULTILINE) else "s"

    def values(self) -> list[float]:
        return [float(each) for each in self.here.split()]


def rows() -> Iterator[Row]:
    for code, here, how in re.findall(r"^\| (`.*`) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE):
        lines = re.findall(r"`(.*?)`(?:<br>|$)", code)
        yield Row("\n".join(lines).replace("\u00a0", " ").replace(r"\|", "|"), here, how.replace(r"\|", "|"))


ROWS = list(rows())
COMPUTED = [row for row in ROWS if row.here != "refused"]
REFUSED = [row for row in ROWS if row.here == "refused"]


def kernel(name: str, body: str, methods: str = "") -> str:
    indented = textwrap.indent(body, " " * 8)
    return KERNEL.format(name=name, methods=METHODS + methods, body=indented, rows=len(COMPUTED))


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """`Computed`, with a method for each line that has a value, and `Refused0`, `Refused1` and so on."""
    methods, calls = "", []
    for place, row in enumerate(COMPUTED):
        methods += ROW.format(place=place, body=textwrap.indent(row.code, " " * 8), result=row.result)
        value = f"self.row_{place}(n, v, f, x, y)"
        calls.append((TILE if row.result == "t" else NUMBER).format(value=value, place=place))
    text = HEAD + HELPERS + kernel("Computed", "\n".join(calls), methods)
    text += "".join(kernel(f"Refused{place}", row.code) for place, row in enumerate(REFUSED))
    file = tmp_path_factory.mktemp("python") / "python_page_scripts.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def arguments() -> tuple[Any, ...]:
    return N, V, F, torch.arange(32, dtype=torch.int32), torch.full((len(COMPUTED), 32), -77.0)


@pytest.fixture(scope="module", params=["simulated", "compiled"])
def found(request: pytest.FixtureRequest, scripts: ModuleType) -> torch.Tensor:
    given = arguments()
    if request.param == "simulated":
        assert simulate(scripts.Computed, *given).ok
    else:
        emulate(compile(scripts.Computed, *given), *given)
    return given[-1]


@pytest.mark.parametrize("place", range(len(COMPUTED)), ids=[row.code for row in COMPUTED])
def test_a_line_has_the_value_of_the_page(place: int, found: torch.Tensor) -> None:
    row = COMPUTED[place]
    told = row.values()
    assert found[place, : len(told)].tolist() == pytest.approx(told, rel=1e-6)
    assert row.result == "t" or len(set(found[place].tolist())) == 1


class Element(int):
    """An element of a tile, in Python."""

    def item(self) -> int:
        return int(self)


def in_python(row: Row) -> Callable[..., float]:
    method = ROW.format(place=0, body=textwrap.indent(row.code, " " * 8), result=row.result)
    names = {**dict.fromkeys(("int8", "int32", "int64"), int), "float32": float, "RegisterTensor": object, "SCALE": 40}
    names |= {"tilus": SimpleNamespace(Class=object), "functools": functools}
    exec(f"{HELPERS}\nclass Kernel:\n{METHODS}{method}", names)
    kernel = names["Kernel"]()
    kernel.k, kernel.xs, kernel.none, kernel.table = -7, [1, 2, 3], None, {"a": 4}
    return kernel.row_0


OF_PYTHON = [row for row in COMPUTED if row.how.startswith("Python's")]


@pytest.mark.parametrize("row", OF_PYTHON, ids=[row.code for row in OF_PYTHON])
def test_python_says_the_same(row: Row) -> None:
    run, told = in_python(row), row.values()
    if row.result == "t":
        assert [run(N, V, F, each, each / 2) for each in range(len(told))] == told
    else:
        assert run(N, V, F, [Element(each) for each in range(32)], None) == pytest.approx(told[0])


@pytest.mark.parametrize("place", range(len(REFUSED)), ids=[row.code for row in REFUSED])
def test_a_line_is_refused_with_its_place_and_what_works(place: int, scripts: ModuleType) -> None:
    script = getattr(scripts, f"Refused{place}")
    for run in (simulate, compile):
        with pytest.raises(CompileError) as caught:
            run(script, *arguments())
        assert REFUSED[place].how in str(caught.value)
        assert re.search(r"\(\S+python_page_scripts\.py:\d+\)\.$", str(caught.value))


ELSEWHERE = {"AsyncFunctionDef", "AsyncFor", "AsyncWith", "Await"}
"""What Python itself takes in coroutines alone."""


def test_every_node_of_the_grammar_is_on_the_page() -> None:
    code = "\n".join([HELPERS, "class Kernel:", METHODS, *(row.code for row in ROWS if "nonlocal" not in row.code)])
    seen = {type(node).__name__ for node in ast.walk(ast.parse(code))} | {"FunctionDef", "Nonlocal"}
    kinds = (ast.stmt, ast.expr, ast.boolop, ast.operator, ast.unaryop, ast.cmpop)
    known = {each.__name__ for kind in kinds for each in kind.__subclasses__() if each.__module__ == "ast"}
    assert known - seen - ELSEWHERE <= {"TypeAlias", "TemplateStr", "Interpolation"}  # later than Python 3.11


def test_a_value_that_is_not_python_s_is_told() -> None:
    for row in COMPUTED:
        assert row.how.startswith("Python's") or len(row.how.split()) > 1, row.code
    assert math.isinf(next(row for row in COMPUTED if row.code == "s = f / 0.0").values()[0])
