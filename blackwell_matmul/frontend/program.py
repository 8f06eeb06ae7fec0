"""`Program`: one run of tilus over one script, in two views, with the names and lines that tilus does not keep.

The tile view (after the first layout inference) keeps tensors and rectangles; the simulator executes it. The lowered
view (after all passes and code generation) is the compiler's input. The tile view takes values from it that only code
generation decides: shared-memory addresses, dynamic bytes, barrier order.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blackwell_matmul.base.validation import printable
from blackwell_matmul.hardware.gpus import gpu_for_target


@functools.cache
def _import_path(file: str) -> str:
    path = Path(file)
    packages = itertools.takewhile(lambda folder: (folder / "__init__.py").is_file(), path.parents)
    return printable("/".join([*reversed([each.name for each in packages]), path.name]))


@dataclass(frozen=True)
class Location:
    """A line of a user's kernel."""

    file: str
    line: int

    def __str__(self) -> str:
        return printable(f"{self.file}:{self.line}")

    @property
    def import_path(self) -> str:
        """Return `package/folder/file.py`, relative to the folder from which Python imports the package."""
        return _import_path(self.file)

    @property
    def short(self) -> str:
        """Return `my_kernel.py:12`."""
        return printable(f"{os.path.basename(self.file)}:{self.line}")

    @property
    def code(self) -> str:
        """Return the text of the line, without its indentation."""
        return printable(linecache.getline(self.file, self.line).strip().expandtabs(4))


@dataclass(frozen=True)
class SharedAllocation:
    """The place of a shared tensor: byte offset in dynamic shared memory, and size in bytes."""

    address: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class Program:
    """A script, instantiated for one schedule, one set of constants and one target.

    name: the script's class name. target: e.g. "sm_100a". params: (name, tilus Var) of the kernel's
    parameters in call order. consts: the `__call__` parameters that were compile-time constants.
    tile: tilus.ir.Function of the tile view. lowered: tilus.hidet IRModule, before hidet's own passes.
    shared: for each shared tensor that the tile view allocates, its address and size.
    barrier_address: byte offset of the first mbarrier (8 bytes each, in order of `mbarrier.alloc`), or None.
    dynamic_shared_bytes: what the launch asks for.
    locations and names are read through `location_of` and `name_of`.
    assumes: each condition given to `self.assume`, as a tilus expression over `params`, and its line; tilus
    accepts only `param % constant == 0` and drops the instruction before the tile view.
    barriers: for each `mbarrier.alloc` that reaches code generation, the byte offset of its first barrier.
    workspace: scratch shared memory that emitters asked for (reductions, shuffles), or None.
    final: tilus.ir.Function after all passes, which code generation read; dead code is gone from it.
    origins: for each instruction of `final`, the instruction of `tile` that it came from.
    access_bytes: for loads, stores and cp.async of global memory, the bytes of one access (`access_bytes`).
    early_start: it waits for the grids before it (`launch_order`), so that a launch may let it start before they end.
    lone_cta: its cluster is one CTA.
    row_major: the names of the pointers that the script takes without strides (`pointer_views`). taken_as: of a class
    that checks the arguments of each call, the type that a pointer's elements are for its code.
    """

    name: str
    target: str
    params: tuple[tuple[str, Any], ...]
    consts: Mapping[str, Any]
    tile: Any
    lowered: Any
    shared: Mapping[Any, SharedAllocation]
    barrier_address: int | None
    dynamic_shared_bytes: int
    locations: Mapping[Any, Location]
    names: Mapping[Any, str]
    assumes: tuple[tuple[Any, Location], ...] = ()
    barriers: Mapping[Any, int] = field(default_factory=dict)
    workspace: SharedAllocation | None = None
    final: Any = None
    origins: Mapping[Any, Any] = field(default_factory=dict)
    access_bytes: Mapping[Any, int] = field(default_factory=dict)
    early_start: bool = False
    lone_cta: bool = True
    row_major: frozenset[str] = frozenset()
    taken_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Return the threads of a CTA."""
        return 32 * int(self.tile.metadata.num_warps)

    @property
    def registers_per_thread(self) -> int:
        """Return the registers that a thread can have at the start."""
        return gpu_for_target(self.target).registers_per_thread(self.threads)

    def location_of(self, node: Any) -> Location | None:
        """Return the source line of an instruction (or control statement) of the tile view."""
        return self.locations.get(node)

    def name_of(self, value: Any) -> str | None:
        """Return the Python name bound to a tensor, or to a scalar variable that holds a barrier."""
        return self.names.get(value)
