"""Cluster launch control: a running cluster takes over a cluster that has not started (PTX ISA,
"clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel").

tilus 0.2.0 neither announces the 16 bytes of the response nor fences its reader against the next response.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import (
    Access,
    Again,
    Effect,
    ExecutedBy,
    Proxy,
    Signal,
    Space,
    Time,
    Unit,
    When,
    describe,
)
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barrier_at
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.grants import RESPONSE_BYTES, decoded
from blackwell_matmul.simulator.machine.memory import View
from blackwell_matmul.simulator.types import Element, element

MAX_READS = 64  # reads of one response by a warp that does not wait


def _item(response: Any, context: LoweringContext) -> Element:
    item, shape = element(response.dtype), tuple(response.shape)
    if item.is_float or item.packed or int(np.prod(shape)) * item.dtype.itemsize != RESPONSE_BYTES:
        what = f"its response is {response.dtype.name}{list(shape)}"
        raise context.fail(f"{what}, and it is {RESPONSE_BYTES} bytes of integers, as int32[4]")
    return item


@describe(
    "ClusterLaunchControlTryCancelInst",
    name="clusterlaunchcontrol.try_cancel",
    lanes=ExecutedBy.ELECTED,
    effects=(Effect("response", Space.SHARED, Access.WRITE, Proxy.ASYNC, When.COMPLETION),),
    signals=(Signal("complete_tx", When.COMPLETION),),
    again=Again.VALUES,
    cancels=True,
    time=Time(Unit.CLC, "issue_cycles"),
    mark=True,
)
def try_cancel(inst: Any, context: LoweringContext) -> Any:
    """Lower one request; with multicast, the response is written to the same offset in every CTA of the cluster."""
    response = inst.inputs[0]
    item, location = _item(response, context), context.location
    context.use(response)
    context.scalar(inst.mbarrier, inst.multicast)

    def run(warp: Warp, view: View, address: int, multicast: bool) -> None:
        barrier = barrier_at(warp.cta, address, location)
        number = _ask(warp)
        if not multicast:
            request(warp, number, view, barrier)
            return
        for cta in warp.cta.cluster.ctas:
            request(warp, number, view.in_cta(cta), barrier.in_cta(cta))

    def request(warp: Warp, number: int, view: View, barrier: Mbarrier) -> None:
        region, cluster = view.region(), warp.cta.cluster
        box = tuple((0, extent) for extent in view.shape)

        def complete() -> None:
            cells = cluster.grants.response(number).encoded()
            view.write(cells.view(item.dtype).reshape(view.shape), box)

        regions, to = {"response": region}, barrier.cta
        context.launch(
            warp, regions, complete, agent="launch control", barrier=barrier, count_bytes=RESPONSE_BYTES, cta=to
        )  # fmt: skip

    def _ask(warp: Warp) -> int:
        """Number a request; after its CTA has seen a refusal, PTX leaves the next request undefined."""
        cta, grants = warp.cta, warp.cta.cluster.grants
        if cta in grants.refused:
            read = grants.refused[cta]
            message = (
                f"warp {warp.index} asks again after its CTA has read at {read} that nothing is granted, and PTX leaves"
                " undefined what comes of it; leave the loop where is_valid is False"
            )
            raise cta.stop("cancel-after-refusal", message, location, read)
        return grants.ask()

    return run


@describe(
    "ClusterLaunchControlQueryResponseInst",
    name="clusterlaunchcontrol.query_cancel",
    effects=(Effect("response", Space.SHARED, Access.READ),),
    again=Again.NOTHING,
    time=Time(Unit.WARP, "query_cycles"),
    mark=True,
)
def query_cancel(inst: Any, context: LoweringContext) -> Any:
    """Lower ld.shared and decoding of the response; tilus 0.2.0 leaves the coordinates unchanged by a refusal."""
    context.use(inst.inputs[0])
    check, location = context.touch("response"), context.location
    _item(inst.inputs[0], context)
    context.kind, context.foreseen = "steps", "next(w.responses)"

    def run(warp: Warp, view: View) -> Generator[Blocked, None, tuple[int, int, int, int]]:
        check(warp, view.region())
        response, cta = decoded(view.read()), warp.cta
        again = cta.cluster.grants.read(warp, response)
        if again == MAX_READS:
            raise cta.stop("livelock", f"warp {warp.index} reads one response {MAX_READS} times", location)
        if again:  # without a wait: let the others go on
            yield Blocked(lambda: True, lambda: "another response", location)
        if response.first is None and response.number >= 0:
            cta.cluster.grants.refused.setdefault(cta, location)
        return response.scalars

    return run
