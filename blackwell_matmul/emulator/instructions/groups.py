"""Groups of asynchronous operations: threads commit groups, and wait until at most n groups are pending.

cp.async and cp.async.bulk have groups per thread, wgmma and tcgen05.st per warp (PTX ISA, "cp.async.commit_group",
"cp.async.bulk.commit_group", "wgmma.commit_group", "tcgen05.wait"). The kind of a group is the opcode before
`.commit_group`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from blackwell_matmul.emulator.code import Act, Builder, instruction, wide
from blackwell_matmul.emulator.lanes import ALL
from blackwell_matmul.emulator.machine import Row, Waiting, WarpState
from blackwell_matmul.emulator.parser import Number, Operand, Statement
from blackwell_matmul.emulator.spaces import Undefined
from blackwell_matmul.emulator.unknown import Unknown

COPIES, BULK, PRODUCTS, TENSOR_STORES = "cp.async", "cp.async.bulk", "wgmma", "tcgen05.st"


class LaneGroups:
    """Groups of lanes with equal history. groups: the committed groups, then the open group. read: number of the first
    groups that were only waited for by .read."""

    __slots__ = ("groups", "lanes", "read")

    def __init__(self, lanes: int, groups: Iterable[list[Issued]], read: int = 0) -> None:
        self.lanes, self.groups, self.read = lanes, [[*group] for group in groups], read

    def commit(self) -> None:
        while len(self.groups) > 1 and not self.groups[0]:
            del self.groups[0]  # complete, so no wait needs it
            self.read = max(0, self.read - 1)
        self.groups.append([])


class Issued:
    """An operation for which lanes have not waited. part: completes it for some lanes; None if indivisible."""

    __slots__ = ("lanes", "operation", "part")

    def __init__(self, operation: Any, lanes: int, part: Callable[[int], None] | None) -> None:
        self.operation, self.lanes, self.part = operation, lanes, part

    def end(self, warp: WarpState, lanes: int) -> None:
        """Complete the operation for these lanes; an indivisible operation for all lanes."""
        grid = warp.cta.cluster.grid
        if self.part is not None and self.lanes & ~lanes and not self.operation.done:
            outer, grid.completing = grid.completing, self.operation
            self.part(self.lanes & lanes)
            grid.completing = outer
            self.lanes &= ~lanes
            grid.effects += 1
        else:
            grid.complete(self.operation)


def groups(warp: WarpState, kind: str, mask: int = ALL) -> list[LaneGroups]:
    """Return the groups of these lanes, after separating them from lanes that share their groups."""
    every = warp.groups.setdefault(kind, [])
    if not every:
        every.append(LaneGroups(ALL, [[]]))
    if mask == ALL:
        return every
    for each in [each for each in every if each.lanes & mask and each.lanes & ~mask]:
        every.append(LaneGroups(each.lanes & mask, each.groups, each.read))
        each.lanes &= ~mask
    return [each for each in every if each.lanes & mask]


def join(
    warp: WarpState, kind: str, operation: Any, mask: int = ALL, part: Callable[[int], None] | None = None
) -> None:
    """Add an operation to the open group of each lane of the mask."""
    issued = Issued(operation, mask, part)
    for each in groups(warp, kind, mask):
        each.groups[-1].append(issued)


def commit(warp: WarpState, kind: str, mask: int = ALL) -> None:
    warp.product_groups += kind == PRODUCTS
    for each in groups(warp, kind, mask):
        each.commit()


def wait(warp: WarpState, kind: str, count: int, mask: int = ALL, read: bool = False) -> None:
    """Complete all but the last `count` committed groups of these lanes. read: True for .read. The operations complete
    too; for a listener, a wait for them is still missing."""
    listener = warp.cta.cluster.grid.listener
    for each in groups(warp, kind, mask):
        while len(each.groups) - each.read * (keeps := read and listener is not None) > count + 1:
            ended = each.groups[each.read] if keeps else each.groups.pop(0)
            each.read = each.read + 1 if keeps else max(0, each.read - 1)
            for issued in ended:
                issued.end(warp, each.lanes)
            if listener is not None and ended:
                listener.waited(kind, [issued.operation for issued in ended], warp, each.lanes & mask)


def wait_in_row(row: Row, kind: str, count: int, mask: int) -> None:
    """Complete all but the last `count` groups of each warp; raise Undefined if a warp's lanes have different
    groups."""
    row.verify_whole(mask)
    found = [groups(warp, kind) for warp, _ in row.parts(mask)]
    if kind == BULK or any(len(each) > 1 for each in found):
        raise Undefined("lanes of a row have groups of their own")
    ended: list[list[Issued]] = []
    for (each,) in found:
        most = max(0, len(each.groups) - count - 1)
        ended.append([issued for group in each.groups[:most] for issued in group])
        del each.groups[:most]
    in_turns = itertools.zip_longest(*ended)
    row.grid.complete_alike(issued.operation for turn in in_turns for issued in turn if issued is not None)


def wait_all(warp: WarpState, kind: str, mask: int = ALL) -> None:
    commit(warp, kind, mask)
    wait(warp, kind, 0, mask)


def number_of(operand: Operand) -> int:
    if not isinstance(operand, Number):
        raise Unknown(f"{operand} is no number")
    return int(operand.value)


def _of(kind: str, mask: int) -> int:
    """Return the lanes whose groups count: all lanes for wgmma, else the executing lanes."""
    return ALL if kind == PRODUCTS else mask


@instruction(*(f"{kind}.commit_group" for kind in (COPIES, BULK, PRODUCTS)))
def commit_group(build: Builder, each: Statement) -> Act:
    kind = each.opcode.split(".commit_group")[0]

    @wide
    def act(warp: Any, mask: int) -> None:
        for one, part in warp.parts(mask):
            commit(one, kind, _of(kind, part))

    return act


@instruction(*(f"{kind}.wait_group" for kind in (COPIES, BULK, PRODUCTS)))
def wait_group(build: Builder, each: Statement) -> Act:
    """Wait until at most n groups are pending; with .read, until the other groups have read their sources."""
    kind, count = each.opcode.split(".wait_group")[0], number_of(each.operands[0])
    read = "read" in each.modifiers

    @wide
    def act(warp: Any, mask: int) -> Waiting | None:
        waiting = _for_warpgroup(warp.warps) if kind == PRODUCTS else None
        if kind == PRODUCTS and waiting is None:
            _end_in_warpgroup([one for one, _ in warp.parts(mask)], count)
        if isinstance(warp, Row):
            if waiting is not None:
                raise Undefined("warps of a row wait for others of their warpgroup")
            wait_in_row(warp, kind, count, mask)
        elif waiting is None:
            wait(warp, kind, count, _of(kind, mask), read)
        return waiting

    return act


def _end_in_warpgroup(warps: Sequence[WarpState], count: int) -> None:
    """Complete the parts that other warps have in the wgmma groups that these warps wait for. The parts stay in the
    groups, for the waits of their own warps (PTX ISA, "wgmma.commit_group")."""
    for warp in warps:
        for other in _warpgroup(warp):
            if other not in warps:
                (pending,) = groups(other, PRODUCTS)
                committed = len(pending.groups) - 1
                most = max(0, committed - (other.product_groups - warp.product_groups) - count)
                for issued in itertools.chain.from_iterable(pending.groups[:most]):
                    issued.end(other, ALL)


def _warpgroup(warp: WarpState) -> Sequence[WarpState]:
    return warp.cta.warps[warp.index // 4 * 4 :][:4]


def _for_warpgroup(warps: Sequence[WarpState]) -> Waiting | None:
    """Return the wait for other warps of the warpgroups that have committed fewer groups; None if there are none.

    A wgmma group belongs to the whole warpgroup (PTX ISA, "wgmma.commit_group").
    """

    def are_there() -> bool:
        return all(
            each.product_groups >= warp.product_groups or not each.alive for warp in warps for each in _warpgroup(warp)
        )

    return None if are_there() else Waiting(are_there, True, lambda: "for the other warps of its warpgroup")


@instruction("cp.async.wait_all")
def wait_all_copies(build: Builder, each: Statement) -> Act:
    @wide
    def act(warp: Any, mask: int) -> None:
        if not isinstance(warp, Row):
            return wait_all(warp, COPIES, mask)
        warp.verify_whole(mask)
        for each, part in warp.parts(mask):
            commit(each, COPIES, part)
        return wait_in_row(warp, COPIES, 0, mask)

    return act
