"""Rules that turn unordered accesses into findings: code, severity, sentence, missing edge and remedy."""

from __future__ import annotations

from typing import Any, NamedTuple

from blackwell_matmul.emulator.order.ptx_findings import BENIGN, ERROR, UNPROMISED, Place, PtxFinding


class MemoryAccess(NamedTuple):
    """One of a finding's two accesses. who: the agent, as text. kind: of the agent's stream; "" for a thread. warp: of
    the thread, or the warp that issued the operation."""

    place: Place
    who: str
    kind: str
    writes: bool
    warp: Any = None

    @property
    def verb(self) -> str:
        return "writes" if self.writes else "reads"


class Rule(NamedTuple):
    """A kind of finding. edge: the missing edge, as text. mend: the remedy, as text. section: of the PTX ISA."""

    code: str
    severity: str
    edge: str
    mend: str
    section: str


WAITS_OF_KINDS = {
    "cp.async": ("cp.async.wait_group by the thread that copies", "Asynchronous copy completion mechanisms"),
    "cp.async.bulk": ("cp.async.bulk.wait_group by the thread that copies", "cp.async.bulk.wait_group"),
    "cp.async.bulk.read": ("cp.async.bulk.wait_group.read by the thread that copies", "cp.async.bulk.wait_group"),
    "wgmma": ("wgmma.wait_group", "wgmma.wait_group"),
    "tcgen05": ("tcgen05.commit to an mbarrier, and a wait there", "tcgen05.commit"),
    "tcgen05.ld": ("tcgen05.wait::ld", "tcgen05.wait"),
    "tcgen05.st": ("tcgen05.wait::st", "tcgen05.wait"),
    "mbarrier": ("a wait on the phase of the mbarrier that counts its bytes", "mbarrier.try_wait"),
}
"""Instruction that waits for operations of each kind of stream, and its section of the PTX ISA."""

MODEL = "Memory Consistency Model: Causality Order"
PROXIES = "Memory Consistency Model: Proxies"


def unordered(first: MemoryAccess, second: MemoryAccess) -> Rule:
    """Return the rule for two unordered accesses, of which at least one is a write."""
    if first.kind:
        wait, section = WAITS_OF_KINDS.get(first.kind, ("a wait for it", MODEL))
        code = "overwritten-in-flight" if second.writes else "read-before-complete"
        return Rule(code, ERROR, f"{wait}, and an edge from there to the second", f"{wait}, before the second", section)
    if second.kind:
        code = "data-race" if second.writes else "race-with-operation"
        mend = "bar.sync, or an arrival and a wait on an mbarrier, before the operation is issued"
        return Rule(code, ERROR, "an edge from the first to the issue of the second", mend, MODEL)
    mend = "bar.sync between the two (bar.warp.sync within a warp), or a release and an acquire"
    return Rule("data-race", ERROR, "an edge from the first to the second", mend, MODEL)


def weakly_ordered(wrote: bool, is_over: bool = False) -> Rule:
    """Return the rule for two accesses that only a relaxed barrier, or a barrier of narrow scope, orders. wrote: True
    if the first access is a write. is_over: True if the first belongs to an operation that was waited for, and the
    second is a write."""
    severity = ERROR if wrote and not is_over else UNPROMISED
    mend = ".release for the arrival and .acquire for the wait, .cluster where another CTA waits"
    return Rule("relaxed-order", severity, "release and acquire, of a scope that has both", mend, MODEL)


def other_proxy(wrote: bool, space: str) -> Rule:
    """Return the rule for an access by the async proxy after an access by the generic proxy, without a proxy fence
    between. wrote: True if the first access is a write."""
    severity = ERROR if wrote else UNPROMISED
    mend = f"fence.proxy.async{space} by the threads of the first, before the edge (Triton: fence_async_shared)"
    return Rule("missing-proxy-fence", severity, "a proxy fence between the two", mend, PROXIES)


NO_MAP_FENCE = Rule(
    "missing-proxy-fence", ERROR,
    "fence.proxy.tensormap::generic.release behind the write, and .acquire of this map before the copy",
    "tensormap.cp_fenceproxy or that release by the writer; .acquire.gpu [map], 128 behind the edge",
    "membar, fence: fence.proxy.tensormap",
)  # fmt: skip
UNINITIALISED = Rule("uninitialised-read", UNPROMISED, "", "write the bytes first", "")

CLUSTER_BARRIER = "barrier.cluster.arrive and .wait by all threads of the cluster"
CLUSTER_SECTION = "Cooperative Thread Arrays: Cluster of CTAs"

PEER_NOT_STARTED = Rule(
    "peer-not-started", BENIGN, "a barrier of the cluster before the access", CLUSTER_BARRIER,
    "CTAs of a cluster are launched at the same time",
)  # fmt: skip
NOT_ALLOCATED = Rule(
    "dealloc-in-flight", ERROR, "an edge from the other CTA's tcgen05.alloc", f"{CLUSTER_BARRIER} behind tcgen05.alloc",
    "tcgen05.alloc, dealloc",
)  # fmt: skip
EXIT_BEFORE_PEER = Rule(
    "exit-before-peer", ERROR, "an edge from the access to the end of the CTA", f"{CLUSTER_BARRIER} behind the access",
    CLUSTER_SECTION,
)  # fmt: skip
IN_FLIGHT_AT_EXIT = Rule(
    "in-flight-at-exit", UNPROMISED, "a wait for the operation", "that wait before the end", "Asynchronous Operations"
)
MBARRIER_AS_DATA = Rule(
    "mbarrier-as-data", ERROR, "mbarrier.inval before the access", "other bytes for the data, or mbarrier.inval before",
    "Contents of the mbarrier object",
)  # fmt: skip
INITIALISED_TWICE = Rule(
    "mbarrier-initialised-twice", ERROR, "mbarrier.inval before the second", "initialise once, or invalidate first",
    "mbarrier.init",
)  # fmt: skip
PHASE_OVERRUN = Rule(
    "phase-overrun", ERROR, "an edge from the wait to an arrival of the next phase",
    "a barrier that keeps the warps in step, or an mbarrier for the way back", "mbarrier.test_wait, try_wait",
)  # fmt: skip

NO_WGMMA_FENCE = Rule(
    "missing-wgmma-fence", UNPROMISED, "wgmma.fence between the two", "wgmma.fence before the first wgmma of a group",
    "wgmma.fence",
)  # fmt: skip
NO_TCGEN05_FENCE = Rule(
    "missing-tcgen05-fence", UNPROMISED, "tcgen05.fence around the edge",
    "tcgen05.fence::before_thread_sync before the edge, and ::after_thread_sync behind it",
    "tcgen05 Memory Consistency Model",
)  # fmt: skip
OUT_OF_PIPELINE = Rule(
    "order-not-promised", UNPROMISED, "a wait for the first", "other columns, or tcgen05.commit and a wait in between",
    "tcgen05: Pipelined instructions",
)  # fmt: skip


def finding(rule: Rule, first: MemoryAccess, second: MemoryAccess, where: str) -> PtxFinding:
    """Return the finding for two accesses of the same place, in the order of the run."""
    text = (
        f"{first.who} {first.verb} {where} at {first.place}; then {second.who} {second.verb} the same at {second.place}"
    )
    return as_finding(rule, text, first.place, second.place)


def as_finding(rule: Rule, text: str, first: Place, second: Place | None = None) -> PtxFinding:
    """Return a finding with this text."""
    return PtxFinding(rule.code, rule.severity, text, first, second, rule.edge, rule.mend, rule.section)


def place_of(step: Any) -> Place:
    """Return the place of an instruction in PTX and source."""
    at = step.source.location
    return Place(step.source.line, at.file if at else "", at.line if at else 0, step.source.text)
