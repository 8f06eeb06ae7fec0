"""Check, time and stress with contenders that are right, wrong, hang and crash; resume; results and their table."""

from __future__ import annotations

import json

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli.views import bench_view, terminal
from blackwell_matmul.harness.bench import session
from blackwell_matmul.harness.bench.devices import SCALED_DATA
from blackwell_matmul.harness.bench.results import FILE, Machine, SuiteResults, means
from blackwell_matmul.problem.problem import Problem

SMALL = Problem(33, 40, 24)
OTHER = Problem(16, 24, 8)
SIZES = ((33, 40, 24), (16, 24, 8))


@pytest.mark.process
def test_what_hangs_crashes_or_is_wrong_costs_a_row_and_never_the_run(trial_in_children):
    """In real children: the one test that pays for them."""
    names = ("right", "dies", "hangs", "hangs_later")
    book = trial_in_children(*names, sizes=SIZES, limit_s=3.0).run()

    def told(name, problem=SMALL):
        row = book.get(name, problem)
        return row.status, row.reason

    assert told("dies") == ("failed", "its process was ended by signal 11 (SIGSEGV).")
    assert told("hangs") == ("failed", "no sign of life for 3 s.")
    assert told("hangs", OTHER) == ("failed", "not tried, since it hung on 33x40x24 fp16.")
    assert book.get("hangs_later", SMALL).untimed == "no sign of life for 3 s."
    assert book.get("hangs_later", OTHER).untimed == "not tried, since it hung on 33x40x24 fp16."
    for problem in (SMALL, OTHER):
        ours, theirs = book.get("right", problem), book.get("cublas", problem)
        assert ours.timing and theirs.timing and ours.session == theirs.session
        assert ours.percent_of_cublas == pytest.approx(100 * theirs.timing.median_us / ours.timing.median_us)
    assert not session.ok(book)


def test_a_wrong_result_is_never_timed(trial):
    book = trial("right", "wrong", "half", "outside").run()
    assert [row.contender for row in book if row.timing] == ["cublas", "right"]
    assert book.get("outside", SMALL).reason == "wrong: it wrote outside of C."
    assert "never written" in book.get("half", SMALL).reason
    assert not session.ok(book)


def test_block_scaled_contenders_get_their_scales_and_torch_is_the_reference_where_it_has_one(trial):
    book = trial("scaled", "scaled_the_other_way", sizes=((128, 128, 64, "nvfp4"),)).run()
    problem = Problem(128, 128, 64, "nvfp4")
    right, wrong, theirs = (book.get(name, problem) for name in ("scaled", "scaled_the_other_way", "cublas"))
    assert right.status == "correct" and right.timing and right.percent_of_cublas is None
    assert wrong.status == "wrong" and "A and B have each other's scales" in wrong.reason and not wrong.timing
    assert theirs.status == "refused" and theirs.reason.startswith("torch's scaled_mm of nvfp4: ")
    assert [each["data"] for each in book.sessions.values()] == [SCALED_DATA]
    assert "refused: torch's scaled_mm of nvfp4" in terminal.rendered(bench_view.result_lines(book))


def test_an_output_of_its_own_counts(trial):
    book = trial("own_output").run()
    assert book.get("own_output", SMALL).status == "correct" and session.ok(book)


def test_what_raises_is_a_row(trial):
    row = trial("raises").run().get("raises", SMALL)
    assert row.status == "failed" and row.reason.endswith(".") and "\n" not in row.reason


def test_a_second_run_does_what_is_missing(trial):
    first = trial("right").run()
    unchanged = trial("right")
    again = unchanged.run()
    assert [row.timing for row in again] == [row.timing for row in first]
    assert not [what for what in unchanged.told if what.startswith("timed")]
    more = trial("right", sizes=SIZES).run()
    assert more.get("right", SMALL).timing == first.get("right", SMALL).timing
    assert more.get("right", OTHER).timing


def test_a_new_contender_has_everybody_timed_again(trial):
    """Percentages of cuBLAS are of one session, or they are nothing."""
    trial("right").run()
    book = trial("right", "own_output").run()
    sessions = {row.session for row in book}
    assert len(sessions) == 1 and {row.cublas_us for row in book} == {book.get("cublas", SMALL).timing.median_us}


def test_figures_of_code_that_has_changed_are_measured_anew(trial, monkeypatch):
    first = trial("right").run().get("right", SMALL)
    monkeypatch.setattr(session, "code_of", lambda contender: contender.name)
    second = trial("right").run().get("right", SMALL)
    assert second.code == "right" != first.code and second.session
    assert second.timing != first.timing


def test_stress_counts_every_result_that_differs(trial):
    book = trial("right", "differs_sometimes", suite="stress", repetitions=70, time=False).run()
    assert book.get("right", SMALL).stress["ok"] and book.get("right", SMALL).stress["calls"] == 70
    bad = book.get("differs_sometimes", SMALL).stress
    assert (bad["different"], bad["message"]) == (10, "10 of 70 results differ from the first.")
    assert not session.ok(book)
    assert not [row for row in book if row.timing]


def test_results_survive_a_round_trip(trial):
    book = trial("right", "wrong").run()
    read = SuiteResults(book.file.parent, "size", book.machine)
    assert list(read) == list(book)
    record = json.loads(book.file.read_text())
    row = next(row for row in record["suites"]["size"]["rows"] if row["contender"] == "right")
    assert row["tflops"] > 0 and row["percent_of_peak"] is None and row["timing"]["rounds"] == 3


def test_suites_share_a_file(trial):
    trial("right").run()
    book = trial("right", suite="stress", repetitions=5, time=False).run()
    assert set(json.loads(book.file.read_text())["suites"]) == {"size", "stress"}


def test_figures_of_two_gpus_are_not_mixed(tmp_path, trial):
    trial("right").run()
    with pytest.raises(InputError, match=r"has figures of cpu .* and this is other .*; choose another folder"):
        SuiteResults(tmp_path, "size", Machine("other", "sm_100a", 148, None))


HEAD = '{"format": 1, "machine": {"gpu": "cpu", "arch": "", "sm_count": 0, "peak_tflops": null}, "suites": '
DAMAGED = [
    *("", "{", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "machine": {"x": 1}, "suites": {}}'),
    *(HEAD + "3}", HEAD + '{"ladder": 3}}', HEAD + '{"ladder": {"rows": [{"contender": "h2"}]}}}'),
    HEAD + '{"ladder": {"rows": [{"contender": "h2", "problem": {"m": 0, "n": 1, "k": 1}}]}}}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_file_that_is_no_result_is_left_alone(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InputError, match="is no result of this version of bench"):
        SuiteResults(tmp_path, "ladder", Machine("cpu", "", 0, None))
    assert (tmp_path / FILE).read_text() == content


def test_means_are_geometric_and_by_band(trial):
    book = trial("right", sizes=SIZES).run()
    (mean,) = means(list(book))
    percents = [book.get("right", problem).percent_of_cublas for problem in (SMALL, OTHER)]
    assert (mean.contender, mean.band, mean.problems, mean.of) == ("right", "a band", 2, 2)
    assert mean.percent == pytest.approx((percents[0] * percents[1]) ** 0.5)


def test_the_table_tells_figures_and_reasons(trial):
    text = terminal.rendered(bench_view.result_lines(trial("right", "wrong").run()))
    assert "33x40x24 fp16" in text and "of cuBLAS" in text
    assert "wrong: 1 of 1320 elements" in text
    assert "SM clock: unknown, power: unknown" in text and "A ~ N(0, 1)" in text
