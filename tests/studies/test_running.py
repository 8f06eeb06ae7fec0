"""Each trial in a process of its own, each end a row, and a second run goes on with what is missing."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.harness.bench.results import Machine
from blackwell_matmul_studies import running
from blackwell_matmul_studies.running import run
from blackwell_matmul_studies.study_results import StudyResults, TrialRow
from blackwell_matmul_studies.trial import Trial

HERE = Machine("none", "sm_90a", 1, None)


def trial(name: str, environment=None, **arguments) -> Trial:
    return Trial(name, f"trials:{name.split()[0]}", arguments, environment or {})


@pytest.fixture
def results(tmp_path, monkeypatch) -> StudyResults:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=":")
    return StudyResults(tmp_path, "a-study", HERE)


@pytest.mark.process
def test_each_trial_has_its_environment_and_each_end_is_a_row(results):
    trials = [trial("tells a", {"A_SWITCH": "1"}, word="a"), trial("tells b", word="b"), trial("leaves")]
    told: list[str] = []
    run([*trials, trial("refuses")], results, limit_s=60, tell=told.append)
    assert results.result("tells a") == {"word": "a", "variable": "1"}
    assert results.result("tells b") == {"word": "b", "variable": ""}
    ends = {row.trial: (row.status, row.reason, row.at) for row in results}
    assert ends["leaves"] == ("failed", "its process ended with code 3", "leaving")
    assert ends["refuses"] == ("refused", "there is nothing here.", "")
    assert told[:2] == ["1 of 4: tells a", "1 of 4: tells a, reading"]


@pytest.mark.process
def test_one_that_hangs_costs_its_time_limit(results, monkeypatch):
    monkeypatch.setattr("blackwell_matmul.jobs.worker.START_LIMIT_S", 60.0)
    run([trial("hangs")], results, limit_s=1)
    (row,) = results
    assert (row.status, row.reason, row.at) == ("hung", "no sign of life for 1 s", "hanging")


def test_a_patient_trial_has_a_longer_limit(results, monkeypatch):
    limits = []
    monkeypatch.setattr(running, "_row", lambda trial, ended: TrialRow(trial.name, "done", {}))
    monkeypatch.setattr(running, "Worker", lambda limit_s, *options: limits.append(limit_s) or nullcontext(Nobody()))
    run([trial("tells a"), replace(trial("tells b"), patience=5.0)], results, limit_s=90)
    assert limits == [90, 450]


class Nobody:
    """A worker that does nothing."""

    def prepare(self):
        pass

    def do(self, task, step):
        pass

    end = prepare


@pytest.mark.process
def test_a_second_run_goes_on(results, tmp_path):
    run([trial("tells a", word="a")], results, limit_s=60)
    again = StudyResults(tmp_path, "a-study", HERE)
    told: list[str] = []
    run([trial("tells a", word="other"), trial("tells b", word="b")], again, limit_s=60, tell=told.append)
    assert told[0] == "1 of 1: tells b" and again.result("tells a")["word"] == "a"
    assert [row.trial for row in StudyResults(tmp_path, "a-study", HERE)] == ["tells a", "tells b"]


@pytest.mark.process
def test_the_figures_of_two_gpus_are_kept_apart(results, tmp_path):
    run([trial("tells a", word="a")], results, limit_s=60)
    with pytest.raises(InputError, match=r"has figures of none .* and this is other .*; choose another folder"):
        StudyResults(tmp_path, "a-study", Machine("other", "sm_90a", 2, None))


def test_what_is_no_result_is_refused_in_a_sentence(tmp_path):
    machine = '{"gpu": "none", "arch": "", "sm_count": 0, "peak_tflops": null}'
    for content in ("[1]", '{"format": 1, "rows": []}', f'{{"format": 1, "machine": {machine}, "rows": [{{"a": 1}}]}}'):
        (tmp_path / "a-study.json").write_text(content)
        with pytest.raises(InputError, match="is no result of this version"):
            StudyResults(tmp_path, "a-study", HERE)
