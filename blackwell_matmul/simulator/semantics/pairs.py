"""CTA pairs: instructions of two CTAs of a cluster (PTX ISA, "CTA Pair", "tcgen05 / Issue Granularity")."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Cta, Rendezvous, Warp

TCGEN05_COPY = "Tcgen05CopyInst"


def group_of(inst: Any) -> int | None:
    """Return the .cta_group of a tcgen05 instruction in the generated code; None if it has none."""
    if type(inst).__name__ == TCGEN05_COPY:
        return 1  # for any allocation
    return getattr(inst, "cta_group", None) if type(inst).__name__.startswith("Tcgen05") else None


def groups(context: LoweringContext) -> dict[int, Any]:
    """Return the first instruction of each .cta_group of the kernel."""
    from blackwell_matmul.frontend.recording import instructions

    found: dict[int, Any] = {}
    for inst in instructions(context.program.tile):
        group = group_of(inst)
        if group is not None:
            found.setdefault(group, inst)
    return found


def in_one_group(inst: Any, context: LoweringContext, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run`, or a function that stops the CTA if another .cta_group was first. All tcgen05 instructions of a
    kernel have the same (PTX ISA, each tcgen05 instruction)."""
    first, where = next(iter(groups(context).items()), (None, None))
    mine = group_of(inst)
    if first is None or first == mine:
        return run
    message = (
        f"{context.description.name} has cta_group {mine}, and the kernel's first tcgen05 instruction cta_group"
        f" {first}: PTX wants one value for all of a kernel{_CP if type(inst).__name__ == TCGEN05_COPY else ''}"
    )

    def stop(warp: Warp, *_: Any) -> None:
        raise warp.cta.stop("mixed-cta-groups", message, context.location, context.program.location_of(where))

    return stop


_CP = "; tilus 0.2.0 emits tcgen05.cp for one CTA only, and tcgen05.store works"


def peer_of(warp: Warp, context: LoweringContext) -> Cta:
    """Return the other CTA of the pair of the warp's CTA."""
    peer = warp.cta.peer
    if peer is None:
        size = len(warp.cta.cluster.ctas)
        message = (
            f"{context.description.name} is for CTA pairs, and CTA {warp.cta.position} has no peer: the cluster has"
            f" {size} CTA{'s' if size > 1 else ''}; cluster_blocks = 2 works"
        )
        raise warp.cta.stop("no-such-cta", message, context.location)
    return peer


def pair_of(inst: Any, warp: Warp, context: LoweringContext) -> Cta | None:
    """Return the peer, and check the issuer, of an operation of a pair; None for one of a single CTA."""
    if inst.cta_group != 2:
        return None
    peer = peer_of(warp, context)
    check_issuer(warp, context)
    return peer


def come_together(
    warp: Warp, context: LoweringContext, what: str, warps: Iterable[int]
) -> Generator[Blocked, None, Rendezvous]:
    """Wait for the peer CTA: one warp of each CTA of the pair performs the operation. warps: number of waiting warps
    in each CTA."""
    peer_of(warp, context)
    return (yield from context.meet_pair(warp, warps, what))


def check_issuer(warp: Warp, context: LoweringContext) -> None:
    """Report a pair's operation issued by the odd CTA: PTX allows one thread of the pair; its examples use the even
    CTA."""
    if warp.cta.rank % 2:
        message = (
            f"{context.description.name} for a CTA pair is issued by CTA {warp.cta.position}, which has the odd rank"
            f" {warp.cta.rank}; issue it from the CTA of even rank"
        )
        warp.cta.report("pair-issued-by-odd-cta", message, context.location, severity=Severity.UNGUARANTEED)
