"""Makes an `Execution` of a parsed kernel and its launch: variables get addresses, instructions their functions."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from blackwell_matmul.base.errors import EmulationError, InputError
from blackwell_matmul.emulator import instructions
from blackwell_matmul.emulator.code import Builder, Executable
from blackwell_matmul.emulator.parser import Entry, Module, Statement, Variable
from blackwell_matmul.emulator.scheduler import Choices, Execution, own_fault
from blackwell_matmul.emulator.spaces import PARAM, RESERVED_BYTES, GlobalSpace, Memory
from blackwell_matmul.emulator.starting import SPECIALS, Extents, Places, Starter
from blackwell_matmul.emulator.unknown import Unknown

assert instructions  # their functions are registered

MAX_THREADS = 1024
MAX_SHARED_BYTES = 227 * 1024
"""Shared memory of a CTA (CUDA programming guide, "Technical Specifications per Compute Capability")."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Shape of a launch: grid and cluster in CTAs, block in threads; shared_bytes: dynamic."""

    grid: Extents
    block: Extents
    cluster: Extents
    shared_bytes: int


def loaded(
    module: Module, entry: Entry, shape: LaunchShape, values: list[bytes], memory: GlobalSpace, choices: Choices
) -> Execution:
    """Return an `Execution`; InputError or Unknown, one sentence, for a launch or an instruction that cannot run."""
    shape = replace(shape, cluster=_cluster(entry, shape.cluster))
    _verify(entry, shape)
    variables = [*module.variables, *entry.variables]
    parameters, addresses = _placed_parameters(entry, values)
    addresses |= _placed_globals(variables, memory)
    shared, end = _laid_out(variables, "shared", RESERVED_BYTES)
    local, local_bytes = _laid_out(variables, "local", 0)
    shared_bytes = end - RESERVED_BYTES + shape.shared_bytes
    if not 0 <= shape.shared_bytes <= shared_bytes <= MAX_SHARED_BYTES:
        raise InputError(f"{shared_bytes:,} bytes of shared memory; a CTA has up to {MAX_SHARED_BYTES:,}.")
    places = Places(addresses, shared, shared_bytes, local, -(-local_bytes // 16) * 16)
    builder = Builder(entry.registers, entry.labels, entry.tables, {*addresses, *shared, *local, *SPECIALS})
    builder.gpu = module.target
    steps = [_built(builder, each) for each in entry.instructions]
    starter = Starter(builder, shape.grid, shape.block, shape.cluster, places)
    firsts = itertools.product(*(range(0, extent, size) for extent, size in zip(shape.grid[::-1], shape.cluster[::-1])))
    return Execution(steps, memory, parameters, deque((x, y, z) for z, y, x in firsts), starter.start, choices)


def _cluster(entry: Entry, given: Extents) -> Extents:
    """Return the cluster compiled into the kernel, else the given one."""
    fixed = entry.directives.get(".reqnctapercluster")
    return given if not fixed else (*fixed, 1, 1)[:3]  # type: ignore[return-value]


def _verify(entry: Entry, shape: LaunchShape) -> None:
    threads = prod(shape.block)
    if any(extent % size for extent, size in zip(shape.grid, shape.cluster)):
        raise InputError(f"a grid of {shape.grid} CTAs is not made of clusters of {shape.cluster}.")
    if threads > MAX_THREADS:
        raise InputError(f"a block of {shape.block} has {threads} threads; a CTA has at most {MAX_THREADS}.")
    most, exactly = (prod(entry.directives.get(name) or (0,)) for name in (".maxntid", ".reqntid"))
    if (most and threads > most) or (exactly and threads != exactly):
        raise InputError(f"{entry.name} is compiled for {exactly or most} threads and not for {threads}.")


def _placed_parameters(entry: Entry, values: list[bytes]) -> tuple[Memory, dict[str, int]]:
    """Return the parameters' memory, each aligned, and their addresses."""
    data, addresses = bytearray(), {}
    for parameter, value in zip(entry.parameters, values):
        data += bytes(-len(data) % parameter.alignment)
        addresses[parameter.name] = PARAM + len(data)
        data += value
    data += bytes(16 - len(data) % 16)
    return Memory("the parameters", PARAM, np.frombuffer(bytes(data), np.uint8)), addresses


def _placed_globals(variables: list[Variable], memory: GlobalSpace) -> dict[str, int]:
    addresses = {}
    for each in variables:
        if each.space in ("global", "const"):
            data = np.zeros(each.nbytes or 1, np.uint8)
            data[: len(each.initial)] = np.frombuffer(each.initial, np.uint8)
            addresses[each.name] = memory.add(each.name, data).base
    return addresses


def _laid_out(variables: list[Variable], space: str, start: int) -> tuple[dict[str, int], int]:
    """Return the offsets of a space's variables and its end; a variable of dynamic size is last."""
    places, at = {}, start
    for each in sorted(variables, key=lambda each: each.nbytes is None):
        if each.space == space:
            at += -at % each.alignment
            places[each.name] = at
            at += each.nbytes or 0
    return places, at


def _built(builder: Builder, each: Statement) -> Executable:
    where = f"PTX line {each.line}" + (f" ({each.location.file}:{each.location.line})" if each.location else "")
    try:
        return builder.build(each)
    except Unknown as error:
        raise Unknown(f"{where}: {each.text[:160]}: {error}.") from error
    except Exception as error:
        raise EmulationError(f"{where}: {each.text[:160]}: {own_fault(error)}.") from error
