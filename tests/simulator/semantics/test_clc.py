"""Cluster launch control: who gets whose work, what the response holds, and what orders one response after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clc_scripts import COLUMNS, Doubles, DoublesInPairs, InTurn, Places, Stares, TakesOne
from clean import clean
from orders import ORDERS, codes, faults, faulty, finding, line_of, lines, never_ok, run_in, silent
from tilus import float32, int32, uint8, uint32

from blackwell_matmul import check
from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.simulator import Severity, simulate

ASK, READ = "clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.query_cancel"


def call(script: Any, rows: int) -> tuple[Any, ...]:
    x = np.arange(rows * COLUMNS, dtype=np.int32).reshape(rows, COLUMNS)
    return script, rows, x, np.full_like(x, -1)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 18])
@pytest.mark.parametrize("stages", [1, 3])
def test_every_row_is_somebodys(rows: int, stages: int) -> None:
    script, *args = call(Doubles(stages=stages), rows)
    silent(script, args, args[-1], 2 * args[1])


@pytest.mark.parametrize("rows", [2, 4, 6, 34])
@pytest.mark.parametrize("stages", [1, 3])
def test_clusters_take_clusters(rows: int, stages: int) -> None:
    script, *args = call(DoublesInPairs(stages=stages), rows)
    silent(script, args, args[-1], 2 * args[1])


@pytest.mark.process
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("workers", [1, 2])
def test_a_seed_and_any_processes(seed: int, workers: int) -> None:
    args = call(Doubles(stages=2), 300)
    told: list[tuple[int, int]] = []
    clean(*args, seed=seed, workers=workers, progress=lambda *n: told.append(n))
    np.testing.assert_array_equal(args[-1], 2 * args[-2])
    assert told[-1] == (300, 300) and told == sorted(told)


@pytest.mark.parametrize("workers", [1, 2])
def test_coordinates_of_a_grid_of_three_dimensions(workers: int) -> None:
    y = np.zeros((2, 2, 3), np.int32)
    clean(Places(), y, workers=workers)
    z, j, x = np.indices(y.shape)
    np.testing.assert_array_equal(y, 1 + x + 10 * j + 100 * z)


def test_a_cta_takes_over_what_it_is_granted_and_leaves_the_rest() -> None:
    for order in ORDERS:
        run = run_in(order, *call(Doubles(), 40))
        assert run.counts[ASK] == 40  # one that is granted, or refused, for each row


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_cta_leaves_is_launched(seed: int, workers: int) -> None:
    args = call(TakesOne(), 41)
    run = clean(*args, seed=seed, workers=workers)
    np.testing.assert_array_equal(args[-1], 2 * args[-2])
    assert 21 <= run.counts[ASK] < 41  # as many as CTAs


def test_responses_of_other_types_of_integers() -> None:
    for dtype, count in ((uint8, 16), (uint32, 4)):
        args = call(TakesOne(dtype, count), 5)
        clean(*args)
        np.testing.assert_array_equal(args[-1], 2 * args[-2])


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ((int32, 8), "its response is int32\\[8\\], and it is 16 bytes of integers"),
        ((float32, 4), "its response is float32\\[4\\]"),
    ],
)
def test_responses_that_are_refused(response: Any, says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        simulate(*call(TakesOne(*response), 5))


# --- faults, each of which is found in every order


def faulty_line(fault: str, code: str, where: str, other: str, rows: int = 9, **expected: Any) -> Any:
    run = faulty(*call(Doubles(fault), rows))
    found = finding(run, code)
    assert lines(found) == (line_of(Doubles, where), line_of(Doubles, other) if other else None)
    assert {name: getattr(found, name) for name in expected} == expected
    return found


def test_an_answer_that_nobody_waits_for() -> None:
    script = Doubles("does not wait")
    assert "read-before-complete" in never_ok(*call(script, 9))
    args = call(script, 9)
    found = finding(simulate(*args, workers=1), "read-before-complete")
    assert lines(found) == (line_of(Doubles, "# read"), line_of(Doubles, "# ask"))
    assert found.missing == "wait" and "mbarrier.wait on full" in found.advice
    assert not (args[-1] == 2 * args[-2]).all()


def test_bytes_that_nobody_announces() -> None:
    args = call(Doubles("announces nothing"), 9)
    found = finding(simulate(*args, workers=1), "too-few-bytes")
    assert lines(found) == (line_of(Doubles, "# read"), line_of(Doubles, "# ask"))
    assert not (args[-1] == 2 * args[-2]).all()
    assert "too-few-bytes" in never_ok(*args)


def test_a_barrier_that_lacks_its_arrival() -> None:
    found = faulty_line("does not arrive", "deadlock", "# wait", "# full")
    assert "1 of 1 arrival(s) and an expect_tx of 16 bytes" in found.message
    assert any(f"bytes for full come from {ASK}" in note for note in found.notes)


def test_a_cta_that_leaves_while_it_is_asked() -> None:
    args = call(Doubles("leaves while it is asked"), 9)
    faulty_line("leaves while it is asked", "in-flight-at-exit", "# ask", "", severity=Severity.ERROR)
    assert "never-written" in codes(simulate(*args, workers=1))


@pytest.mark.parametrize("fault", ["asks again", "does not look"])
def test_a_request_after_a_refusal(fault: str) -> None:
    found = faulty_line(fault, "cancel-after-refusal", "# ask", "# read", fatal=True)
    assert found.count > 1  # each scheduled cluster comes to its end


def test_a_response_that_is_read_for_ever() -> None:
    for order in ORDERS:
        found = finding(run_in(order, *call(Stares(), 9)), "livelock")
        assert "warp 0 reads one response 64 times" in found.message
        assert found.location is not None and found.location.line == line_of(Stares, "# again")


def test_ctas_that_wait_for_each_other_all_run_from_the_start() -> None:
    """So there is nothing that could be granted."""
    y = np.zeros(8, np.int32)
    run = clean(InTurn(), y)
    np.testing.assert_array_equal(y, 1)
    assert run.counts[ASK] == 8


def test_a_response_that_is_overwritten_too_early() -> None:
    assert "data-race" in never_ok(*call(Doubles("no room"), 9))
    found = finding(simulate(*call(Doubles("no room"), 9), workers=1), "data-race")
    assert lines(found) == (line_of(Doubles, "# ask"), line_of(Doubles, "# read"))


def test_work_that_is_taken_and_not_done() -> None:
    args = call(Doubles("one row alone"), 9)
    run = simulate(*args, workers=1)
    assert codes(run) == {"never-written"} and (args[-1][0] == 2 * args[-2][0]).all()


# --- what nothing guarantees


@pytest.mark.parametrize(
    ("fault", "code", "where", "other", "says"),
    [
        ("no fence", "missing-proxy-fence", "# ask", "# read", 'fence.proxy_async(space="shared")'),
        ("a relaxed wait", "relaxed-wait", "# read", "# ask", 'with sem="acquire" it would order the two'),
        ("a relaxed arrival", "relaxed-wait", "# ask", "# read", 'with sem="release" it would order the two'),
    ],
)
def test_what_works_and_nothing_promises(fault: str, code: str, where: str, other: str, says: str) -> None:
    for order in ORDERS:
        run = run_in(order, *call(Doubles(fault), 9))
        assert codes(run) == {code} and run.ok
    found = finding(run, code)
    assert lines(found) == (line_of(Doubles, where), line_of(Doubles, other)) and says in found.advice


def test_a_relaxed_arrival_and_a_relaxed_wait_are_named_together() -> None:
    first = run_in(ORDERS[0], *call(Doubles("relaxed both ways"), 9))
    assert all(faults(run_in(order, *call(Doubles("relaxed both ways"), 9))) == faults(first) for order in ORDERS)
    assert first.ok and codes(first) == {"relaxed-wait"}
    found = finding(first, "relaxed-wait", 1)
    assert lines(found) == (line_of(Doubles, "# ask"), line_of(Doubles, "# read"))
    done, room = line_of(Doubles, "# done"), line_of(Doubles, "# room")
    assert found.at_fault is not None and found.at_fault.line == done
    assert f":{done} is too weak, and the wait at" in found.advice and f":{room} as well" in found.advice
    assert 'sem="release" and sem="acquire" would order the two' in found.advice


# --- clusters


def test_a_request_for_one_cta_of_two() -> None:
    run = faulty_pairs("asks for itself alone", "deadlock")
    assert "lacks 16 bytes" in run.message and "(1, 0, 0)" in run.message


def faulty_pairs(fault: str, code: str) -> Any:
    for order in ORDERS:
        run = run_in(order, *call(DoublesInPairs(fault), 10))
        assert not run.ok and code in codes(run), order
    return finding(run_in(ORDERS[0], *call(DoublesInPairs(fault), 10)), code)


def test_a_reader_that_tells_its_own_cta_alone() -> None:
    found = faulty_pairs("tells its own CTA alone", "data-race")
    assert lines(found) == (line_of(DoublesInPairs, "# ask"), line_of(DoublesInPairs, "# read"))
    assert "response[0:1, 0:4] of CTA (1, 0, 0)" in found.message


def test_a_cta_that_another_one_still_reaches() -> None:
    found = faulty_pairs("no sync at the end", "exit-before-peer")
    assert found.location is not None and found.location.line == line_of(DoublesInPairs, "# done")


@pytest.mark.parametrize("seed", range(5))
def test_the_timeline_of_a_finding_is_of_the_same_team(seed: int) -> None:
    """The finding needs a cluster with one grant."""
    found = check(*call(Doubles("no fence"), 30), seed=seed, workers=1).findings[0]
    assert any(event.kind == "finding" and event.what == found.code for event in found.timeline)
