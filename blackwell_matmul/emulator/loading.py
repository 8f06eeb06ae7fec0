"""Makes an `Execution` from a parsed kernel and a launch: variables get addresses, instructions get functions."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from blackwell_matmul.base.errors import EmulationError, InputError
from blackwell_matmul.emulator import instructions
from blackwell_matmul.emulator.code import Builder, Executable
from blackwell_matmul.emulator.functions import function_calls
from blackwell_matmul.emulator.functions.frames import Callee
from blackwell_matmul.emulator.functions.function_calls import formal_place
from blackwell_matmul.emulator.machine import MOST_LOCAL_BYTES, WarpState
from blackwell_matmul.emulator.parser import Entry, Module, Statement, Variable
from blackwell_matmul.emulator.scheduler import Choices, Clusters, Execution, Extents, Limit, own_fault
from blackwell_matmul.emulator.spaces import CODE, LOCAL, PARAM, RESERVED_BYTES, GlobalSpace, Memory
from blackwell_matmul.emulator.starting import SPECIALS, Places, Starter
from blackwell_matmul.emulator.unknown import Malformed, NotEmulated, Parts, Unknown

assert instructions and function_calls  # the imports register the functions that build instructions

MAX_THREADS = 1024
MAX_GRID, MAX_BLOCK, MAX_CLUSTER = (2**31 - 1, 65535, 65535), (1024, 1024, 64), 16
"""Limits of a launch (CUDA programming guide, "Technical Specifications per Compute Capability"). A cluster of more
than 8 CTAs needs an attribute of the kernel, which host code sets."""

MOST_CTAS = 10**9
"""Maximum number of CTAs of a launch; more would take hours."""

MAX_SHARED_BYTES = 227 * 1024
"""Maximum shared memory of a CTA (CUDA programming guide, "Technical Specifications per Compute Capability")."""


RETURN_BYTES = 16
"""Bytes of a stack frame in addition to its variables, so that endless recursion exhausts local memory."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Shape of a launch: grid and cluster in CTAs, block in threads. shared_bytes: dynamic shared memory.

    cooperative: True if all CTAs start at once, as a barrier of the grid needs.
    """

    grid: Extents
    block: Extents
    cluster: Extents
    shared_bytes: int
    cooperative: bool = False


def loaded(
    module: Module,
    entry: Entry,
    shape: LaunchShape,
    values: list[bytes],
    memory: GlobalSpace,
    choices: Choices,
    kept: dict[str, int] | None = None,
) -> Execution:
    """Return an `Execution`; raise InputError, one sentence, for memory or an instruction that no GPU accepts.

    shape: a result of `verified`. kept: addresses of the module's variables from earlier launches; addresses of new
    variables are added.
    """
    bodies = [*module.functions.values(), entry]
    variables = [*module.variables, *(each for body in bodies for each in body.variables)]
    local, local_bytes = _frame(entry)
    _verify_bytes(variables, shape, local_bytes, choices.limit)
    parameters, addresses = _placed_parameters(entry, values)
    shared, end = _laid_out(variables, "shared", RESERVED_BYTES)
    codes = _codes(module)
    addresses |= variable_addresses(module, variables, memory, {} if kept is None else kept, shared) | codes
    shared_bytes = end - RESERVED_BYTES + shape.shared_bytes
    if shared_bytes > MAX_SHARED_BYTES:
        raise InputError(f"{shared_bytes:,} bytes of shared memory; a CTA has from 0 to {MAX_SHARED_BYTES:,}.")
    program = LoadedKernel(module, entry, {*addresses, *shared, *local, *SPECIALS}, codes)
    places = Places(addresses, shared, shared_bytes, local, local_bytes, program.start, shape.shared_bytes)
    starter = Starter(program.builder, shape.grid, shape.block, shape.cluster, places)
    clusters = Clusters(shape.grid, shape.cluster)
    most = 1 if program.meets else starter.most_clusters()
    execution = Execution(program.steps, memory, parameters, clusters, starter.start, most, choices, program.unknown)
    if shape.cooperative:
        execution.start_all()
    return execution


class LoadedKernel:
    """Executable instructions of all device functions, then of the kernel. start: index of the kernel's first
    instruction.

    Functions come first, so that lanes in a call run before lanes that wait after the call. unknown: a sentence for
    each instruction that is not emulated; executing the instruction stops the run. meets: True if a CTA may wait for
    other CTAs of the grid, or if the order of CTAs is visible, as with printf.
    """

    def __init__(self, module: Module, entry: Entry, names: set[str], codes: dict[str, int]) -> None:
        self.steps: list[Executable] = []
        self.unknown: list[str] = []
        functions = list(module.functions.values())
        starts = [0, *itertools.accumulate(len(each.instructions) + 1 for each in functions)]
        self.start = starts[-1]
        labels: dict[str, int] = {}
        tables: dict[str, list[str]] = {}
        for each, start in zip([*functions, entry], starts):
            labels |= {name: start + place for name, place in each.labels.items()}
            tables |= each.tables
        self.builder = Builder(entry.registers, labels, tables, names)
        self.builder.gpu, self.builder.version = module.target, module.version
        callees = [self._declare(each, start) for each, start in zip(functions, starts)]
        self.builder.callees |= {name: name for name in module.declared if name not in module.functions}
        self.builder.callees |= {name: self.builder.callee(other) for name, other in module.aliases.items()}
        self.builder.by_address = {code: self.builder.callees[name] for name, code in codes.items()}
        self.builder.sizes |= {each.name: each.nbytes or 0 for each in entry.parameters}
        self._size(entry)
        variables = [*module.variables, *(each for body in (*functions, entry) for each in body.variables)]
        self.builder.spaces |= {each.name: each.space for each in variables}
        self.builder.spaces |= {each.name: "parameter" for each in entry.parameters}
        self.meets = any(_meets(each) for body in (*functions, entry) for each in body.instructions)
        for function, callee in zip(functions, callees):
            self._add_function(function, callee)
        self.builder.function = None
        self._add(entry)

    def _declare(self, function: Entry, start: int) -> Callee:
        """Return a new Callee for a device function, so that calls can name it."""
        frame, nbytes = _frame(function)
        callee = self.builder.callees[function.name] = Callee(function.name, start, function.own, nbytes + RETURN_BYTES)
        self.builder.frames |= {name: (callee, place) for name, place in frame.items()}
        self._size(function)
        callee.formals = [formal_place(self.builder, formal) for formal in function.formals]
        callee.results = [formal_place(self.builder, formal) for formal in function.results]
        return callee

    def _size(self, entry: Entry) -> None:
        self.builder.sizes |= {each.name: each.nbytes or 0 for each in entry.variables if each.space == "param"}

    def _add_function(self, function: Entry, callee: Callee) -> None:
        self.builder.function = callee
        self._add(function)

    def _add(self, entry: Entry) -> None:
        for each in entry.instructions:
            self.builder.place = len(self.steps)
            self.steps.append(self._built(each))
        self.steps.append(self._built(Statement("ret", Parts(), None, 0, "ret", None)))  # ptxas adds a `ret`, too

    def _built(self, each: Statement) -> Executable:
        where = f"PTX line {each.line}" + (f" ({each.location.file}:{each.location.line})" if each.location else "")
        try:
            return self.builder.build(each)
        except Malformed as error:
            raise InputError(f"{where}: {each.text[:160]}: {error}.") from error
        except Unknown as error:
            self.unknown.append(f"{where}: {each.text[:160]}: {error}.")
            return self.builder.guarded(partial(self._refuse, len(self.unknown) - 1), each)
        except Exception as error:
            raise EmulationError(f"{where}: {each.text[:160]}: {own_fault(error)}.") from error

    def _refuse(self, index: int, warp: WarpState, mask: int) -> None:
        """Raise NotEmulated for an instruction; the message counts the other instructions that are not emulated."""
        others = len(self.unknown) - 1
        more = f", nor are {others:,} other instructions of this PTX" if others else ""
        raise NotEmulated(self.unknown[index].removesuffix(".") + more + ".")


def _meets(each: Statement) -> bool:
    """Return True for an instruction that prints, or through which CTAs of different clusters may communicate."""
    words = {*each.modifiers}
    if any(word.startswith("shared") for word in words):
        return each.opcode.startswith("cp.reduce")
    updates = each.opcode.startswith(("atom", "red.", "call", "multimem", "cp.reduce"))
    return updates or (each.opcode.startswith("ld") and bool({"acquire", "relaxed", "volatile", "mmio"} & words))


def _frame(entry: Entry) -> tuple[dict[str, int], int]:
    """Return the offset of each variable of one call in a thread's local memory, and their bytes in all.

    A variable in `.param` space has a generic address; a variable in `.local` space has an address in the local window.
    """
    local, end = _laid_out(entry.variables, "local", 0)
    parameters, end = _laid_out(entry.variables, "param", end)
    if end > MOST_LOCAL_BYTES:
        raise InputError(f"{entry.name} has {end:,} bytes of local memory; a thread has up to {MOST_LOCAL_BYTES:,}.")
    return local | {name: LOCAL + place for name, place in parameters.items()}, -(-end // 16) * 16


# --- limits


def _cluster(entry: Entry, given: Extents) -> Extents:
    """Return the cluster shape compiled into the kernel, or else the launch's."""
    fixed = entry.directives.get(".reqnctapercluster")
    return given if not fixed or 0 in fixed else (*fixed, 1, 1)[:3]  # type: ignore[return-value]


def verified(entry: Entry, shape: LaunchShape) -> LaunchShape:
    """Return the launch with the kernel's own cluster; raise InputError beyond every GPU's limits, or the kernel's own
    (PTX ISA, "Performance-Tuning Directives")."""
    shape = replace(shape, cluster=_cluster(entry, shape.cluster))
    threads, cluster = prod(shape.block), prod(shape.cluster)
    for name, extents in (("grid", shape.grid), ("block", shape.block), ("cluster", shape.cluster)):
        if min(extents) < 1:
            raise InputError(f"{name} is {extents}; each extent is 1 at least.")
    if threads > MAX_THREADS:
        raise InputError(f"a block of {shape.block} has {threads} threads; a CTA has at most {MAX_THREADS}.")
    for name, extents, most in (("grid", shape.grid, MAX_GRID), ("block", shape.block, MAX_BLOCK)):
        if any(extent > limit for extent, limit in zip(extents, most)):
            raise InputError(f"{name} is {extents}; a GPU has at most {most}.")
    most_ctas = min(each or MAX_CLUSTER for each in (*entry.directives.get(".maxclusterrank", ()), MAX_CLUSTER))
    if cluster > most_ctas:
        raise InputError(f"a cluster of {shape.cluster} has {cluster} CTAs; {entry.name} takes at most {most_ctas}.")
    if any(extent % size for extent, size in zip(shape.grid, shape.cluster)):
        raise InputError(f"a grid of {shape.grid} CTAs is not made of clusters of {shape.cluster}.")
    if prod(shape.grid) > MOST_CTAS:
        raise InputError(f"a grid of {shape.grid} has {prod(shape.grid):,} CTAs; at most {MOST_CTAS:,} are emulated.")
    if not 0 <= shape.shared_bytes <= MAX_SHARED_BYTES:
        raise InputError(f"{shape.shared_bytes:,} bytes of shared memory; a CTA has from 0 to {MAX_SHARED_BYTES:,}.")
    _verify_block(entry, shape.block)
    return shape


def _verify_block(entry: Entry, block: Extents) -> None:
    """Check the block against `.reqntid`, the exact shape, and `.maxntid`, the maximum number of threads."""
    most, exactly = (prod(entry.directives.get(name) or (0,)) for name in (".maxntid", ".reqntid"))
    threads, wanted = prod(block), (*entry.directives.get(".reqntid", ()), 1, 1)[:3]
    if (most and threads > most) or (exactly and threads != exactly):
        raise InputError(f"{entry.name} is compiled for {exactly or most} threads and not for {threads}.")
    if exactly and block != wanted:
        raise InputError(f"{entry.name} is compiled for a block of {wanted} and not of {block}.")


def _verify_bytes(variables: list[Variable], shape: LaunchShape, local_bytes: int, limit: Limit) -> None:
    """Check that the variables of the module and of one cluster's threads fit into the limit."""
    threads = prod(shape.block) * prod(shape.cluster)
    nbytes = sum(each.nbytes or 0 for each in variables if each.space in ("global", "const")) + threads * local_bytes
    if limit.bytes is not None and nbytes > limit.bytes:
        raise InputError(
            f"the variables need {nbytes:,} bytes, and the limit is {limit.bytes:,}; `limit=` sets another."
        )


# --- addresses


def _placed_parameters(entry: Entry, values: list[bytes]) -> tuple[Memory, dict[str, int]]:
    """Return the memory that holds the parameters, and their addresses."""
    data, addresses = bytearray(), {}
    for parameter, value in zip(entry.parameters, values):
        data += bytes(-len(data) % parameter.alignment)
        addresses[parameter.name] = PARAM + len(data)
        data += value
    data += bytes(16 - len(data) % 16)
    return Memory("the parameters", PARAM, np.frombuffer(bytes(data), np.uint8)), addresses


def _codes(module: Module) -> dict[str, int]:
    """Return the address of each device function."""
    return {name: CODE + 16 * index for index, name in enumerate([*module.functions, *sorted(module.declared)], 1)}


def variable_addresses(
    module: Module,
    variables: list[Variable],
    memory: GlobalSpace,
    kept: dict[str, int],
    shared: dict[str, int] | None = None,
) -> dict[str, int]:
    """Return the addresses of global variables: `kept`, to which variables without an address are added."""
    new = [each for each in variables if each.name not in kept]
    kept |= _placed_globals(new, memory)
    _refer(new, kept | _codes(module) | (shared or {}), memory)
    return kept


def _placed_globals(variables: list[Variable], memory: GlobalSpace) -> dict[str, int]:
    addresses = {}
    for each in variables:
        if each.space in ("global", "const"):
            data = np.zeros(each.nbytes or 1, np.uint8)
            data[: len(each.initial)] = np.frombuffer(each.initial, np.uint8)
            addresses[each.name] = memory.add(each.name.partition("@")[0], data).base
    return addresses


def _refer(variables: list[Variable], addresses: dict[str, int], memory: GlobalSpace) -> None:
    """Write the addresses of variables into initial values; raise InputError for an unknown name."""
    for variable in variables:
        for each in variable.references:
            if each.name not in addresses:
                text = f"{variable.name} has the address of {each.name}, which is not declared."
                raise InputError(f"PTX line {each.line}: {text}")
            word = (addresses[each.name] + each.addend >> each.shift) & (1 << 8 * each.nbytes) - 1
            place = memory.at(addresses[variable.name]).bytes(addresses[variable.name] + each.place, each.nbytes)
            place[:] = np.frombuffer(word.to_bytes(each.nbytes, "little"), np.uint8)


def _laid_out(variables: list[Variable], space: str, start: int) -> tuple[dict[str, int], int]:
    """Return the offset of each variable of a space, and the end of the last. A variable of dynamic size is last."""
    places, at = {}, start
    for each in sorted(variables, key=lambda each: each.nbytes is None):
        if each.space == space:
            at += -at % each.alignment
            places[each.name] = at
            at += each.nbytes or 0
    return places, at
