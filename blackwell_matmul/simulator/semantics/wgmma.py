"""The tensor core of Hopper (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").

An mma is one asynchronous operation of a warpgroup. It starts when the last of its four warps has issued it, and is in
flight until a wait_group covers its group; it reads shared memory through the async proxy. Its accumulator is in the
warps' registers. So two more rules are checked here: an ordinary instruction may use them only after the wait, and the
next mma only after a wgmma.fence (`Queue`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from blackwell_matmul.frontend.faults import tilus_compat
from blackwell_matmul.simulator.description import (
    FREE,
    Access,
    Again,
    Effect,
    Proxy,
    Space,
    Time,
    Unit,
    Wait,
    When,
    describe,
)
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.accumulators import sum_of
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Rendezvous, Warp
from blackwell_matmul.simulator.machine.deferred import Sum
from blackwell_matmul.simulator.machine.memory import Region, View
from blackwell_matmul.simulator.machine.operation import EVERY_LANE, AsyncOperation, groups_of
from blackwell_matmul.simulator.semantics.tcgen05 import products
from blackwell_matmul.simulator.types import Element, element

FAMILY = "wgmma"
COMMITTED = "wgmma.wait_group(0)"
UNCOMMITTED = f"wgmma.commit_group and {COMMITTED}"

Shape = tuple[Any, ...]
"""M, N, K and the types of one mma_async."""


# operations in flight


class Mma(AsyncOperation):
    """MMA of a warpgroup. meeting: its warps, with their registers; it is complete when all have issued it. operands:
    tensors of the first warp. accumulator: its name. shape: m, n and k of the hardware's instruction."""

    __slots__ = ("accumulator", "meeting", "operands", "shape")

    def __init__(
        self, warp: Warp, context: LoweringContext, regions: Mapping[str, Region], accumulator: str, shape: Shape
    ) -> None:
        needed = frozenset(context.group.warps)
        self.meeting = Rendezvous(needed)
        self.operands = (context, regions["a"], regions["b"])
        self.accumulator, self.shape = accumulator, shape
        super().__init__(
            warp.cta, warp, context.description.name, "tensor core", context.location, lambda: None,
            reads=(regions["a"], regions["b"]), pipe=("wgmma", min(needed)), remedy=context.description.completes_by,
            registers=self.meeting.brought, waiters=len(needed),
        )  # fmt: skip


# values


def multiply_add(left: View, right: View, total: Sum, items: tuple[Element, Element], deferrable: bool) -> bool:
    """Add A @ B to D. items: the types of A and of D, which is rounded after each instruction (tcgen05.products).
    Return True: the sum reports the registers to listeners."""
    a, b = (left.storage.patch(left), right.storage.patch(right)) if deferrable else (None, None)
    if a is not None and b is not None:
        total.defer(a, b)
    else:
        total.take(lambda: products(left.read(), right.read(), *items))
    if total.at_once:
        total.flush()
    return True


# mma


def instruction_shape(inst: Any) -> Shape:
    """Return the shape of the mma_async instructions into which code generation splits a tile, and their types."""
    a, b, d = inst.inputs
    types = (a.dtype, b.dtype, d.dtype)
    with tilus_compat.widest_wgmma():
        shape = inst.get_inst_mnk(d.shape[0], d.shape[1], a.shape[1], *types)
    return (*shape, *(each.name for each in types))


@describe(
    "WgmmaMmaSSInst",
    name="wgmma.mma_async",
    effects=(
        Effect("a", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("b", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("d read", Space.REGISTER, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("d", Space.REGISTER, Access.WRITE, Proxy.ASYNC, When.COMPLETION),
    ),
    completes_by=UNCOMMITTED,
    again=Again.NOTHING,
    time=Time(Unit.WGMMA, "issue_cycles"),
    mark=True,
)
def mma(inst: Any, context: LoweringContext) -> Any:
    """Lower D += A @ B: A [m, k] and B [k, n] in shared memory, D [m, n] in the registers of four warps."""
    a, b, d = inst.inputs
    context.use(a, b, d)
    items, layouts, shape = (element(a.dtype), element(d.dtype)), context.layouts(d), instruction_shape(inst)
    needed, name, first = frozenset(context.group.warps), context.name(d, "the accumulator"), context.group.begin
    deferrable = items[0].is_float and items[0].nbits < 32 and items[1].name == "float32"

    def run(warp: Warp, left: View, right: View, registers: np.ndarray) -> None:
        number = warp.wgmmas or 0
        key = ("wgmma", first, number)
        regions = {"a": left.region(), "b": right.region()}
        op = _take_part(warp, context, key, regions, registers, lambda: Mma(warp, context, regions, name, shape))
        parts = op.meeting.brought
        if len(parts) == 1:
            op.complete = lambda: multiply_add(left, right, sum_of(warp.cta, parts, layouts), items, deferrable)
        warp.wgmmas = number + 1
        (mine,) = groups_of(warp, FAMILY)
        mine.open.append(op)
        if len(parts) == len(needed):
            op.meeting.result = None  # a cycle would keep the CTA's memory
            warp.cta.engine.open(warp.cta, key)
            warp.cta.engine.start(op)

    return run


def _take_part(
    warp: Warp,
    context: LoweringContext,
    key: tuple[Any, ...],
    regions: Mapping[str, Region],
    registers: np.ndarray,
    make: Callable[[], Mma],
) -> Mma:
    """Return the mma that the warps of the warpgroup issue together, one warp after another."""
    engine, meeting = warp.cta.engine, warp.cta.meetings.get(key)
    if meeting is None:
        op = make()
        op.meeting.result = op
        warp.cta.meetings[key] = op.meeting
        engine.in_flight(warp.cta)[op] = None
        op.meeting.brought[warp.index] = registers
        engine.tell.issued(op, warp, context.instruction, regions)
        return op
    op = meeting.result
    if op.operands != (context, regions["a"], regions["b"]):
        # .aligned: all threads of the warpgroup execute the same instruction, with the same matrix descriptors
        message = (
            f"warp {warp.index} comes to a wgmma.mma_async of {regions['a']} and {regions['b']}, and warp"
            f" {op.warp.index} of its warpgroup to one of {op.operands[1]} and {op.operands[2]}: a warpgroup must"
            " execute it together"
        )
        raise warp.cta.stop("warpgroup-divergence", message, context.location, op.location)
    op.meeting.brought[warp.index] = registers
    engine.tell.joined(op, warp, context.instruction, regions)
    return op


# fence, commit, wait


@describe("WgmmaFenceInst", name="wgmma.fence", again=Again.NOTHING, time=FREE)
def fence(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    """Order registers, not memory: ordinary stores to shared memory need fence.proxy.async."""

    def run(warp: Warp) -> None:
        warp.wgmmas = warp.wgmmas or 0  # from now on, uses of registers matter
        warp.cta.engine.tell.fenced(warp, context.instruction, "registers")

    return run


@describe(
    "WgmmaCommitGroupInst",
    name="wgmma.commit_group",
    completes_by=COMMITTED,
    again=Again.NOTHING,
    time=FREE,
)
def commit_group(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    return lambda warp: context.commit(warp, FAMILY, EVERY_LANE)  # .aligned: the groups are a warp's


@describe(
    "WgmmaWaitGroupInst",
    name="wgmma.wait_group",
    waits=(Wait("group"),),
    approximation="who has waited knows that the products of all four warps are over: as in CUTLASS, whose warpgroups "
    "free a stage by one arrival",
    again=Again.NOTHING,
    time=FREE,
    mark="waits for wgmma.mma_async",
)
def wait_group(inst: Any, context: LoweringContext) -> Any:
    """Wait for all but the newest n groups of the warpgroup: all of its warps have then issued them."""
    context.kind = "blocking"
    context.scalar(inst.n)

    def passed(warp: Warp, count: int, last: Any) -> bool:
        if last is not None and not last.meeting.over:
            return False
        (mine,) = groups_of(warp, FAMILY)
        for _ in range(count):
            context.end(warp, mine.groups.popleft())
        return True

    def run(warp: Warp, n: int) -> Blocked | None:
        (mine,) = context.come_to_groups(warp, FAMILY, n, lanes=EVERY_LANE)
        groups = mine.groups
        count = max(len(groups) - n, 0)
        ops = [op for group in itertools.islice(groups, count) for op in group]
        last: Any = ops[-1] if ops else None
        if passed(warp, count, last):
            return None
        absent = context.absent(last.meeting, "wgmma.mma_async")
        absent.ready = lambda: passed(warp, count, last)
        return absent

    return run
