"""The tensor core of Hopper (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").

An mma is one asynchronous operation of a warpgroup: it starts when the last of its four warps has issued it, reads
shared memory through the async proxy, and is in flight until a wait_group covers its group. Its accumulator are
registers, which belong to the warps. So two more things are watched here: an ordinary instruction may use them only
after the wait, and the next mma only after a wgmma.fence (`Queue`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from blackwell_matmul.frontend import tilus_compat
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.deferred import Patch, Product
from blackwell_matmul.simulator.engine import AsyncOperation, Blocked, TooNew, pass_over
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.cta import Cta, Mbarrier, Rendezvous, Warp
from blackwell_matmul.simulator.machine.memory import View
from blackwell_matmul.simulator.machine.registers import WARP, WarpLayout
from blackwell_matmul.simulator.semantics.description import Access, Effect, Proxy, Space, Wait, When, describe
from blackwell_matmul.simulator.semantics.tcgen05 import products
from blackwell_matmul.simulator.lowering.context import Site
from blackwell_matmul.simulator.types import Element, element

MMA_M = 64  # PTX ISA, "wgmma: Matrix Shape": M is 64
REMEDY_UNCOMMITTED = "wgmma.commit_group and wgmma.wait_group(0)"
FENCE: Final = "missing-wgmma-fence"

Shape = tuple[Any, ...]
"""M, N, K and the types of one mma_async."""


# what is in flight


class Mma(AsyncOperation):
    """The mma of a warpgroup. meeting: its warps, with their registers; over when all have issued it. operands: what
    the first of them gave it. number: how many its warps had issued before. group: the number of its group, once it is
    committed. left: warps yet to wait for it."""

    __slots__ = ("group", "left", "meeting", "number", "operands")

    def __init__(self, warp: Warp, site: Site, needed: frozenset[int], left: View, right: View) -> None:
        super().__init__(
            warp.cta, warp.index, site.description.name, "tensor core", site.location, lambda: None,
            reads=(left.region(), right.region()), pipe=("wgmma", min(needed)), remedy=REMEDY_UNCOMMITTED,
        )  # fmt: skip
        self.meeting = Rendezvous(needed)
        self.operands = (site, left.region(), right.region())
        self.number = queue_of(warp).issued
        self.group: int | None = None
        self.left = len(needed)

    def advice(self, warp: Warp, location: Location | None) -> str:
        """The wait that is missing before the arrival that let `warp` go on, or before it does at `location`: the n
        are the groups that had been committed after this one by then."""
        arrival = self._let_go(warp)
        where = str(location) if arrival is None else f"the arrival at {arrival.location}"
        committed = queue_of(self.cta.warps[self.warp]).committed if arrival is None else arrival.committed
        if self.group is None or committed <= self.group:
            return f"{REMEDY_UNCOMMITTED} before {where}"
        return f"wgmma.wait_group({committed - self.group - 1}) before {where}"

    def passed_over(self, warp: Warp) -> TooNew | None:
        return None if self.let_go_early(warp) else self.too_new

    def let_go_early(self, warp: Warp) -> bool:
        return self._let_go(warp) is not None

    def _let_go(self, warp: Warp) -> Arrival | None:
        """The arrival by a warp that had issued this mma, on the barrier that `warp` waited for last."""
        queues = [queue_of(self.cta.warps[each]) for each in self.meeting.brought]
        found = [
            (barrier.waits[warp.index].turn, arrival)
            for queue in queues for barrier, arrival in queue.arrivals.items()
            if barrier.cta is warp.cta and warp.index in barrier.waits and arrival.issued > self.number
        ]  # fmt: skip
        return max(found, key=lambda each: each[0])[1] if found else None


class Arrival(NamedTuple):
    """On an mbarrier, by a warp that had issued and committed so many."""

    issued: int
    committed: int
    location: Location | None


class Use(NamedTuple):
    """Of an accumulator: by an mma of this shape, or, without one, by an ordinary instruction. what: in words."""

    registers: np.ndarray  # held, so that its id stays its own
    location: Location | None
    what: str
    shape: Shape = ()
    write: bool = True


class Queue:
    """What a warp knows of its warpgroup's mma.

    issued: how many it has. open: those not committed; groups: the committed groups that it has not waited for, oldest
    first; committed: how many there ever were. fenced: it has executed a wgmma.fence. latest: by accumulator, the
    last mma on it that is in flight. since: by accumulator, the last use of it since the last fence. arrivals: the
    warp's last one, by mbarrier. sums: by accumulator, what is still to be added.
    """

    __slots__ = ("arrivals", "committed", "fenced", "groups", "issued", "latest", "open", "since", "sums")

    def __init__(self) -> None:
        self.issued = self.committed = 0
        self.open: list[Mma] = []
        self.groups: deque[list[Mma]] = deque()
        self.fenced = False
        self.latest: dict[int, tuple[Use, Mma]] = {}
        self.since: dict[int, Use] = {}
        self.arrivals: dict[Mbarrier, Arrival] = {}
        self.sums: dict[int, Sum] = {}

    def arrive(self, barrier: Mbarrier, location: Location | None) -> None:
        self.arrivals[barrier] = Arrival(self.issued, self.committed, location)

    def over(self, op: Mma) -> None:
        """This warp has waited for it."""
        self.latest = {key: (use, last) for key, (use, last) in self.latest.items() if last is not op}


def queue_of(warp: Warp) -> Queue:
    if warp.wgmma is None:
        warp.wgmma = Queue()
    return warp.wgmma


def root_of(registers: np.ndarray) -> np.ndarray:
    """The array that owns the registers, of which a view shows a part."""
    return registers if registers.base is None else registers.base


# values


class Sum:
    """Products that are still to be added to an accumulator, each warp's part of which is in `parts`.

    Products of constant memory that follow each other along k make one large one (deferred.py), and the registers get
    the sum when an ordinary instruction is about to use them. at_once: or now, because they are part of others.
    """

    __slots__ = ("at_once", "layouts", "parts", "product", "shape", "total")

    def __init__(self, layouts: Mapping[int, WarpLayout], parts: dict[int, np.ndarray]) -> None:
        self.layouts, self.parts = layouts, parts
        self.shape = layouts[min(parts)].shape
        self.at_once = any(registers.base is not None for registers in parts.values())
        self.product: Product | None = None
        self.total: np.ndarray | None = None

    def defer(self, a: Patch, b: Patch) -> None:
        if self.product is not None and self.product.extended(a, b):
            return
        self._perform()
        self.product = Product(np.empty(self.shape, np.float32), a, b, keep=False)

    def add(self, values: np.ndarray) -> None:
        self._perform()
        self.total = values if self.total is None else self.total + values

    def round(self, values: np.ndarray) -> None:
        """Into the registers at once, which are narrower than the sum of the values and what they hold."""
        for warp, registers in self.parts.items():
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(registers, self.layouts[warp].load(values), out=registers, casting="unsafe")

    def _perform(self) -> None:
        if self.product is not None:
            product, self.product = self.product, None
            product.perform()
            self.add(product.cells)

    def flush(self) -> None:
        """Give the registers what they lack."""
        self._perform()
        if self.total is None:
            return
        for warp, registers in self.parts.items():
            wide = registers.astype(self.total.dtype, copy=False) + self.layouts[warp].load(self.total)
            registers[...] = wide.astype(registers.dtype, copy=False)


def sum_of(cta: Cta, parts: dict[int, np.ndarray], layouts: Mapping[int, WarpLayout]) -> Sum:
    """The sum for this accumulator."""
    first = min(parts)
    known = queue_of(cta.warps[first]).sums.get(id(parts[first]))
    if known is not None and all(known.parts.get(warp) is each for warp, each in parts.items()):
        return known
    made = Sum(layouts, dict(parts))
    if not made.at_once:
        for warp, registers in parts.items():
            settle(cta, warp, registers)
            queue_of(cta.warps[warp]).sums[id(registers)] = made
    return made


def settle(cta: Cta, warp: int, registers: np.ndarray) -> None:
    """The registers are about to be used: add what is still to be added, for all warps of the warpgroup."""
    found = queue_of(cta.warps[warp]).sums.get(id(registers))
    if found is not None:
        for other, part in found.parts.items():
            queue_of(cta.warps[other]).sums.pop(id(part), None)
        found.flush()


def multiply_add(left: View, right: View, total: Sum, items: tuple[Element, Element], deferrable: bool) -> None:
    """D += A @ B. items: the types of A and of D, which is rounded after each instruction (tcgen05.products)."""
    add = total.round if items[1].nbits < 32 else total.add
    a, b = (left.storage.patch(left), right.storage.patch(right)) if deferrable else (None, None)
    if a is not None and b is not None:
        total.defer(a, b)
    else:
        for product in products(left.read(), right.read(), *items):
            add(product)
    if total.at_once:
        total.flush()


# mma


def instruction_shape(inst: Any) -> Shape:
    """What code generation makes of a tile: mma_async of this shape, as many as it takes."""
    a, b, d = inst.inputs
    types = (a.dtype, b.dtype, d.dtype)
    with tilus_compat.widest_wgmma():
        shape = inst.get_inst_mnk(d.shape[0], d.shape[1], a.shape[1], *types)
    return (*shape, *(each.name for each in types))


def _fragment(group_warp: int, shape: tuple[int, ...], mma_n: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each register of a warp (PTX ISA, "wgmma: Register Fragments ... D"), in the order in which
    code generation lays the mma_async of a tile side by side."""
    size = MMA_M * mma_n // (4 * WARP)
    lane, register = np.arange(WARP)[:, None], np.arange(shape[0] * shape[1] // (4 * WARP))[None, :]
    tile, index = register // size, register % size
    across = shape[1] // mma_n
    row = tile // across * MMA_M + group_warp * 16 + lane // 4 + index // 2 % 2 * 8
    return row, tile % across * mma_n + index // 4 * 8 + lane % 4 * 2 + index % 2


def _check_tile(inst: Any, site: Site, layouts: Mapping[int, WarpLayout]) -> None:
    """What code generation lets pass and hardware computes otherwise."""
    a, _, d = inst.inputs
    mma_m, mma_n, mma_k = instruction_shape(inst)[:3]
    if d.shape[0] % mma_m or a.shape[1] % mma_k:
        raise site.fail(
            f"the tile is {d.shape[0]}x{d.shape[1]}x{a.shape[1]}, and code generation drops what is beyond a multiple"
            f" of {mma_m} rows and of {mma_k} along k"
        )
    for number, warp in enumerate(site.group.warps):
        expected = _fragment(number, tuple(d.shape), mma_n)
        if any(not np.array_equal(np.broadcast_to(e, c.shape), c) for e, c in zip(expected, layouts[warp].coords)):
            raise site.fail(
                f"the registers of {site.name(d, 'the accumulator')} are not laid out as wgmma writes them (two"
                " neighbours of a row in each thread): its columns would be exchanged; annotate_layout sets them right"
            )


@describe(
    "WgmmaMmaSSInst",
    name="wgmma.mma_async",
    ptx="wgmma.mma_async",
    effects=(
        Effect("a", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("b", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("d", Space.REGISTER, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("d", Space.REGISTER, Access.WRITE, Proxy.ASYNC, When.COMPLETION),
    ),
    resources=("tensor core",),
    completes_by="group",
)
def mma(inst: Any, site: Site) -> Any:
    """D += A @ B: A [m, k] and B [k, n] in shared memory, D [m, n] in the registers of four warps."""
    a, b, d = inst.inputs
    for tensor in (a, b, d):
        site.use(tensor)
    items, layouts, shape = (element(a.dtype), element(d.dtype)), site.layouts(d), instruction_shape(inst)
    _check_tile(inst, site, layouts)
    used = f"{site.description.name} of another shape has used"
    needed, name, first = frozenset(site.group.warps), site.name(d, "the accumulator"), site.group.begin
    deferrable = items[0].is_float and items[0].nbits < 32 and items[1].name == "float32"

    def run(warp: Warp, left: View, right: View, registers: np.ndarray) -> None:
        queue = queue_of(warp)
        _check_registers(warp, site, queue, root_of(registers), name, shape)
        key = ("wgmma", first, queue.issued)
        op = _take_part(warp, site, key, needed, left, right)
        parts = op.meeting.brought
        if not parts:
            op.complete = lambda: multiply_add(left, right, sum_of(warp.cta, parts, layouts), items, deferrable)
        parts[warp.index] = registers
        queue.issued += 1
        queue.open.append(op)
        use = Use(root_of(registers), site.location, used, shape)
        queue.since[id(use.registers)] = use
        queue.latest[id(use.registers)] = use, op
        if len(parts) == len(needed):
            _start(warp.cta, key, op)
        warp.event("issue", "wgmma.mma_async", site.location)

    return run


def _take_part(warp: Warp, site: Site, key: tuple[Any, ...], needed: frozenset[int], left: View, right: View) -> Mma:
    """The mma that the warps of the warpgroup issue together, one after the other."""
    meeting = warp.cta.meetings.get(key)
    regions = {"a": left.region(), "b": right.region()}
    if meeting is None:
        op = Mma(warp, site, needed, left, right)
        op.meeting.result = op
        warp.cta.meetings[key] = op.meeting
        warp.cta.in_flight[op] = None
        site.issue(op, warp, regions)
        return op
    op = meeting.result
    if op.operands != (site, regions["a"], regions["b"]):
        # .aligned: all threads of the warpgroup execute the same instruction, with the same matrix descriptors
        message = (
            f"warp {warp.index} comes to a wgmma.mma_async of {regions['a']} and {regions['b']}, and warp {op.warp} of"
            f" its warpgroup to one of {op.operands[1]} and {op.operands[2]}: a warpgroup must execute it together"
        )
        raise warp.cta.stop("warpgroup-divergence", message, site.location, op.location)
    site.issue(op, warp, regions, joining=True)
    return op


def _start(cta: Cta, key: tuple[Any, ...], op: Mma) -> None:
    """The last warp has come."""
    del cta.meetings[key]
    op.meeting.over, op.meeting.result = True, None  # a cycle would keep the CTA's memory
    cta.changed.append(op.meeting)
    cta.engine.start(op)


# registers


def _check_registers(warp: Warp, site: Site, queue: Queue, root: np.ndarray, name: str, shape: Shape) -> None:
    """wgmma.fence is needed before the first mma of a warpgroup, and after each use of the accumulator by anything but
    an mma of the same shape (PTX ISA, "wgmma.fence"). After a mere read hardware needs none: it has read by then."""
    latest, since = queue.latest.get(id(root)), queue.since.get(id(root))
    if latest is not None and latest[0].shape != shape:
        _report_in_flight(warp, site, latest[1], name, write=True)
    if not queue.fenced:
        why = f"comes before any wgmma.fence of its warpgroup; the missing fence: wgmma.fence() before {site.location}"
        _report_fence(warp, site, name, f"on {name} {why}", None)
        queue.fenced = True
    elif since is not None and since.shape != shape:
        what = f"uses {name}, which {since.what} at {since.location} since the last wgmma.fence"
        advice = f"the missing fence: wgmma.fence() before {site.location}"
        _report_fence(warp, site, name, f"{what}; {advice}", since)


def _report_fence(warp: Warp, site: Site, name: str, what: str, since: Use | None) -> None:
    severity = Severity.ERROR if since is None or since.write else Severity.UNGUARANTEED
    who, advice = f"warp {warp.index}", what.rpartition("; ")[2]
    message = f"{site.description.name} by {who} {what}"
    other = None if since is None else since.location
    warp.cta.grid.report(
        Finding(
            FENCE, severity, message, warp.cta.position, site.location, other, missing="fence", tensor=name,
            agents=(who,), advice=advice,
        )
    )  # fmt: skip


def _report_in_flight(warp: Warp, site: Site, op: Mma, name: str, write: bool) -> None:
    who = f"warp {warp.index}"
    queue = queue_of(warp)
    after = "" if op.group is None else f"wgmma.wait_group({queue.committed - op.group - 1})"
    missing = f"the missing wait: {after or REMEDY_UNCOMMITTED} before {site.location}"
    advice, at_fault = (op.too_new.advice, op.too_new.location) if op.too_new else (missing, None)
    verb, doing = ("overwrites", "still accesses") if write else ("reads", "has not finished writing")
    message = f"{site.description.name} by {who} {verb} {name}, which {op.name} {doing}; {advice}"
    warp.cta.grid.report(
        Finding(
            "overwritten-in-flight" if write else "read-before-complete", Severity.ERROR, message, warp.cta.position,
            site.location, op.location, missing="wait" if after else "commit", at_fault=at_fault, tensor=name,
            agents=(who, who), advice=advice,
        )
    )  # fmt: skip


def ordinary_use(site: Site, name: str, write: bool) -> Callable[[Warp, np.ndarray], None]:
    """What an instruction of another kind calls before it reads, or overwrites, registers that are an accumulator of
    wgmma somewhere (PTX ISA, "wgmma.wait_group": without the wait that covers it, undefined)."""
    verb = f"{site.description.name} {'has written' if write else 'has read'}"

    def use(warp: Warp, registers: np.ndarray) -> None:
        queue = warp.wgmma
        if queue is None:  # no wgmma.fence yet, and the first one comes after this
            return
        root = root_of(registers)
        latest, since = queue.latest.get(id(root)), queue.since.get(id(root))
        if latest is not None:
            _report_in_flight(warp, site, latest[1], name, write)
        settle(warp.cta, warp.index, root)
        if since is None or since.shape or write:
            queue.since[id(root)] = Use(root, site.location, verb, write=write)

    return use


# fence, commit, wait


@describe("WgmmaFenceInst", name="wgmma.fence", ptx="wgmma.fence")
def fence(inst: Any, site: Site) -> Callable[[Warp], None]:
    """Orders registers, and no memory: what ordinary stores wrote to shared memory needs fence.proxy.async."""

    def run(warp: Warp) -> None:
        queue = queue_of(warp)
        queue.fenced = True
        queue.since.clear()

    return run


@describe("WgmmaCommitGroupInst", name="wgmma.commit_group", ptx="wgmma.commit_group")
def commit_group(inst: Any, site: Site) -> Callable[[Warp], None]:
    def run(warp: Warp) -> None:
        queue = queue_of(warp)
        for op in queue.open:
            op.group = queue.committed
            op.remedy = "wgmma.wait_group(0)"
        queue.groups.append(queue.open)
        queue.open = []
        queue.committed += 1

    return run


@describe("WgmmaWaitGroupInst", name="wgmma.wait_group", ptx="wgmma.wait_group", waits=(Wait("group"),))
def wait_group(inst: Any, site: Site) -> Any:
    """All but the newest n groups of the warpgroup are complete: hence all of its warps have issued them."""
    site.kind = "blocking"
    site.scalar(inst.n)
    location = site.location

    def passed(warp: Warp, count: int, last: Mma | None) -> bool:
        if last is not None and not last.meeting.over:
            return False
        queue = queue_of(warp)
        for _ in range(count):
            for op in queue.groups.popleft():
                _end(warp, site, op)
        return True

    def run(warp: Warp, n: int) -> Blocked | None:
        queue = queue_of(warp)
        if warp.cta.detailed:
            warp.event("wait", f"its wgmma groups{f' but {n}' if n else ''}", location)
        if n and warp.cta.order is not None:
            pass_over(queue.groups, "wgmma.wait_group", location, n)
        count = max(len(queue.groups) - n, 0)
        ops = [op for group in itertools.islice(queue.groups, count) for op in group]
        last = ops[-1] if ops else None
        if passed(warp, count, last):
            return None
        assert last is not None
        meeting = last.meeting
        return Blocked(lambda: passed(warp, count, last), lambda: _absent(meeting), location, meeting=meeting)

    return run


def _absent(meeting: Rendezvous) -> str:
    absent = sorted(meeting.needed - meeting.brought.keys())
    return f"warp(s) {', '.join(map(str, absent))} at wgmma.mma_async"


def _end(warp: Warp, site: Site, op: Mma) -> None:
    warp.cta.engine.finish(op)
    if warp.cta.order is not None:
        warp.cta.order.waited(warp, site, op)
    op.left -= 1
    if op.left == 0:
        op.settle()
    queue_of(warp).over(op)
