"""The shadow of a storage and the frontiers, without a kernel: who races with whom, and how much is remembered."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from blackwell_matmul.simulator.machine.memory import Region, Storage
from blackwell_matmul.simulator.order.frontier import Events, Frontier, union
from blackwell_matmul.simulator.order.shadow import MANY, Shadow
from blackwell_matmul.simulator.types import element_by_name

ITEM = element_by_name("float32", 32)
A, B, C = 1, 2, 4


def storage(rows: int = 64, columns: int = 64) -> Storage:
    return Storage("shared", "s", ITEM, np.zeros((rows, columns), np.float32))


def rectangle(memory: Storage, rows: tuple[int, int], columns: tuple[int, int] = (0, 64)) -> Region:
    return Region(memory, (rows, columns))


def every_other(memory: Storage, first: int) -> Region:
    """Rows first, first + 2, …, in the rectangle of all rows."""
    rows, columns = memory.shape
    numbers = np.arange(rows * columns).reshape(rows, columns)
    return Region(memory, ((0, rows), (0, columns)), lambda: numbers[first::2])


def racing(shadow: Shadow, region: Region, write: bool, event: int, known: int = 0) -> set[int]:
    """The events that the access races with."""
    return {access.event for access in shadow.record(region, write, event, known | event, f"agent {event}")[1]}


@pytest.mark.parametrize("first, second", list(itertools.product((True, False), repeat=2)))
def test_two_accesses_race_unless_both_read(first: bool, second: bool) -> None:
    shadow, memory = Shadow(), storage()
    racing(shadow, rectangle(memory, (0, 8)), first, A)
    assert racing(shadow, rectangle(memory, (4, 12)), second, B) == ({A} if first or second else set())


@pytest.mark.parametrize("rows, meet", [((8, 16), False), ((7, 16), True), ((0, 8), True), ((2, 3), True)])
def test_one_element_decides(rows: tuple[int, int], meet: bool) -> None:
    shadow, memory = Shadow(), storage()
    racing(shadow, rectangle(memory, (0, 8)), True, A)
    assert racing(shadow, rectangle(memory, rows), False, B) == ({A} if meet else set())


def test_an_order_ends_the_race() -> None:
    shadow, memory = Shadow(), storage()
    racing(shadow, rectangle(memory, (0, 8)), True, A)
    assert racing(shadow, rectangle(memory, (0, 8)), True, B, known=A) == set()
    assert racing(shadow, rectangle(memory, (0, 8)), False, C, known=A) == {B}


def test_rows_in_turn_are_disjoint() -> None:
    shadow, memory = Shadow(), storage(8)
    racing(shadow, every_other(memory, 0), True, A)
    assert racing(shadow, every_other(memory, 1), True, B) == set()
    assert racing(shadow, rectangle(memory, (3, 4)), True, C) == {B}
    assert racing(shadow, rectangle(memory, (2, 3)), False, 8) == {A}


def test_a_part_that_is_written_again_does_not_hide_the_rest() -> None:
    shadow, memory = Shadow(), storage()
    racing(shadow, rectangle(memory, (0, 16)), True, A)
    racing(shadow, rectangle(memory, (0, 8)), True, B, known=A)
    assert racing(shadow, rectangle(memory, (8, 9)), False, C, known=B) == {A}


def test_a_read_does_not_hide_a_read_of_other_elements_of_its_box() -> None:
    shadow, memory = Shadow(), storage(8)
    racing(shadow, every_other(memory, 0), False, A)
    shadow.record(every_other(memory, 1), False, B, A | B, "agent 1")  # the same agent, in its next round
    assert racing(shadow, every_other(memory, 0), True, C, known=B) == {A}


def test_what_is_after_an_access_is_after_all_that_came_before_it() -> None:
    """A read, a write of other lanes, a read of the tensor core: who waits for the last knows of the first."""
    shadow, memory = Shadow(), storage()
    racing(shadow, every_other(memory, 0), False, A)
    racing(shadow, every_other(memory, 0), True, B, known=A)
    seen, found = shadow.record(rectangle(memory, (0, 64)), False, C, B, "a third")
    assert seen == A | B and not found
    shadow.forget(B)
    assert shadow.record(rectangle(memory, (0, 64)), False, 8, B, "a fourth")[0] == B


@pytest.mark.parametrize("rounds", [10, 1000])
def test_memory_is_bounded_by_the_parts_and_not_by_the_run(rounds: int) -> None:
    """Rings of slots, written and read in turn, each access after all before it."""
    shadow, memory, known = Shadow(), storage(), 0
    for turn in range(rounds):
        for write in (True, False):
            event = 1 << (2 * turn + write)
            region = rectangle(memory, (8 * (turn % 4), 8 * (turn % 4) + 8))
            assert racing(shadow, region, write, event, known) == set()
            known |= event
    assert len(shadow.accesses) <= 8


def test_many_accesses_are_compared_as_few_are() -> None:
    """Above MANY, boxes are compared by numpy: the same answers."""
    memory = storage(256)
    rng = np.random.default_rng(0)
    shadow, history = Shadow(), []
    for number in range(3 * MANY):
        low, left = int(rng.integers(0, 250)), int(rng.integers(0, 60))
        region, write = rectangle(memory, (low, low + 6), (left, left + 4)), bool(rng.integers(0, 2))
        event = 1 << number
        expected = {e for r, w, e in history if (w or write) and r.meets(region)}
        assert racing(shadow, region, write, event) == expected
        history.append((region, write, event))


def test_an_event_is_given_again_only_when_nothing_refers_to_it() -> None:
    events = Events()
    given = [events.new() for _ in range(5)]
    assert len(set(given)) == 5
    events.sweep(given[1] | given[3])
    again = {events.new() for _ in range(3)}
    assert again == {given[0], given[2], given[4]} and events.new() not in given


def test_a_completion_is_known_on_every_path() -> None:
    one, other = Frontier(), Frontier()
    one.learn(A)
    other.generic |= B
    both = union([one, other])
    paths: Any = ("generic", "shared", "global_", "tensor")
    assert [getattr(both, path) for path in paths] == [A | B, A, A, A]
    both.forget(B)
    assert [getattr(both, path) for path in paths] == [B, 0, 0, 0]


def test_many_accesses_that_come_and_go_are_found_as_few_are() -> None:
    """Beyond MANY a table of boxes is kept; it stays what the accesses are, whoever takes whose place."""
    shadow, memory = Shadow(), storage(256, 8)
    for row in range(0, 256, 2):
        racing(shadow, rectangle(memory, (row, row + 2), (0, 8)), True, 1 << row)
    everything = sum(1 << row for row in range(0, 256, 2))
    assert len(shadow.accesses) > 4 * MANY
    racing(shadow, rectangle(memory, (20, 200), (0, 8)), True, 1 << 300, known=everything)  # takes 90 places
    assert racing(shadow, rectangle(memory, (0, 256), (0, 8)), False, 1 << 301) == (
        {1 << row for row in range(0, 256, 2) if not 20 <= row < 200} | {1 << 300}
    )
    for row in range(256):
        expected = 1 << (300 if 20 <= row < 200 else row // 2 * 2)
        assert racing(shadow, rectangle(memory, (row, row + 1), (0, 8)), False, 1 << 302) == {expected}
