"""What a case is: a script, mostly the text of one, and the arguments of some launches.

A generated script is the text of a file, since tilus reads a script's source; the text is its own smallest reproducer.
Everything follows from the key, so that a case can be run again alone, on another machine.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import tempfile
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from explanations import EXACT, Bound


def target() -> str:
    """What the cases are compiled for."""
    return os.environ.get("DIFFERENTIAL_TARGET", "sm_90a")


@dataclass(frozen=True)
class Made:
    """A kernel and the launches to compare. script: a class or what calling one gives; text: of a generated one.
    broken: the simulator must report a finding, without which a GPU would stop."""

    launches: Sequence[tuple[Any, ...]]
    text: str = ""
    script: Any = None
    bound: Bound = EXACT
    schedule: Any = None
    broken: bool = False

    def kernel(self) -> Any:
        return self.script if self.script is not None else kernel_of(self.text)


@dataclass(frozen=True)
class Case:
    """key: family/parameters. make: its script and arguments, made where it runs."""

    key: str
    make: Callable[[], Made]

    @property
    def family(self) -> str:
        return self.key.split("/")[0]


HEAD = """\
import tilus
from tilus import *
from tilus.ir.layout.ops import local, replicated, spatial


class Kernel(tilus.Script):
    def __call__(self, {parameters}):
        self.attrs.blocks = {blocks}
        self.attrs.warps = {warps}
"""


def source(parameters: str, body: str, warps: int = 1, blocks: str = "1") -> str:
    """The file of one script whose `__call__` has this body."""
    return HEAD.format(parameters=parameters, warps=warps, blocks=blocks) + textwrap.indent(
        textwrap.dedent(body).strip("\n") + "\n", " " * 8
    )


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="differential-")


def kernel_of(text: str) -> Any:
    """The class `Kernel` of a text, from a file of its own."""
    name = f"case_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file = Path(_folder().name) / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Kernel


@dataclass(frozen=True)
class Type:
    """An element type of tilus. `torch`: of the tensors that hold it; bytes where it is packed."""

    name: str
    nbits: int
    torch: torch.dtype = torch.uint8

    @property
    def packed(self) -> bool:
        return self.nbits < 8

    @property
    def is_float(self) -> bool:
        return self.torch.is_floating_point or self.name.startswith("float")

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self.name != "boolean"


_WHOLE = {
    "boolean": torch.bool, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
    "uint8": torch.uint8, "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64,
    "float8_e4m3": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2, "float16": torch.float16,
    "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64,
}  # fmt: skip
WHOLE = {name: Type(name, 8 * held.itemsize, held) for name, held in _WHOLE.items()}
PACKED = {
    name: Type(name, bits)
    for name, bits in {
        "int2b": 2, "uint2b": 2, "int4b": 4, "uint4b": 4, "int6b": 6, "uint1b": 1, "float4_e2m1": 4,
        "float5_e2m2": 5, "float6_e2m3": 6, "float6_e3m2": 6, "float7_e3m3": 7,
    }.items()
}  # fmt: skip
TYPES = {**WHOLE, **PACKED}

_TINY, _INF, _NAN = 1e-40, float("inf"), float("nan")
_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 0.1, 1 / 3, 7.99, 100.0, 127.5, 128.0, -129.0, 255.0, 256.0,
    400.0, 448.0, 449.0, -500.0, 2048.0, 32768.0, 57344.0, 61440.0, 65504.0, 65520.0, 1e9, 2.0**31, -(2.0**31), 3e9,
    2.0**32, 5e9, 2.0**63, -(2.0**63), 2.0**64, 1e20, 1e38, 3.4e38, -1e38, _TINY, -_TINY, 1e-20, 1e-10, 6e-8, 6e-5,
    2.0**-9, 2.0**-16, 2.0**-126, _INF, -_INF, _NAN,
)  # fmt: skip
_WIDE = (1e300, -1e300, 1e-300, 2.0**-1040)


def narrowed(values: torch.Tensor, kind: Type) -> torch.Tensor:
    """As the type; beyond e4m3 lies NaN, where torch 2.13 saturates and 2.11 did not: a record has one of the two."""
    if kind.name == "float8_e4m3":
        beyond = torch.copysign(torch.tensor(float("nan"), dtype=values.dtype), values)
        values = torch.where(values.abs() > 464, beyond, values)
    return values.to(kind.torch)


def edges(kind: Type) -> torch.Tensor:
    """The values at which types differ, of a type that torch has."""
    if kind.name == "boolean":
        return torch.tensor([False, True])
    if kind.is_float:
        values = torch.tensor((*_FLOATS, *(_WIDE if kind.nbits == 64 else ())), dtype=torch.float64)
        return narrowed(values, kind)
    top = 2 ** (kind.nbits - (not kind.name.startswith("u")))
    low = 0 if kind.name.startswith("u") else -top
    near = (0, 1, 2, 3, 5, 7, 10, 31, 32, 100, 127, 128, 255, 256, 2048, 32767, 65535, 2**24 + 1, 2**31 - 1, 2**31)
    inside = sorted({v for each in near for v in (each, -each) if low <= v < top} | {low, low + 1, top - 1, top - 2})
    return torch.tensor([v - 2**64 if v >= 2**63 else v for v in inside], dtype=torch.int64).to(kind.torch)


def values(kind: Type, count: int, seed: int = 0) -> torch.Tensor:
    """`count` elements: the edge values, then bits at random; each pattern in turn where there are few of them."""
    generator = torch.Generator().manual_seed(seed)
    nbytes = (count * kind.nbits + 7) // 8
    if kind.packed or (kind.nbits == 8 and kind.name != "boolean"):
        start = (
            torch.arange(nbytes)
            if kind.nbits in (2, 4, 8, 1)
            else torch.randint(0, 256, (nbytes,), generator=generator)
        )
        return start.to(torch.uint8).view(kind.torch)
    if kind.name == "boolean":
        return torch.randint(0, 2, (count,), generator=generator).bool()
    rest = torch.randint(0, 256, (nbytes,), generator=generator).to(torch.uint8).view(kind.torch)
    first = edges(kind)[:count]
    return torch.cat([first.view(torch.uint8), rest[len(first) :].view(torch.uint8)]).view(kind.torch)


_FEW_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, 0.1, 1 / 3, 127.5, -500.0, 2048.0, 65504.0, 3e9, -1e20, 1e38, _TINY, 6e-8,
    _INF, -_INF, _NAN,
)  # fmt: skip
_FEW_INTEGERS = (0, 1, 2, 3, -1, -2, -3, 7, -7, 31, 32, 100, 127, 128, 255, -128, 2**24 + 1)


def few_edges(kind: Type) -> torch.Tensor:
    """Some twenty of them, so that all pairs fit a small tile."""
    if kind.is_float:
        return narrowed(torch.tensor(_FEW_FLOATS, dtype=torch.float64), kind)
    if kind.name == "boolean":
        return edges(kind)
    top = 2 ** (kind.nbits - (not kind.name.startswith("u")))
    low = 0 if kind.name.startswith("u") else -top
    inside = sorted({v for v in _FEW_INTEGERS if low <= v < top} | {low, low + 1, top - 2, top - 1})
    return torch.tensor([v - 2**64 if v >= 2**63 else v for v in inside], dtype=torch.int64).to(kind.torch)


def grid_of(kind: Type, other: Type, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Operands of rows x columns elements whose pairs are edge values times edge values, as many as fit."""
    x, y = few_edges(kind), few_edges(other)
    place = torch.arange(rows * columns)
    return _taken(x, place % len(x), rows, columns), _taken(y, place // len(x) % len(y), rows, columns)


def calm_grid_of(kind: Type, other: Type, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same of small numbers, which all types hold, and no zero among the second ones."""
    place, low = torch.arange(rows * columns), [0 if of.name.startswith(("u", "bool")) else -4 for of in (kind, other)]
    x, y = place % 9 + low[0], place // 9 % 8 + low[1]
    y += y >= 0
    return tuple(each.float().to(of.torch).view(rows, columns) for each, of in ((x, kind), (y, other)))  # type: ignore


def _taken(of: torch.Tensor, places: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """of[places], also for types that torch does not index."""
    raw = of.view(torch.uint8).view(len(of), -1)
    return raw[places].view(-1).view(of.dtype).view(rows, columns)


def blank(kind: Type, *shape: int) -> torch.Tensor:
    """An output, full of a byte that no result is likely to be made of."""
    count = 1
    for extent in shape:
        count *= extent
    if kind.name == "boolean":
        return torch.zeros(shape, dtype=torch.bool)
    raw = torch.full(((count * kind.nbits + 7) // 8,), 0xA5, dtype=torch.uint8)
    return raw if kind.packed else raw.view(kind.torch).view(shape)


def tame(kind: Type, *shape: int, seed: int = 0) -> torch.Tensor:
    """Small values that each type holds, so that sums of them are exact."""
    generator = torch.Generator().manual_seed(seed)
    low = 0 if kind.name.startswith(("u", "bool")) else -4
    drawn = torch.randint(low, 5, shape, generator=generator)
    return (drawn > 2).to(kind.torch) if kind.name == "boolean" else drawn.to(torch.float32).to(kind.torch)
