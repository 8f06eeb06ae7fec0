"""Listeners: what they hear, one of a user's own, and an instruction that nobody knew before, checked in full."""

import collections
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tilus
import torch
from orders import finding, line_of, lines, run_in
from tilus import float32
from tilus.ir.instructions import StoreGlobalInst

from blackwell_matmul import BlackwellMatmulV1, InputError, UnsupportedError, simulate
from blackwell_matmul.frontend import build_first
from blackwell_matmul.frontend.recording import instructions
from blackwell_matmul.simulator import Run
from blackwell_matmul.simulator.description import DESCRIPTIONS, FREE, Access, Effect, Space, Time, Unit, When, describe
from blackwell_matmul.simulator.listener import EVENTS, Broadcast, Listener
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.lowering.lower import lower
from blackwell_matmul.simulator.semantics.load_store import store_global
from blackwell_matmul.simulator.semantics.views import record_write

SCHEDULE = {"block_m": 128, "block_n": 64, "block_k": 32, "e_block_n": 64}


class Bytes(Listener):
    """How many bytes copies brought to each mbarrier."""

    def __init__(self) -> None:
        self.total = collections.Counter[str]()

    def delivered(self, barrier: Any, count_bytes: int) -> None:
        self.total[barrier.name] += count_bytes


def hears(name: str) -> Any:
    return lambda self, *what: self.heard.append(name)


class Everything(Listener):
    """Which events there were, in order."""

    def __init__(self) -> None:
        self.heard: list[str] = []


for event in EVENTS:
    setattr(Everything, event, hears(event))


def operands(m: int, n: int, k: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    return m, n, k, a, b, torch.zeros(m, n).half()


def test_bytes_per_barrier() -> None:
    """Of every CTA: 2 x 2 tiles, with all of k."""
    listener, args = Bytes(), operands(256, 128, 96)
    assert simulate(BlackwellMatmulV1, *args, schedule=SCHEDULE, listeners=[listener]).ok
    assert listener.total == {"tma_barrier": 4 * (128 + 64) * 96 * 2}


def test_listening_changes_nothing() -> None:
    quiet, heard, everything = operands(256, 128, 96), operands(256, 128, 96), Everything()
    runs = [
        simulate(BlackwellMatmulV1, *args, schedule=SCHEDULE, listeners=listeners)
        for args, listeners in ((quiet, ()), (heard, (Bytes(), everything)))
    ]
    assert runs[0].counts == runs[1].counts and runs[0].findings == runs[1].findings
    assert runs[0].events == runs[1].events
    assert torch.equal(quiet[-1], heard[-1])
    assert everything.heard[0] == "started" and everything.heard[-1] == "closed"
    assert {"issued", "completed", "arrived", "passed", "waited", "met", "returned", "exited"} <= {*everything.heard}


def test_what_a_listener_does_not_override_costs_no_call() -> None:
    one, none = Broadcast([Bytes()]), Broadcast([])
    assert one.delivered.__func__ is Bytes.delivered  # type: ignore[attr-defined]
    assert one.issued is none.issued is none.delivered


@pytest.mark.parametrize("listeners", [Bytes, [Bytes], [None], "Bytes", 1])
def test_what_is_no_listener_is_refused(listeners: Any) -> None:
    with pytest.raises(InputError, match="it must be a list of objects"):
        simulate(BlackwellMatmulV1, *operands(128, 64, 32), schedule=SCHEDULE, listeners=listeners)


# --- an instruction of one's own


@pytest.fixture
def described() -> Iterator[None]:
    """What is registered in a test is forgotten after it."""
    before = dict(DESCRIPTIONS)
    yield
    DESCRIPTIONS.clear()
    DESCRIPTIONS.update(before)


@dataclass(frozen=True, eq=False)
class StoreRow(StoreGlobalInst):
    """A store to global memory that no file of the simulator knows."""


class Swap(tilus.Script):
    """Each warp stores its own row, and the one after it reads that: of y, which the kernel gets as its input too."""

    def __init__(self, sync: bool = True):
        super().__init__()
        self.sync_between = sync

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        with self.single_warp(0):
            row = self.load_global(g_x, offsets=[0, 0], shape=[32], dims=[1])
            self.store_global(g_y, row, offsets=[0, 0], dims=[1])
        if self.sync_between:
            self.sync()
        with self.single_warp(1):
            copy = self.load_global(g_y, offsets=[0, 0], shape=[32], dims=[1])
            self.store_global(g_y, copy, offsets=[1, 0], dims=[1])


STORE = (Effect("src", Space.REGISTER, Access.READ), Effect("dst", Space.GLOBAL, Access.WRITE))


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, described: None) -> Iterator[None]:
    """The simulator gets a StoreRow for each store of a script; its description is all that it knows of it."""

    changed: list[Any] = []

    def build(*args: Any) -> Any:
        bound, program = build_first(*args)
        for inst in instructions(program.tile):
            if type(inst) is StoreGlobalInst:
                changed.append(inst)
                object.__setattr__(inst, "__class__", StoreRow)
        return bound, program

    module = importlib.import_module("blackwell_matmul.simulator.simulate")
    monkeypatch.setattr(module, "build_first", build)
    monkeypatch.setattr(module, "lowered", lower)  # anew each time, as descriptions change
    describe("StoreRow", name="store_row", ptx="st.global", time=FREE, effects=STORE)(store_global)
    yield
    for inst in changed:  # Programs are kept for the next test
        object.__setattr__(inst, "__class__", StoreGlobalInst)


def swap(**flags: bool) -> tuple[Run, np.ndarray]:
    x, y = np.arange(64, dtype=np.float32).reshape(2, 32), np.zeros((2, 32), np.float32)
    return run_in(("adversarial", 0), Swap(**flags), x, y), y


def test_an_instruction_that_is_only_described_is_run(made_up: None) -> None:
    run, y = swap()
    assert run.ok and run.counts["store_row"] == 2
    np.testing.assert_array_equal(y, np.broadcast_to(np.arange(32, dtype=np.float32), (2, 32)))


def test_an_instruction_that_is_only_described_is_checked(made_up: None) -> None:
    """Its accesses race with others'; the memory that it writes is not taken for constant."""
    run, _ = swap(sync=False)
    found = finding(run, "data-race")
    assert lines(found) == (line_of(Swap, "load_global(g_y"), line_of(Swap, "store_global(g_y, row"))
    assert "store_row by warp 0" in found.message and "self.sync()" in found.message


def test_an_instruction_that_nobody_described_stops_the_run(described: None, made_up: None) -> None:
    """It is not taken for its base class."""
    del DESCRIPTIONS["StoreRow"]
    with pytest.raises(UnsupportedError, match="no description of StoreRow"):
        swap()


def test_a_description_says_what_ends_an_operation() -> None:
    later = Effect("dst", Space.SHARED, Access.WRITE, when=When.COMPLETION)
    with pytest.raises(AssertionError, match="nothing says what waits for it"):
        describe("Endless", name="endless", ptx="", time=Time(Unit.LATER), effects=(later,))(store_global)


def test_a_description_says_what_it_costs() -> None:
    later = Effect("dst", Space.SHARED, Access.WRITE, when=When.COMPLETION)
    with pytest.raises(TypeError, match="time"):
        describe("Costly", name="costly", ptx="")(store_global)
    with pytest.raises(AssertionError, match=r"ends later: Unit\.LATER"):
        describe("Costly", name="costly", ptx="", time=FREE, effects=(later,), completes_by="a wait")(store_global)


def test_what_a_description_leaves_out_is_not_done_in_secret(described: None, made_up: None) -> None:
    """A callable that touches, or writes, what its description does not say is stopped."""
    describe("StoreRow", name="store_row", ptx="st.global", time=FREE, effects=STORE[:1])(store_global)
    with pytest.raises(AssertionError, match="store_row declares no effect on dst"):
        swap()

    def writes_anyway(inst: Any, context: LoweringContext) -> Any:
        context.use(inst.inputs[0])
        return lambda warp, view: record_write(warp, view, view.region().box)

    describe("StoreRow", name="store_row", ptx="st.global", time=FREE, effects=STORE[:1])(writes_anyway)
    with pytest.raises(UnsupportedError, match="g_y is written by an instruction whose description has no effect"):
        swap()
