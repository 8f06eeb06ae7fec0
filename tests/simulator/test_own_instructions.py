"""The instructions that CONTRIBUTING.md teaches to write, taken from the page: described, run and checked."""

import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tilus
from orders import faulty, finding, line_of, lines, silent
from tilus import float32
from tilus.ir.instructions import StoreSharedInst
from tilus.ir.instructions.cuda.mbarrier import ArriveExpectTxBarrierInst

from blackwell_matmul.frontend import build_first
from blackwell_matmul.frontend.recording import instructions
from blackwell_matmul.hardware.gpu_figures import TIME_FIGURES
from blackwell_matmul.simulator import description
from blackwell_matmul.simulator.description import DESCRIPTIONS
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.lowering.lower import lower
from blackwell_matmul.simulator.machine.barrier import barrier_at
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.memory import View
from blackwell_matmul.simulator.timing.predict import predict_script
from blackwell_matmul.simulator.types import element, to_image

PAGE = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"
NAMES = {
    **vars(description), "np": np, "Any": Any, "barrier_at": barrier_at, "Warp": Warp, "View": View,
    "LoweringContext": LoweringContext, "element": element, "to_image": to_image,
}  # fmt: skip
"""What the page says that its examples import."""
CTAS = 3
"""Of which the replay executes some."""


def example(name: str) -> str:
    """The code on the page that describes this class."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = (block for block in blocks if f'    "{name}",' in block)
    return found


class Through(tilus.Script):
    """Each CTA stores its row to shared memory, waits as the store wants it, and reads it."""

    def __init__(self, ends: str, wait: bool = True):
        super().__init__()
        self.ends = ends
        self.waits = wait

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 3
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[3, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[3, 32])
        tile = self.shared_tensor(dtype=float32, shape=[32])
        full = self.mbarrier.alloc(1)
        row = self.load_global(g_x, offsets=[self.blockIdx.x, 0], shape=[32], dims=[1])
        self.sync()
        if self.ends == "mbarrier":
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile.nbytes)
        self.store_shared(tile, row)
        if self.waits and self.ends == "mbarrier":
            self.mbarrier.wait(full, phase=0)
        if self.waits and self.ends == "group":
            with self.single_thread():
                self.tma.commit_group()
                self.tma.wait_group(0)
            self.sync()
            self.fence.proxy_async(space="shared")
        back = self.load_shared(tile)
        self.store_global(g_y, back, offsets=[self.blockIdx.x, 0], dims=[1])


@dataclass(frozen=True, eq=False)
class LazyStore(StoreSharedInst):
    """The page's asynchronous store that groups wait for."""


@dataclass(frozen=True, eq=False)
class StoreAsync(StoreSharedInst):
    """The page's asynchronous store that tells an mbarrier: that of the program."""

    @property
    def mbarrier(self) -> Any:
        return BARRIERS[id(self)]


BARRIERS: dict[int, Any] = {}
KINDS = {
    "StoreSharedInst": ("", StoreSharedInst),
    "LazyStore": ("group", LazyStore),
    "StoreAsync": ("mbarrier", StoreAsync),
}


@pytest.fixture(params=KINDS)
def ends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What ends the example's operation. It is registered, and each store to shared memory in a Program is one."""
    how, kind = KINDS[request.param]
    before, changed = dict(DESCRIPTIONS), []

    def built(*args: Any) -> Any:
        bound, program = build_first(*args)
        every = list(instructions(program.tile))
        barriers = [inst.barrier for inst in every if isinstance(inst, ArriveExpectTxBarrierInst)]
        for inst in every:
            if type(inst) is StoreSharedInst:
                changed.append(inst)
                BARRIERS[id(inst)] = next(iter(barriers), None)
                object.__setattr__(inst, "__class__", kind)
        return bound, program

    module = importlib.import_module("blackwell_matmul.simulator.simulate")
    monkeypatch.setattr(module, "build_first", built)
    monkeypatch.setattr(module, "lowered", lower)  # anew each time, as descriptions change
    DESCRIPTIONS.pop(request.param, None)
    exec(compile(example(request.param), str(PAGE), "exec"), dict(NAMES))
    yield how
    DESCRIPTIONS.clear()
    DESCRIPTIONS.update(before)
    for inst in changed:  # Programs are kept for the next test
        object.__setattr__(inst, "__class__", StoreSharedInst)


def rows() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(32 * CTAS, dtype=np.float32).reshape(CTAS, 32), np.zeros((CTAS, 32), np.float32)


def test_its_values_are_right_in_every_order(ends: str) -> None:
    x, y = rows()
    silent(Through(ends), (x, y), y, x)


def cycles(ends: str) -> float:
    return predict_script(Through(ends), rows(), explained=False).cycles


def test_its_time_is_predicted_by_the_figure_of_its_description(ends: str) -> None:
    (name,) = (name for name, (how, _) in KINDS.items() if how == ends)
    known, lowering = DESCRIPTIONS[name]
    as_on_the_page = cycles(ends)
    DESCRIPTIONS[name] = replace(known, time=replace(known.time, cycles="alloc_cycles")), lowering
    longer = TIME_FIGURES["B200"].alloc_cycles - getattr(TIME_FIGURES["B200"], known.time.cycles)
    assert 0 < longer / 2 < cycles(ends) - as_on_the_page


@pytest.mark.parametrize("ends", ["LazyStore", "StoreAsync"], indirect=True)
def test_without_its_wait_it_is_found_and_the_numbers_are_wrong(ends: str) -> None:
    x, y = rows()
    found = finding(faulty(Through(ends, wait=False), x, y), "read-before-complete")
    assert lines(found)[0] == line_of(Through, "self.load_shared")
    y.fill(0)
    faulty(Through(ends, wait=False), x, y)
    assert not np.array_equal(x, y)
