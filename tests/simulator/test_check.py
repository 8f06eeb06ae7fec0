"""`check`: several orders of one kernel, what it writes, what the report says, and that its seeds replay."""

from __future__ import annotations

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from async_scripts import CpAsyncGroups, Handoff, TmaLoad
from check_scripts import AddOne, Circle, Prints, Unused
from orders import line_of

from blackwell_matmul import InputError, Report, check, simulate
from blackwell_matmul.simulator import Severity
from blackwell_matmul.simulator.check import DEFAULT_ORDER_COUNT
from blackwell_matmul.simulator.text import AROUND
from tests.sentences import one_sentence


def handoff(rounds: int = 5) -> tuple[int, np.ndarray, np.ndarray]:
    x = np.arange(rounds * 32, dtype=np.float32).reshape(rounds, 32)
    return rounds, x, np.zeros_like(x)


def copied() -> tuple[int, int, torch.Tensor, torch.Tensor]:
    x = torch.randn(64, 64).half()
    return 64, 64, x, torch.zeros_like(x)


def box() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(32, 64)
    return x, torch.zeros_like(x)


def load(**flags: object) -> TmaLoad:
    return TmaLoad(shape=[32, 64], box=[32, 64], offsets=[0, 0], **flags)


# --- what it runs


def test_a_correct_kernel_is_clean_in_every_order() -> None:
    args = handoff()
    report = check(Handoff(), *args, orders=6, strict=True)
    assert report.ok and report.findings == () and (report.orders, report.seed, report.grid) == (6, 0, (1, 1, 1))
    np.testing.assert_array_equal(args[1], args[2])


def test_where_nobody_says_how_many_orders_those_that_are_cheap_are_run(monkeypatch) -> None:
    assert check(AddOne, torch.zeros(64, 64)).orders == DEFAULT_ORDER_COUNT == 4
    assert check(AddOne, torch.zeros(64, 64), seed=5).orders == 1
    told: list[tuple[int, int]] = []
    check(AddOne, torch.zeros(64, 64), progress=lambda done, total: told.append((done, total)), workers=1)
    assert told[-1][0] == told[-1][1] and len(told) == told[-1][1]
    monkeypatch.setattr("blackwell_matmul.simulator.check.CHEAP_INSTRUCTIONS", 3)
    assert check(AddOne, torch.zeros(64, 64)).orders == 1


def test_later_orders_start_from_the_tensors_as_they_were() -> None:
    """An in-place kernel adds 1 once, whatever the number of orders, also through a view with strides."""
    x = torch.zeros(64, 64)
    assert check(AddOne, x, orders=4).ok
    assert (x == 1).all()
    whole = torch.zeros(64, 128, requires_grad=True).detach()
    assert check(AddOne, whole[:, ::2].contiguous(), orders=2).ok
    y = np.zeros((64, 64), np.float32)
    assert check(AddOne, y, orders=2).ok
    assert (y == 1).all()


def test_what_the_kernel_prints_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    check(Prints, torch.zeros(32), orders=3)
    assert capsys.readouterr().out.count("hello") == 1


def test_threads_that_check_leave_stdout_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout
    seen: set[bool] = set()

    def one(number: int) -> None:
        seen.add(check(Prints, torch.zeros(32), orders=4, progress=lambda *_: seen.add(sys.stdout is before)).ok)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(one, range(12)))
    assert seen == {True} and sys.stdout is before
    assert capsys.readouterr().out.count("hello") == 12


def test_progress_that_prints_is_heard_in_every_order(capsys: pytest.CaptureFixture[str]) -> None:
    check(AddOne, torch.zeros(64, 64), orders=3, progress=lambda done, total: print(f"{done}/{total}"), workers=1)
    assert "6/6" in capsys.readouterr().out


def test_progress_counts_the_ctas_of_all_orders() -> None:
    told: list[tuple[int, int]] = []
    check(AddOne, torch.zeros(64, 64), orders=3, progress=lambda done, total: told.append((done, total)), workers=1)
    assert told[-1] == (6, 6) and told == sorted(told)


# --- what it finds


def test_a_finding_has_both_lines_the_edge_and_a_timeline() -> None:
    report = check(CpAsyncGroups(first=2, second=2), *copied(), orders=2)
    (found,) = [f for f in report.findings if f.code == "read-before-complete"][:1]
    assert not report.ok and found.missing == "wait" and found.seeds == (0, 1)
    assert found.advice and found.message.endswith(found.advice)
    kinds = [event.kind for event in found.timeline]
    assert "finding" in kinds and kinds[-1] == "complete"
    assert found.timeline[0].location == found.other


def test_the_same_finding_in_several_orders_is_one() -> None:
    one, many = (check(CpAsyncGroups(sync=False), *copied(), orders=orders) for orders in (1, 5))
    assert {f.key for f in one.findings} <= {f.key for f in many.findings}
    assert len({f.key for f in many.findings}) == len(many.findings)


@pytest.mark.parametrize("script", [CpAsyncGroups(sync=False), CpAsyncGroups(first=2, second=2)])
def test_every_seed_replays_its_finding(script: CpAsyncGroups) -> None:
    report = check(script, *copied(), orders=4, seed=3)
    assert report.findings and {seed for f in report.findings for seed in f.seeds} <= {3, 4, 5, 6}
    for found in report.findings:
        assert found.seed is not None
        again = simulate(script, *copied(), seed=found.seed)
        assert found.key in {f.key for f in again.findings}


def test_strict_counts_what_nothing_guarantees() -> None:
    """Copies that somebody commits, and nobody uses or waits for."""
    lenient, strict = (check(Unused, torch.zeros(32, 64), strict=strict) for strict in (False, True))
    assert {found.severity for found in lenient.findings} == {Severity.UNGUARANTEED}
    assert lenient.ok and not strict.ok
    assert [found.key for found in strict.findings] == [found.key for found in lenient.findings] != []


# --- deadlocks


def test_a_deadlock_names_who_could_have_ended_it_and_the_cycle() -> None:
    (found,) = check(Handoff(count=33), *handoff()).findings
    full, empty = (line_of(Handoff, text) for text in ("arrive(full", "arrive(empty"))
    notes = " | ".join(found.notes)
    assert f"arrivals on full come from mbarrier.arrive at {found.location.file}:{full} by warp 0" in notes
    assert f"arrivals on empty come from mbarrier.arrive at {found.location.file}:{empty} by warp 1" in notes
    assert "they wait for each other: warp 0 waits for empty" in notes and "which needs warp 0" in notes


def test_a_wait_that_no_line_can_end() -> None:
    (found,) = check(load(arrive=False), *box()).findings[:1]
    assert found.code == "deadlock"
    assert "no line of the kernel makes arrivals on full" in found.notes
    assert not any("wait for each other" in note for note in found.notes)


def test_bytes_name_both_sides_of_the_count() -> None:
    (found,) = [f for f in check(load(more_bytes=16), *box()).findings if f.code == "deadlock"]
    announced, came = found.notes[:2]
    balance = (
        r"phase 0 of full cannot end: (\d+) bytes are announced at \S+:\d+, and (\d+) have come \(\2 at \S+:\d+\);"
    )
    first = re.match(balance, found.message)
    assert first and int(first[1]) == int(first[2]) + 16
    assert announced.startswith("announcements of bytes on full come from mbarrier.arrive.expect_tx at ")
    assert came.startswith("bytes for full come from cp.async.bulk.tensor (load) at ") and "warp 0" in came


def test_a_cycle_of_three_warps_with_barriers_in_an_array() -> None:
    report = check(Circle, torch.zeros(32))
    (found,) = [f for f in report.findings if f.code == "deadlock"]
    assert "warp 0 waits for ring[0]" in found.notes[-1] and found.notes[-1].count("which needs warp") == 3


# --- the report


def test_json_round_trip() -> None:
    report = check(CpAsyncGroups(first=2, second=2), *copied(), orders=2)
    record = report.as_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["ok"] is False and record["schedule"] == {
        "first": 2, "second": 2, "commit": True, "wait_all": False, "sync": True, "own": False
    }  # fmt: skip
    found = record["findings"][0]
    assert found["code"] and found["seeds"] == [0, 1] and found["timeline"] and found["box"]


def test_the_text_has_the_source_the_edge_and_how_to_replay() -> None:
    report = check(CpAsyncGroups(first=2, second=2), *copied())
    text = str(report)
    assert "> " in text and "self.copy_async(src=g_x, dst=s_0" in text
    assert "==> copy_async_wait_group(2) at line 49 leaves all 2 groups in flight: wait_group(1) does not" in text
    assert "replay: seed=0" in text
    assert "here: read-before-complete" in text and "1 CTA" in text
    assert all(char.isprintable() for line in text.splitlines() for char in line) and text.isascii()


def test_the_text_ends_in_the_verdict_and_what_was_covered() -> None:
    lines = str(check(Handoff(), *handoff(), seed=2)).splitlines()
    assert any(line.startswith("clean in 1 order (seed 2), simulated in ") for line in lines)
    assert any("exact:" in line and "mbarrier.wait" in line for line in lines)


def test_the_lines_around_are_shown_once() -> None:
    report = check(CpAsyncGroups(first=2, second=2), *copied())
    texts = {
        role: [p.text.split(" | ")[0][2:] for p in report.paragraphs() if p.role == role] for role in ("marked", "code")
    }
    again = next(number for number in texts["marked"] if texts["marked"].count(number) > 1)
    before = f"{int(again) - AROUND:>{len(again)}}"
    assert texts["code"].count(before) == 1


def test_coverage_says_what_ran_what_is_approximate_and_what_did_not_run() -> None:
    covered = check(Handoff(), *handoff()).coverage
    assert {"mbarrier.arrive", "mbarrier.wait", "sync", "load_shared", "store_global"} <= set(covered.exact)
    assert not covered.approximated
    stopped = check(load(arrive=False), *box()).coverage
    assert any("never executed: " in text and "store_global" in text for text in stopped.not_covered)


def test_names_of_the_package() -> None:
    assert isinstance(check(AddOne, torch.zeros(64, 64)), Report)


# --- bad input


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"orders": 0}, "orders is 0; it must be an integer from 1 to 10000."),
        ({"orders": True}, "orders is True; it must be"),
        ({"orders": "3"}, "orders is '3'; it must be"),
        ({"orders": 10**6}, "orders is 1000000; it must be"),
        ({"seed": -1}, "seed is -1; it must be"),
        ({"seed": 2**63 - 1, "orders": 2}, "the last seed must be at most 2**63 - 1."),
        ({"strict": 1}, "strict is 1; it must be True or False."),
        ({"workers": 0}, "workers is 0; it must be"),
        ({"progress": 3}, "progress is 3; it must be a function"),
        ({"target": "sm_1"}, "sm_1"),
        ({"schedule": {"block": 1}}, "AddOne has no schedule parameter 'block'"),
    ],
)
def test_bad_input_is_one_sentence_and_touches_nothing(options: dict, sentence: str) -> None:
    x = torch.zeros(64, 64)
    with pytest.raises(InputError) as caught:
        check(AddOne, x, **options)
    assert sentence in one_sentence(caught.value)
    assert not x.any()


def test_what_is_no_kernel() -> None:
    with pytest.raises(InputError, match=r"give a tilus.Script class"):
        check(print, torch.zeros(1))
