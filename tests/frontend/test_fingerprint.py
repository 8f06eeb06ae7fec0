"""A program is kept under what its script means as it is in memory: every change of what it reads is noticed."""

from __future__ import annotations

import builtins
import datetime
import decimal
import enum
import functools
import linecache
import os
import subprocess
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import meaning_script as scripts
import numpy as np
import pytest
import torch

from blackwell_matmul import CompileError, compile, emulate, kernels, simulate
from blackwell_matmul.frontend.fingerprint import CHOICE, PROGRAM, Meaning, meaning, named_value
from blackwell_matmul.harness.calls.user_kernel import load

Patch = pytest.MonkeyPatch


def simulated(script: Any, **schedule: object) -> float:
    y = torch.zeros(8, 8)
    simulate(script, torch.ones(8, 8), y, schedule=schedule, workers=1, trace=False)
    return y[0, 0].item()


def emulated(script: Any) -> float:
    y = torch.zeros(8, 8)
    emulate(compile(script, torch.ones(8, 8), y), torch.ones(8, 8), y)
    return y[0, 0].item()


def with_helper(patch: Patch) -> None:
    patch.setattr(scripts, "helper", lambda: 1.0)


def with_closure(patch: Patch) -> None:
    scripts.change_closure(1.0)


def with_inherited_method(patch: Patch) -> None:
    patch.setattr(scripts.Base, "finish", other_finish)


def with_shadowed_attribute(patch: Patch) -> None:
    patch.setattr(scripts.Scale, "ADDED", 1.0, raising=False)


def other_finish(self: Any, x: scripts.RegisterTensor):  # type: ignore[no-untyped-def]
    return x + 1.0


other_finish.__annotations__["x"] = scripts.RegisterTensor


CHANGES: dict[str, Callable[[Patch], None]] = {
    "constant": lambda patch: patch.setattr(scripts, "FACTOR", 3.0),
    "content of a table": lambda patch: patch.setitem(scripts.TABLE, "added", [1.0]),
    "element of a list": lambda patch: scripts.TABLE["added"].__setitem__(0, 1.0),
    "default of a helper": lambda patch: patch.setattr(scripts.helper, "__defaults__", (1.0,)),
    "helper": with_helper,
    "closure": with_closure,
    "default of __init__": lambda patch: patch.setattr(scripts.Scale.__init__, "__defaults__", (1.0,)),
    "inherited attribute": lambda patch: patch.setattr(scripts.Base, "ADDED", 1.0),
    "attribute that hides an inherited one": with_shadowed_attribute,
    "inherited method": with_inherited_method,
    "attribute of a class that a helper class reads": lambda patch: patch.setattr(scripts.Settings, "more", 1.0),
}


@pytest.fixture
def as_it_was() -> Any:
    yield
    scripts.TABLE["added"][:] = [0.0]
    scripts.change_closure(0.0)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_a_script_reads_is_noticed(monkeypatch: Patch, as_it_was: None, change: Any) -> None:
    before, kept = simulated(scripts.Scale), meaning(scripts.Scale)
    assert (before, kept.same()) == (2.0, True)
    change(monkeypatch)
    assert not kept.same()
    assert simulated(scripts.Scale) == 3.0


def test_an_instance_of_tilus_is_not_the_one_of_before(monkeypatch: Patch) -> None:
    assert simulated(scripts.Scale()) == 2.0
    monkeypatch.setattr(scripts.Scale.__init__, "__defaults__", (1.0,))
    assert simulated(scripts.Scale()) == 3.0


def test_the_type_in_the_annotation_of_a_variable_is_read(monkeypatch: Patch) -> None:
    kept = meaning(scripts.Scale)
    monkeypatch.setattr(scripts, "KIND", scripts.tilus.int32)
    assert not kept.same()


def test_compiled_code_changes_and_comes_back(monkeypatch: Patch) -> None:
    assert emulated(scripts.Scale) == 2.0
    with monkeypatch.context() as patch:
        patch.setattr(scripts, "FACTOR", 3.0)
        assert emulated(scripts.Scale) == 3.0
    assert emulated(scripts.Scale) == 2.0


def test_what_nothing_reads_changes_nothing(monkeypatch: Patch) -> None:
    kept = meaning(scripts.Scale)
    monkeypatch.setattr(scripts, "other", 1, raising=False)
    monkeypatch.setattr(scripts.Settings, "__doc__", "other")
    assert meaning(scripts.Scale).name == kept.name


def test_zeros_of_two_signs_are_two_programs() -> None:
    signs = [np.signbit(simulated(Signed, f=value)) for value in (0.0, -0.0, 0.0)]
    assert signs == [False, True, False]


class Signed(scripts.tilus.Script):  # type: ignore[misc]
    def __init__(self, f):  # type: ignore[no-untyped-def]
        super().__init__()
        self.f = f

    def __call__(self, x, y):  # type: ignore[no-untyped-def]
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        g_x = self.global_view(x, dtype=scripts.float32, shape=[8, 8])
        g_y = self.global_view(y, dtype=scripts.float32, shape=[8, 8])
        self.store_global(g_y, self.load_global(g_x, offsets=[0, 0], shape=[8, 8]) * self.f, offsets=[0, 0])

    __call__.__annotations__.update(x=~scripts.float32, y=~scripts.float32)


class Config:
    shared = 1

    def __init__(self, value: object) -> None:
        self.value = value


def test_values_have_names_by_content() -> None:
    pairs: list[tuple[Any, Any]] = [
        (1, True), (1, 1.0), (0.0, -0.0), ("1", 1), ((1,), [1]), ({"a": 1}, {"a": 2}), (Config(1), Config(2)),
        (np.zeros(2), np.ones(2)), (torch.float16, torch.float32), (scripts.float32, scripts.tilus.float16),
        (lambda: 1, lambda: 2),
    ]  # fmt: skip
    for one, other in pairs:
        assert named_value(one) not in (None, named_value(other)), one
    assert named_value(Config([1])) == named_value(Config([1]))


class Level(enum.Enum):
    LOW = 1


class Words(dict[str, int]):
    """A dictionary of one's own."""


@pytest.mark.parametrize(
    ("value", "change"),
    [
        (types.SimpleNamespace(a=1), lambda value: setattr(value, "a", 2)),
        (OrderedDict(a=1), lambda value: value.update(a=2)),
        (defaultdict(int, a=1), lambda value: value.update(a=2)),
        (defaultdict(int, a=1), lambda value: setattr(value, "default_factory", float)),
        (Words(a=1), lambda value: value.update(a=2)),
        ([[1], {2}], lambda value: value[1].add(3)),
        (np.zeros(2), lambda value: value.fill(1)),
        (functools.partial(max, 1), lambda value: value.__setstate__((max, (2,), {}, {}))),
        (Level.LOW, lambda value: setattr(value, "_value_", 2)),
        (functools.partial(max, [1]), lambda value: value.args[0].append(2)),
        (Config([1]), lambda value: value.value.append(2)),
        (Config(1).__init__, lambda value: setattr(value.__self__, "value", -0.0)),
    ],
)
def test_a_value_that_changes_has_another_name(value: Any, change: Callable[[Any], None]) -> None:
    means = Meaning([value], everything=True)
    assert means.name is not None and means.same()
    change(value)
    assert not means.same()
    assert named_value(value) not in (None, means.name)


def test_a_function_that_a_library_wraps_is_read() -> None:
    kept = [1.0]
    wrapped = np.errstate(all="ignore")(lambda: kept[0])
    means = Meaning([wrapped])
    assert means.same()
    kept[0] = 2.0
    assert not means.same()


def test_a_function_for_another_type_is_noticed() -> None:
    chosen = functools.singledispatch(lambda value: 1.0)
    means = Meaning([chosen])
    assert means.same()
    chosen.register(int, lambda value: 2.0)
    assert not means.same()


def test_an_attribute_that_a_module_computes_is_read() -> None:
    kept, module = [1.0], types.ModuleType("computing")
    module.__getattr__ = lambda name: kept[0]  # type: ignore[method-assign]
    space: dict[str, Any] = {"module": module, "__name__": "somewhere"}
    exec("def read():\n    return module.scale", space)
    means = Meaning([space["read"]])
    assert means.same()
    kept[0] = 2.0
    assert not means.same()


def test_a_flag_of_torch_is_read(monkeypatch: Patch) -> None:
    space: dict[str, Any] = {"torch": torch, "__name__": "somewhere"}
    exec("def read():\n    return torch.backends.cudnn.benchmark", space)
    means = Meaning([space["read"]])
    assert means.same()
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", not torch.backends.cudnn.benchmark)
    assert not means.same()


def test_an_object_that_gets_an_attribute_of_its_own_has_changed() -> None:
    config = Config(1)
    means = Meaning([config], everything=True)
    assert means.same()
    config.shared = 2
    assert not means.same()


@pytest.mark.parametrize(
    "body",
    ["open('x').read()", "__import__('time').time()", "torch.rand(1)", "os.getpid()", "file.read_text()",
     "torch.backends.cuda.matmul.allow_tf32", "datetime.now()", "np.geterr()", "decimal.getcontext()"],
)  # fmt: skip
def test_what_comes_from_outside_has_no_name(body: str) -> None:
    space: dict[str, Any] = {"torch": torch, "os": os, "np": np, "file": Path("x"), "__name__": "somewhere"}
    space |= {"datetime": datetime.datetime, "decimal": decimal}
    exec(f"def read():\n    return {body}", space)
    assert Meaning([space["read"]]).name is None


def test_a_path_is_read_without_its_file() -> None:
    space: dict[str, Any] = {"file": Path("x/y"), "__name__": "somewhere"}
    exec("def read():\n    return file.name", space)
    before = Meaning([space["read"]]).name
    space["file"] = Path("x/z")
    assert before not in (None, Meaning([space["read"]]).name)


def test_the_environment_is_read(monkeypatch: Patch) -> None:
    space: dict[str, Any] = {"os": os, "__name__": "somewhere"}
    exec("def read():\n    return os.environ.get('FACTOR', '1')", space)
    means = Meaning([space["read"]])
    assert means.name is not None
    monkeypatch.setenv("FACTOR", "2")
    assert not means.same()


@pytest.mark.parametrize("name", ["v0", "v6", "blackwell", "h0", "hopper", "g0"])
def test_every_rung_has_a_name(name: str) -> None:
    for methods in (PROGRAM, CHOICE):
        assert meaning(kernels.rung(name), methods).name is not None


@pytest.mark.process
def test_two_processes_give_one_name() -> None:
    code = (
        "from blackwell_matmul import kernels; from blackwell_matmul.frontend.fingerprint import *;"
        "print(meaning(kernels.rung('blackwell'), CHOICE).name)"
    )
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == meaning(kernels.rung("blackwell"), CHOICE).name


# --- the source that tilus reads

CELL = """
import tilus
from tilus import float32
class Cell(tilus.Script):
    def __init__(self):
        super().__init__()
    def __call__(self, x: ~float32, y: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        g_x = self.global_view(x, dtype=float32, shape=[8, 8])
        g_y = self.global_view(y, dtype=float32, shape=[8, 8])
        self.store_global(g_y, self.load_global(g_x, offsets=[0, 0], shape=[8, 8]) * VALUE, offsets=[0, 0])
"""


def run_cell(file: str, value: str, space: dict[str, Any]) -> Any:
    """As a notebook runs it: the text is in `linecache`, under a name that is no file."""
    text = CELL.replace("VALUE", value)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(builtins.compile(text, file, "exec", dont_inherit=True), space)
    return space["Cell"]


@pytest.fixture
def notebook() -> Any:
    module = types.ModuleType("a_notebook")
    sys.modules["a_notebook"] = module
    yield vars(module)
    del sys.modules["a_notebook"]


def test_a_cell_that_runs_again_is_another_kernel(notebook: dict[str, Any]) -> None:
    assert simulated(run_cell("<cell 1>", "2.0", notebook)) == 2.0
    assert simulated(run_cell("<cell 2>", "3.0", notebook)) == 3.0
    assert simulated(run_cell("<cell 2>", "4.0", notebook)) == 4.0


def test_a_constant_of_another_cell_is_read(notebook: dict[str, Any]) -> None:
    notebook["FACTOR"] = 2.0
    script = run_cell("<cell 3>", "FACTOR", notebook)
    assert simulated(script) == 2.0
    notebook["FACTOR"] = 5.0
    assert simulated(script) == 5.0


def test_lines_that_are_another_cells_by_now_are_refused(notebook: dict[str, Any]) -> None:
    first = run_cell("<cell 4>", "2.0", notebook)
    run_cell("<cell 4>", "3.0", notebook)
    with pytest.raises(CompileError, match=r"<cell 4> has been edited since Cell\.__call__ was imported"):
        simulated(first)


def test_a_file_edited_after_its_import_is_refused_and_loaded_again_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text(CELL.replace("VALUE", "2.0"), encoding="utf-8")
    first = load(f"{file}:Cell").script_cls
    file.write_text("\n" + CELL.replace("VALUE", "3.0"), encoding="utf-8")
    with pytest.raises(CompileError, match="edited since"):
        simulated(first)
    assert simulated(load(f"{file}:Cell").script_cls) == 3.0


def test_a_file_edited_within_one_tick_of_its_clock_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    for value in ("2.0", "3.0"):
        file.write_text(CELL.replace("VALUE", value), encoding="utf-8")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert simulated(load(f"{file}:Cell").script_cls) == float(value)
