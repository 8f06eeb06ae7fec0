"""Writes docs/statements.md: every statement of tilus, with the instruction that it becomes and one of its uses here.

The uses are looked up in the scripts that the tests run: the ladders first, then the other kernels, lessons, and tests.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from blackwell_matmul.frontend import import_tilus
from blackwell_matmul.lang import Atomics, BlockScaled, BlockScaledWarps, MaxRegisters, Rounded
from blackwell_matmul.simulator.semantics import DESCRIPTIONS

import_tilus()

from tilus.ir.builders import StmtBuilder  # noqa: E402
from tilus.lang.instructions import InstructionInterface  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("statements.md")
PLACES = (
    *("blackwell_matmul/kernels/blackwell/v*.py", "blackwell_matmul/kernels/hopper/v*.py"),
    *("blackwell_matmul/kernels/geforce/*.py", "blackwell_matmul/kernels/*.py", "blackwell_matmul/kernels/*/*.py"),
    *("examples/*.py", "tutorials/tma/*.py", "tests/simulator/**/*.py", "tests/**/*.py"),
)
"""Where a use is looked for, in this order."""

WITHOUT = {
    "self.flatten": "tilus 0.2.0 does nothing",
    "self.repeat": "tilus 0.2.0 finds no layout for it",
    "self.repeat_interleave": "tilus 0.2.0 finds no layout for it",
    "self.tcgen05.view": "tilus 0.2.0 finds no layout for it",
}
"""Statements that no script can use, and why."""

BESIDE = ("slice_register", "allocate_register", "slice_shared")
"""What a statement does to its arguments first."""

HEAD = """# Statements

This page lists every statement of tilus with its parameters and an example. Parameters after a `*` are given by name.
The examples come from the ladders, other kernels, lessons and tests. `make test` runs all of them.

Before the colon is the name of the instruction that the statement becomes, as reports have it.
[Instructions](instructions.md) says what is known of each. A statement without an instruction is arithmetic on
registers, an expression, or a note to the compiler. The rest of a script is Python that is compiled: `if`, `for`,
`while`, and arithmetic on scalars and on register tensors. The [glossary](glossary.md) explains the words.
`python docs/statement_table.py` writes this page.
"""

BESIDE_STATEMENTS = """
## Besides statements

- **The class**: `target = "sm_90a"` in its body is for Hopper. The default is `sm_100a`, Blackwell. `__init__(self, …)`
  calls `super().__init__()` and keeps the knobs, as `self.block_m`. `tcgen05 = BlockScaled()` in its body, from
  `blackwell_matmul.lang`, adds `alloc_scales`, `copy_scales` and `mma_scaled` to those of tilus; `mma_sync =
  BlockScaledWarps()` adds `load_scales` and `dot_scaled`, of GeForce Blackwell and GB10. `rounded = Rounded()` adds
  arithmetic that keeps subnormal numbers and divides exactly, and the conversions of `quantize`. `atomic = Atomics()`
  adds counters that all CTAs share, and `setmaxnreg = MaxRegisters()` gives registers to other warpgroups.
- **The launch**, set in `__call__`: `self.attrs.blocks = [x, y]`, an expression of the arguments; `self.attrs.warps =
  4`; `self.attrs.cluster_blocks = (2, 1)` for clusters.
- **The place of this CTA**: `self.blockIdx.x` (`.y`, `.z`), `self.gridDim.x`. There is no `threadIdx`. The code of some
  threads is in `with self.single_thread():`, `self.single_warp():`, `self.warp_group(first, count):` or
  `self.thread_group(first, count):`. These threads are from `self.current_thread_begin` to `self.current_thread_end`.
- **Arguments of `__call__`**: `n: int` is a constant of the compiled kernel, and `m: int32` comes with the launch.
  `a: ~float16` is a pointer to float16, and the tensor of a call must have this type. A `void_p` takes any tensor.
- **Tensors** have `.shape` and `.dtype`. In shared or global memory, `x[i]` is a part. There are `.transpose()` and, in
  shared memory, `.permute(dims)` and `.nbytes`. In registers there are `.to(dtype)`, `.squeeze(dim)`,
  `.unsqueeze(dim)` and Python's operators by element; a dimension of extent 1 broadcasts. `.item()` is the value of a
  tensor of one element. `.item_ptr()` is its address in global or shared memory:
  `self.lock_semaphore(sems[i, j].item_ptr(), value=1)`.
- **Scalars**: `i: int32 = 0` is a variable. A name that is bound without a type is a name for a value. A name that is
  bound inside of `with`, `if`, `for` or `while` ends with it; declare it before.
"""


def signature(kind: type, name: str) -> str:
    """What a script gives, without types."""
    _, *own = inspect.signature(getattr(kind, name)).parameters.values()
    return str(inspect.Signature([each.replace(annotation=inspect.Parameter.empty) for each in own]))


class Use(NamedTuple):
    """A call in a script, on one line, and where it stands."""

    text: str
    file: Path
    line: int


def page() -> str:
    return (
        HEAD + "".join(f"\n## `{name}`\n\n{_list(name, kind)}" for name, kind in groups().items()) + BESIDE_STATEMENTS
    )


def groups() -> Mapping[str, type]:
    """The statements by what stands before them."""
    parts = {name: type(value) for name, value in vars(InstructionInterface).items() if not name.startswith("_")}
    parts |= {"tcgen05": BlockScaled, "mma_sync": BlockScaledWarps, "rounded": Rounded, "atomic": Atomics}
    parts["setmaxnreg"] = MaxRegisters
    return {"self": InstructionInterface, **{f"self.{name}": kind for name, kind in sorted(parts.items())}}


def statements(kind: type) -> list[str]:
    """By name; those of the base class too, for what stands before all of them."""
    return [name for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]


def _list(group: str, kind: type) -> str:
    return "".join(_statement(group, kind, name) for name in statements(kind))


def _statement(group: str, kind: type, name: str) -> str:
    made = ", ".join(dict.fromkeys(_instructions(kind, name)))
    shown = WITHOUT.get(f"{group}.{name}") or _shown(uses()[f"{group}.{name}"])
    return f"- **{name}** `{signature(kind, name)}`{f', {made}' if made else ''}: {shown}\n"


def _shown(use: Use) -> str:
    return f"`{use.text}` [{_short(use.file)}:{use.line}](../{use.file.as_posix()})"


def _short(file: Path) -> str:
    """Rungs of several ladders have one name."""
    return f"{file.parent.name}/{file.name}" if "kernels" in file.parts else file.name


def _instructions(kind: type, name: str, depth: int = 3) -> Iterator[str]:
    """As reports call them: a statement calls methods of its class and of tilus's builder; these make instructions."""
    source = _code(getattr(kind, name))
    for made in re.findall(r"\b(\w+?)(?:\.create)?\(", source):
        called = DESCRIPTIONS[made][0].name if made in DESCRIPTIONS else ""
        if called and not called.endswith("Inst"):  # the compiler's own
            yield called
    for owner, step in re.findall(r"(self\._builder|self|super\(\))\.(\w+)\(", source):
        inside = {"self": kind, "self._builder": StmtBuilder}.get(owner, kind.__base__)
        if depth and inspect.isfunction(getattr(inside, step, None)) and step not in BESIDE:
            yield from _instructions(inside, step, depth - 1)


def _code(function: object) -> str:
    """Its source without its docstring, which has calls, too."""
    return re.sub(r'"{3}.*?"{3}', "", inspect.getsource(function), flags=re.S)  # type: ignore[arg-type]


# --- uses


@cache
def uses() -> Mapping[str, Use]:
    """By statement, its first use; the shortest one of that file."""
    found: dict[str, Use] = {}
    for path in _files():
        here: dict[str, Use] = {}
        for name, use in _calls(path):
            here[name] = min(here.get(name, use), use, key=lambda each: len(each.text))
        found = {**here, **found}
    return found


def _files() -> list[Path]:
    return list(dict.fromkeys(path for place in PLACES for path in sorted(ROOT.glob(place))))


def _calls(path: Path) -> Iterator[tuple[str, Use]]:
    """Every call of `self.…` in a class, by its name: `self.mbarrier.wait`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for each in ast.walk(node) if isinstance(node, ast.ClassDef) else ():
            if isinstance(each, ast.Call) and (name := ast.unparse(each.func)).startswith("self."):
                yield name, Use(ast.unparse(each), path.relative_to(ROOT), each.lineno)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
