"""Asynchronous operations that a warp commits in groups, and waits for by how many groups may be left.

PTX ISA, "cp.async.commit_group", "cp.async.bulk.commit_group", "wgmma.commit_group" and their wait_group. A kind of
groups goes by what stands in front of these words.
"""

from __future__ import annotations

from typing import Any

from blackwell_matmul.emulator.code import Act, Builder, Unknown, instruction
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import Number, Operand, Statement

COPIES, BULK, PRODUCTS, TENSOR_STORES = "cp.async", "cp.async.bulk", "wgmma", "tcgen05.st"


def groups(warp: WarpState, kind: str) -> list[list[Any]]:
    """The groups of a kind that were committed, and the open one at the end."""
    return warp.groups.setdefault(kind, [[]])


def join(warp: WarpState, kind: str, operation: Any) -> None:
    """An operation belongs to the open group."""
    groups(warp, kind)[-1].append(operation)


def commit(warp: WarpState, kind: str) -> None:
    groups(warp, kind).append([])


def wait(warp: WarpState, kind: str, count: int) -> None:
    """Let all but the last `count` groups that were committed complete."""
    found = groups(warp, kind)
    while len(found) > count + 1:
        for operation in found.pop(0):
            warp.cta.cluster.grid.complete(operation)


def wait_all(warp: WarpState, kind: str) -> None:
    commit(warp, kind)
    wait(warp, kind, 0)


def number_of(operand: Operand) -> int:
    if not isinstance(operand, Number):
        raise Unknown(f"{operand} is no number")
    return int(operand.value)


@instruction(*(f"{kind}.commit_group" for kind in (COPIES, BULK, PRODUCTS)))
def commit_group(build: Builder, each: Statement) -> Act:
    kind = each.opcode.split(".commit_group")[0]
    return lambda warp, mask: commit(warp, kind)


@instruction(*(f"{kind}.wait_group" for kind in (COPIES, BULK, PRODUCTS)))
def wait_group(build: Builder, each: Statement) -> Act:
    """With .read, the sources were read; here a copy reads and writes at once."""
    kind, count = each.opcode.split(".wait_group")[0], number_of(each.operands[0])
    return lambda warp, mask: wait(warp, kind, count)


@instruction("cp.async.wait_all")
def wait_all_copies(build: Builder, each: Statement) -> Act:
    return lambda warp, mask: wait_all(warp, COPIES)
