"""Instruction descriptions: one for the values, ordering, time and reports of each instruction.

A `Description` lists what the instruction accesses (effects), signals and waits for. `describe` registers it with the
function that lowers the instruction to a Python callable. Accesses, operations, signals and waits are executed from it
(`semantics/context.py`). Lowering derives the rest from it: that it stores, or that it ties CTAs together.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Code
from blackwell_matmul.simulator.machine.registers import ThreadGroup


class Space(enum.Enum):
    """State spaces (PTX ISA, "State Spaces"; tensor memory: "tcgen05 / Tensor Memory")."""

    REGISTER = "register"
    SHARED = "shared"
    TENSOR = "tensor"
    GLOBAL = "global"
    BARRIER = "mbarrier"


class Access(enum.Enum):
    """Kinds of access. ALLOCATE: it makes the memory; a workspace in global memory is shared by all CTAs."""

    READ = "read"
    WRITE = "write"
    ALLOCATE = "allocate"


class Proxy(enum.Enum):
    """The path by which memory is accessed (PTX ISA, "Memory Consistency Model / Proxies")."""

    GENERIC = "generic"
    ASYNC = "async"
    TENSOR_MEMORY = "tcgen05"


class ExecutedBy(enum.Enum):
    """Lanes of the warp that execute an instruction: all active lanes, or the lane that elect.sync selects."""

    ALL = "all"
    ELECTED = "elected"


class When(enum.Enum):
    """Time of an access. ISSUE: before the next instruction. COMPLETION: any time until the operation is waited for."""

    ISSUE = "issue"
    COMPLETION = "completion"


class Again(enum.Enum):
    """Replay of an instruction for a CTA that takes the same steps as another (`replay/`).

    NOTHING: it moves no values. VALUES: its callable is called with the registers and tiles of that CTA.
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
        """Return the path of the set of a `Frontier` that decides whether an earlier access is ordered before this
        one."""
        if self.space is Space.TENSOR:
            return "tensor"
        if self.proxy is Proxy.ASYNC:
            return "shared" if self.space is Space.SHARED else "global_"
        return "generic"


SignalKind = Literal["arrive", "expect_tx", "complete_tx", "release"]
WaitKind = Literal["mbarrier", "group", "group.read", "wait::ld", "wait::st", "threads", "cluster", "acquire"]


@dataclass(frozen=True)
class Signal:
    """A signal to an mbarrier (PTX ISA, "mbarrier"); "release": to a semaphore in global memory."""

    kind: SignalKind
    when: When = When.ISSUE


@dataclass(frozen=True)
class Wait:
    """A wait. kind: "mbarrier": for a phase. "group": for the thread's groups of operations; "group.read": for their
    reads. "wait::ld", "wait::st": tcgen05's. "threads", "cluster": for these to arrive. "acquire": for a semaphore's
    value."""

    kind: WaitKind


class Unit(enum.Enum):
    """The part of an SM that serves an instruction; `timing/work.py` has the service of each."""

    NONE = "free"
    UNKNOWN = "unknown"
    WARP = "its warp"
    LATER = "no part, but it ends later"
    WARPS = "all warps that meet"
    PEER = "its warp, until the other CTA gets the signal"
    TCGEN05 = "tensor core (tcgen05.mma)"
    WGMMA = "tensor core (wgmma)"
    MMA_SYNC = "tensor core (mma.sync)"
    TENSOR_MEMORY = "tensor memory"
    TENSOR_COPY = "tensor core (tcgen05.cp)"
    TENSOR_MEMORY_LOCK = "allocation of tensor memory"
    TMA_LOAD = "TMA loads"
    TMA_STORE = "TMA stores"
    CP_ASYNC = "cp.async"
    CLC = "cluster launch control"
    LINES = "loads and stores"
    BANKS = "shared memory"
    ARITHMETIC = "arithmetic units"
    SHUFFLES = "shuffles"


@dataclass(frozen=True)
class Time:
    """The service time of an instruction: the part of the SM that serves it, and the warp's cycles for the issue.

    cycles: the name of a field of `gpu_figures.TimeFigures`; "": the issue costs nothing. For `Unit.LATER` they are the
    cycles from the issue to the end of the operation.
    """

    unit: Unit
    cycles: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.unit.value, self.cycles)))


AT_ONCE = (Unit.NONE, Unit.WARP, Unit.WARPS, Unit.PEER)
"""Units whose instructions end before the warp continues."""

FREE = Time(Unit.NONE)
"""Time of an instruction that takes no cycles: it moves no data, or a compiler removes it."""

UNKNOWN = Time(Unit.UNKNOWN)
"""Time of an instruction without a published figure; `predict` refuses the instruction."""


@dataclass(frozen=True)
class Description:
    """An instruction family. ptx: the PTX ISA section that defines it, unless `name` names the section. called: its
    name in scripts and reports, if another.

    completes_by: the wait that ends its operations if no mbarrier does, in a report's words; of a commit, the wait that
    they need from then on. conflict: the code of findings about its accesses, if it has one of its own. approximation:
    what the checks of the order leave out, in a few words; "": nothing. again: None if each CTA must execute it in
    full. carries: it moves or combines elements of registers in each thread, and what nothing wrote with them
    (unwritten.py). shares: its result is a view of its operand's registers. cancels: it takes the work of a cluster
    that has not started, and no CTA may exit before it is over. unpromised: PTX does not promise that it
    follows the operations of the tensor core that its thread issued before; hardware keeps that order.

    time: the part of an SM that serves it, and its cycles; every description has it, `FREE` included. mark: the name of
    its intervals on a timeline that a GPU measures; "": such a timeline leaves it out.
    """

    name: str
    ptx: str = ""
    time: Time = field(kw_only=True)
    mark: str = field(default="", kw_only=True)
    lanes: ExecutedBy = ExecutedBy.ALL
    effects: tuple[Effect, ...] = ()
    signals: tuple[Signal, ...] = ()
    waits: tuple[Wait, ...] = ()
    completes_by: str = ""
    conflict: Code | None = None
    approximation: str = ""
    again: Again | None = None
    carries: bool = False
    shares: bool = False
    cancels: bool = False
    unpromised: bool = False
    called: str = ""

    @functools.cached_property
    def generic(self) -> bool:
        """Return True if every access is of the generic proxy, as of cp.async, which only defers its thread's
        accesses."""
        return all(effect.proxy is Proxy.GENERIC for effect in self.effects)

    @functools.cached_property
    def stores(self) -> bool:
        """Return True if it writes global memory: its global tensors, or any address by a pointer."""
        return any(e.space is Space.GLOBAL and e.access is Access.WRITE for e in self.effects)

    @functools.cached_property
    def in_registers(self) -> bool:
        """Return True if it touches no memory, signals nothing and waits for nothing."""
        return not (self.waits or self.signals) and all(e.space is Space.REGISTER for e in self.effects)

    @property
    def section(self) -> str:
        """Return the section of the PTX ISA that defines the instruction: `ptx`, or `name` if PTX has an instruction
        of this name."""
        return self.ptx or (self.name if "." in self.name else "")

    @functools.cached_property
    def ties_ctas(self) -> bool:
        """Return True if CTAs that execute the instruction depend on each other, and must run together."""
        workspace = any(e.space is Space.GLOBAL and e.access is Access.ALLOCATE for e in self.effects)
        semaphore = any(w.kind == "acquire" for w in self.waits) or any(s.kind == "release" for s in self.signals)
        return workspace or semaphore or self.updates

    @functools.cached_property
    def updates(self) -> bool:
        """Return True if it reads and writes an element of global memory in one step, as an atomic operation."""
        in_global = [e for e in self.effects if e.space is Space.GLOBAL]
        read, written = ({e.operand for e in in_global if e.access is each} for each in (Access.READ, Access.WRITE))
        return not read.isdisjoint(written)

    @functools.cached_property
    def registers_later(self) -> bool:
        """Return True if registers are filled, or used, after the next instruction has started."""
        return any(e.space is Space.REGISTER and e.when is When.COMPLETION for e in self.effects)

    @functools.cached_property
    def reads_later(self) -> tuple[Effect, ...]:
        return self.touching(Access.READ, When.COMPLETION)

    @functools.cached_property
    def writes_registers(self) -> bool:
        return any(e.space is Space.REGISTER and e.access is Access.WRITE for e in self.effects)

    def signalling(self, when: When) -> tuple[SignalKind, ...]:
        return tuple(signal.kind for signal in self.signals if signal.when is when)

    @functools.cached_property
    def arrives_later(self) -> bool:
        """Return True if the instruction arrives at an mbarrier asynchronously, such as a commit."""
        return "arrive" in self.signalling(When.COMPLETION)

    @functools.cached_property
    def awaited(self) -> frozenset[WaitKind]:
        return frozenset(wait.kind for wait in self.waits)

    def touching(self, access: Access, when: When) -> tuple[Effect, ...]:
        """Return the effects of one kind on addressable memory. Registers belong to one warp and are checked
        separately."""
        memory = (e for e in self.effects if e.space not in (Space.REGISTER, Space.BARRIER))
        return tuple(e for e in memory if e.access is access and e.when is when)


@dataclass(frozen=True, eq=False)
class Instruction:
    """An instruction, or a statement like one, at its place in a program.

    group: the threads that execute it. scope: of its signal or wait, relaxed or not: "cta", "cluster", or "".
    """

    description: Description
    group: ThreadGroup
    location: Location | None
    scope: str = ""

    @property
    def name(self) -> str:
        return self.description.name

    @property
    def spoken(self) -> str:
        """Name of the instruction in scripts."""
        return self.description.called or self.name


Lowering = Callable[[Any, Any], Any]
"""Function of (instruction, LoweringContext). Returns a callable (warp, *operand values) that executes the
instruction, or None."""

DESCRIPTIONS: dict[str, tuple[Description, Lowering]] = {}
"""Descriptions and lowerings by the name of tilus's instruction class."""


def describe(*instructions: str, mark: str | bool = "", **facts: Any) -> Callable[[Lowering], Lowering]:
    """Register the lowering of the named tilus instruction classes with their description.

    mark: as of `Description`; True stands for the instruction's name.
    """

    def register(lowering: Lowering) -> Lowering:
        for instruction in instructions:
            name = facts.get("name", instruction)
            marked = name if mark is True else mark or ""
            description = Description(**{**facts, "name": name, "mark": marked})
            later = any(e.when is When.COMPLETION for e in description.effects)
            told = description.completes_by or description.signalling(When.COMPLETION)
            assert told or not later, f"{description.name} ends later, and nothing says what waits for it: completes_by"
            assert not (later and description.time.unit in AT_ONCE), f"{description.name} ends later: Unit.LATER"
            DESCRIPTIONS[instruction] = (description, lowering)
        return lowering

    return register


def description_of(inst: Any, where: str) -> tuple[Description, Lowering]:
    """Return the description of a tilus instruction, or of its abstract base class; UnsupportedError names its line."""
    for cls in type(inst).__mro__:
        if cls.__name__ in DESCRIPTIONS and (cls is type(inst) or "Base" in cls.__name__):
            return DESCRIPTIONS[cls.__name__]
    raise UnsupportedError(f"The simulator has no description of {type(inst).__name__}, used at {where}.")
