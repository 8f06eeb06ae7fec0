"""What each CTA loads is known before it runs, whatever it computes; what waits for other SMs has no time."""

import pytest
import tilus
import torch
from tilus import float32, int32

from blackwell_matmul import SimulationError, UnsupportedError, predict
from blackwell_matmul.simulator.lowering import lower

ROWS, COLUMNS, PARTS = 64, 64, 32


class Rows(tilus.Script):
    """CTAs that stay add up parts of rows, reduce the sums where told to, and store them."""

    def __init__(self, reduces: bool, ctas: int = 148):
        super().__init__()
        self.reduces, self.ctas = reduces, ctas

    def __call__(self, m: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = self.ctas
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, PARTS * COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, COLUMNS])
        s_x = self.shared_tensor(dtype=float32, shape=[ROWS, COLUMNS])
        for row in range(self.blockIdx.x * ROWS, m, self.ctas * ROWS):
            r_sums = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=0.0)
            for column in range(0, PARTS * COLUMNS, COLUMNS):
                self.copy_async(g_x, s_x, offsets=[row, column])
                self.copy_async_wait_all()
                self.sync()
                r_sums += self.load_shared(s_x)
                self.sync()
            if self.reduces:
                r_sums = r_sums - self.max(r_sums, dim=1, keepdim=True)
            self.store_global(g_y, r_sums, offsets=[row, 0])


def rows(tiles, reduces):
    m = tiles * ROWS
    x, y = torch.empty(m, PARTS * COLUMNS), torch.empty(m, COLUMNS)
    return predict(Rows, m, x, y, schedule={"reduces": reduces}, target="B200")


@pytest.mark.slow
@pytest.mark.parametrize("reduces", [False, True])
def test_a_last_round_of_one_tile_is_seen_with_a_reduction_as_without(reduces):
    uneven, even = rows(149, reduces), rows(148, reduces)
    assert any("149 tiles for 148 CTAs" in each for each in uneven.explanation), uneven.explanation
    assert not any("tiles for 148 CTAs" in each for each in even.explanation)
    assert uneven.cycles > 1.5 * even.cycles


class InTurn(tilus.Script):
    """CTAs that add to one number in turn."""

    def __init__(self, ctas: int):
        super().__init__()
        self.ctas = ctas

    def __call__(self, y_ptr: ~float32, turn_ptr: ~int32):
        self.attrs.blocks = self.ctas
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 32])
        self.lock_semaphore(turn_ptr, value=self.blockIdx.x)
        self.store_global(g_y, self.load_global(g_y, offsets=[0, 0], shape=[1, 32]) + 1.0, offsets=[0, 0])
        self.release_semaphore(turn_ptr, value=(self.blockIdx.x + 1) % self.ctas)


def test_a_wait_for_ctas_of_other_sms_has_no_time_and_says_where():
    def in_turn(ctas):
        arguments = torch.zeros(1, 32), torch.zeros(1, dtype=torch.int32)
        return predict(InTurn, *arguments, schedule={"ctas": ctas}, target="B200")

    assert in_turn(1).cycles > 0
    told = r"no predicted time: lock_semaphore \(.*test_loads.py:\d+\) waits for .*; check takes such a launch, and"
    with pytest.raises(UnsupportedError, match=told):
        in_turn(200)


class Stuck(tilus.Script):
    """A CTA that waits for a value of its own that nobody stores, or releases one and waits for an mbarrier."""

    def __init__(self, locks: bool, ctas: int = 1):
        super().__init__()
        self.locks, self.ctas = locks, ctas

    def __call__(self, turn_ptr: ~int32):
        self.attrs.blocks = self.ctas
        self.attrs.warps = 1
        if self.locks:
            self.lock_semaphore(turn_ptr, value=5)
        else:
            full = self.mbarrier.alloc(counts=1)
            self.sync()
            self.release_semaphore(turn_ptr, value=1)
            self.mbarrier.wait(full, phase=0)


@pytest.mark.parametrize("schedule", [{"locks": True}, {"locks": False}, {"locks": False, "ctas": 2}])
def test_a_wait_that_no_other_cta_can_end_is_no_wait_for_other_sms(schedule):
    with pytest.raises(SimulationError, match=r"^Stuck has no time: warp 0 .* waits for ever; check says for what\.$"):
        predict(Stuck, torch.zeros(1, dtype=torch.int32), schedule=schedule, target="B200")


class LoadsTheTurn(tilus.Script):
    """CTAs that lock a semaphore, or poll it by loads, once they have loaded a number."""

    def __init__(self, locks: bool, ctas: int = 2):
        super().__init__()
        self.locks, self.ctas = locks, ctas

    def __call__(self, turn_ptr: ~int32):
        self.attrs.blocks = self.ctas
        self.attrs.warps = 1
        g_turn = self.global_view(turn_ptr, dtype=int32, shape=[1])
        turn: int32 = self.load_global(g_turn, offsets=[0], shape=[1]).item()
        if self.locks:
            for _ in range(turn):
                self.sync()
            self.lock_semaphore(turn_ptr, value=self.blockIdx.x + 1)
        else:
            while turn != self.blockIdx.x + 1:
                turn = self.load_global(g_turn, offsets=[0], shape=[1]).item()
        self.release_semaphore(turn_ptr, value=self.blockIdx.x + 2)


@pytest.mark.parametrize(
    ("schedule", "error", "told"),
    [
        ({"locks": True}, UnsupportedError, r"predicted time: lock_semaphore \(.*test_loads.py:\d+\) waits for CTAs"),
        ({"locks": False}, UnsupportedError, r"predicted time: a loop \(.*test_loads.py:\d+\) has no end or waits for"),
        ({"locks": False, "ctas": 1}, SimulationError, r"time: livelock: a loop of warp 0 .*; check says more"),
    ],
)
def test_turns_that_follow_from_a_load_have_no_time_and_are_no_fault(schedule, error, told, monkeypatch):
    monkeypatch.setattr(lower, "MAX_TURNS", 100)
    with pytest.raises(error, match=f"^LoadsTheTurn has no {told}"):
        predict(LoadsTheTurn, torch.zeros(1, dtype=torch.int32), schedule=schedule, target="B200")


class LaterInTurn(tilus.Script):
    """The parts of a tile add to it in turn; the first one waits for nobody."""

    def __init__(self, parts: int):
        super().__init__()
        self.parts = parts

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = [4, self.parts]
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4, 32])
        turns = self.global_tensor(dtype=int32, shape=[4], requires_clean=True)
        turn: ~int32 = turns[self.blockIdx.x].item_ptr()
        if self.blockIdx.y > 0:
            self.lock_semaphore(turn, value=self.blockIdx.y)
        old = self.load_global(g_y, offsets=[self.blockIdx.x, 0], shape=[1, 32])
        self.store_global(g_y, old + 1.0, offsets=[self.blockIdx.x, 0])
        self.release_semaphore(turn, value=(self.blockIdx.y + 1) % self.parts)


def test_turns_have_no_time_where_another_cta_than_the_one_that_is_timed_waits_for_its_own():
    assert predict(LaterInTurn, torch.zeros(4, 32), schedule={"parts": 1}, target="B200").cycles > 0
    for parts in (2, 16):
        with pytest.raises(UnsupportedError, match=r"lock_semaphore .* waits for CTAs of other SMs"):
            predict(LaterInTurn, torch.zeros(4, 32), schedule={"parts": parts}, target="B200")
