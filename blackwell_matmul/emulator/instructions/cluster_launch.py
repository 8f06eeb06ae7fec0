"""Cluster launch control: a running cluster takes over a waiting cluster's work (PTX ISA, "clusterlaunchcontrol")."""

from __future__ import annotations

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, Order, instruction
from blackwell_matmul.emulator.instructions.copies import bring, write
from blackwell_matmul.emulator.instructions.moves import shared_addresses
from blackwell_matmul.emulator.lanes import LANES, first, mask_of
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import Statement
from blackwell_matmul.emulator.spaces import OFFSET, RANK, Undefined

RESPONSE_BYTES = 16
"""Bytes of a response. PTX leaves the contents undefined; here 32-bit words: index of the first CTA, and a flag."""

REFUSED = (0x5A5AA5A5,) * 3
"""Index of the first CTA in the response to a refused request, which PTX leaves undefined
("clusterlaunchcontrol.query_cancel")."""


@instruction("clusterlaunchcontrol.try_cancel", order=Order("weak", "cta", "async"))
def try_cancel(build: Builder, each: Statement) -> Act:
    """Cancel a waiting cluster: `try_cancel.async{.multicast::cluster::all} [response], [mbarrier]`, 16 bytes."""
    response, barrier = (shared_addresses(build, operand) for operand in each.operands.exactly(2))
    to_all = "multicast::cluster::all" in each.modifiers

    def act(warp: WarpState, mask: int) -> None:
        lane, cta = first(mask), warp.cta
        place, signal = int(response(warp)[lane]), int(barrier(warp)[lane])
        ctas = cta.cluster.ctas if to_all else [cta.cluster.owner(place)]

        def answer() -> None:
            grid = cta.cluster.grid
            taken = grid.waiting.take() if grid.waiting else None
            words = np.array([*(taken or REFUSED), taken is not None], np.uint32)
            for each in ctas:
                target = place & OFFSET | each.rank << RANK
                if target % RESPONSE_BYTES:
                    raise Undefined(f"a response at {target & OFFSET:,} of shared memory, which is no multiple of 16")
                write(each.shared, target, words.view(np.uint8))
                bring(cta, signal & OFFSET | each.rank << RANK if to_all else signal, RESPONSE_BYTES)

        cta.cluster.grid.issue("other", answer, warp, 1 << lane)

    return act


@instruction("clusterlaunchcontrol.query_cancel.is_canceled")
def is_canceled(build: Builder, each: Statement) -> Act:
    target, response = build.target(each.operands[0]), build.source(each.operands[1], "b128")

    def act(warp: WarpState, mask: int) -> None:
        words = warp.registers[response].view(np.uint32).reshape(LANES, 4)
        warp.set_predicate(target, mask_of(words[:, 3] != 0), mask)

    return act


@instruction("clusterlaunchcontrol.query_cancel.get_first_ctaid")
def first_cta(build: Builder, each: Statement) -> Act:
    """Return the canceled cluster's first CTA: `.v4.b32.b128 {x, y, z, _}, response`, or a coordinate (`::x`)."""
    targets, response = build.targets(each.operands[0]), build.source(each.operands[1], "b128")
    axis = next(("xyz".index(word[-1]) for word in each.modifiers if word.startswith("get_first_ctaid::")), None)

    def act(warp: WarpState, mask: int) -> None:
        words = warp.registers[response].view(np.uint32).reshape(LANES, 4)
        for index, target in enumerate(targets if axis is None else targets[:1]):
            warp.set(target, words[:, index if axis is None else axis].copy(), mask)

    return act
