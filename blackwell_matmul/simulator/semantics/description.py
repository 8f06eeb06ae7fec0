"""What an instruction is: one description serves its values, its ordering, its time and its reports.

A `Description` says what the instruction touches (effects), whom it tells (signals), what it waits for (waits) and
what it occupies (resources). `describe` registers it together with the function that lowers the instruction to a
Python callable. The engine derives the in-flight checks from the effects; nothing about ordering is written twice.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.simulator.findings import Code


class Space(enum.Enum):
    """State spaces (PTX ISA, "State Spaces"; tensor memory: "tcgen05 / Tensor Memory")."""

    REGISTER = "register"
    SHARED = "shared"
    TENSOR = "tensor"
    GLOBAL = "global"
    BARRIER = "mbarrier"


class Access(enum.Enum):
    READ = "read"
    WRITE = "write"


class Proxy(enum.Enum):
    """The path by which memory is accessed (PTX ISA, "Memory Consistency Model / Proxies")."""

    GENERIC = "generic"
    ASYNC = "async"
    TENSOR_MEMORY = "tcgen05"


class Lanes(enum.Enum):
    """Which lanes of the warp execute it: every active one, or the one that elect.sync names."""

    ALL = "all"
    ELECTED = "elected"


class When(enum.Enum):
    """ISSUE: done when the next instruction starts. COMPLETION: at any time until the operation is waited for."""

    ISSUE = "issue"
    COMPLETION = "completion"


class Again(enum.Enum):
    """How an instruction is executed once more for a CTA that is known to take the same steps as another (`repeat.py`).

    NOTHING: it moves no values. VALUES: its callable is called with the registers and the places of that CTA.
    """

    NOTHING = "nothing"
    VALUES = "values"


@dataclass(frozen=True)
class Effect:
    """One access. `operand` names the tensor of the instruction whose region is touched."""

    operand: str
    space: Space
    access: Access
    proxy: Proxy = Proxy.GENERIC
    when: When = When.ISSUE

    @functools.cached_property
    def path(self) -> str:
        """The set of a `Frontier` that tells whether an earlier access is ordered before this one."""
        if self.space is Space.TENSOR:
            return "tensor"
        if self.proxy is Proxy.ASYNC:
            return "shared" if self.space is Space.SHARED else "global_"
        return "generic"


@dataclass(frozen=True)
class Signal:
    """Tells an mbarrier something. kind: "arrive", "expect_tx", "complete_tx" (PTX ISA, "mbarrier")."""

    kind: str
    when: When = When.ISSUE


@dataclass(frozen=True)
class Wait:
    """Blocks until something happened. kind: "mbarrier", "group", "tcgen05.ld", "tcgen05.st", "threads", "semaphore".

    read_only: only the reads of the awaited operations are known to be over (bulk wait_group.read).
    """

    kind: str
    read_only: bool = False


LANES_TOGETHER = "a warp's lanes act as one: races between lanes of one warp are not looked for"
"""The approximation of what every lane does by itself."""


@dataclass(frozen=True)
class Description:
    """One instruction family. ptx: the PTX ISA section that defines it. completes_by: the wait that ends it.

    conflict: the code of a finding about an access of it, where it has one of its own. approximation: what the checks
    of the order leave out, in a few words; "": nothing. again: None where each CTA must execute it in full. carries: it
    moves or combines elements of registers inside each thread; what nothing wrote is carried along (unwritten.py).
    """

    name: str
    ptx: str
    lanes: Lanes = Lanes.ALL
    effects: tuple[Effect, ...] = ()
    signals: tuple[Signal, ...] = ()
    waits: tuple[Wait, ...] = ()
    resources: tuple[str, ...] = ()
    completes_by: str = ""
    conflict: Code | None = None
    approximation: str = ""
    again: Again | None = None
    carries: bool = False

    @functools.cached_property
    def generic(self) -> bool:
        """Every access is one of the generic proxy, as of cp.async, which only defers what its thread would do."""
        return all(effect.proxy is Proxy.GENERIC for effect in self.effects)

    def touching(self, access: Access, when: When) -> tuple[Effect, ...]:
        """The effects on addressable memory of one kind (registers belong to one warp and are checked apart)."""
        memory = (e for e in self.effects if e.space not in (Space.REGISTER, Space.BARRIER))
        return tuple(e for e in memory if e.access is access and e.when is when)


Lowering = Callable[[Any, Any], Any]
"""(instruction, Site) -> a callable (warp, *operand values) that executes it, or None when there is nothing to do."""

DESCRIPTIONS: dict[str, tuple[Description, Lowering]] = {}
"""By the name of tilus's instruction class."""


def describe(*instructions: str, **facts: Any) -> Callable[[Lowering], Lowering]:
    """Register the lowering of the named tilus instruction classes with their description."""

    def register(lowering: Lowering) -> Lowering:
        for instruction in instructions:
            DESCRIPTIONS[instruction] = (Description(**{"name": instruction, **facts}), lowering)
        return lowering

    return register


def description_of(inst: Any, where: str) -> tuple[Description, Lowering]:
    """The description of a tilus instruction or of its base class; UnsupportedError names it and its line."""
    for cls in type(inst).__mro__:
        if cls.__name__ in DESCRIPTIONS:
            return DESCRIPTIONS[cls.__name__]
    raise UnsupportedError(f"The simulator has no description of {type(inst).__name__}, used at {where}.")
