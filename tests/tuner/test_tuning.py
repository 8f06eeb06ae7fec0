"""`tune` with candidates that hang, crash and are wrong, in real children; budget, top, and the command."""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from blackwell_matmul import BlackwellMatmulV1, simulate
from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.cli.views import terminal
from blackwell_matmul.cli.views.tune_view import tuning_lines
from blackwell_matmul.hardware import detect
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import TASKS, bench_machine, contenders, session
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.harness.calls.user_kernel import find
from blackwell_matmul.jobs import fork_server, worker, worker_main
from blackwell_matmul.jobs.worker import TaskOutcome
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime import winners as kept_winners
from blackwell_matmul.tuner import rank, ranking, several_gpus, stored, tune, tuning
from blackwell_matmul.tuner.candidates import spelled
from blackwell_matmul.tuner.predictions import PredictionTrial
from blackwell_matmul.tuner.tuned import winners

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
FAULTY = f"{ROOT}/bench/gpu/kernels/faulty.py:FaultyMatmul"
FAKES = ROOT / "tests" / "harness" / "bench" / "fake_contenders.py"
THREADS = "concurrent.futures:ThreadPoolExecutor"
PROBLEM = Problem(33, 40, 24)
H200 = GPUS["H200"]


@pytest.fixture(autouse=True)
def no_gpu(tmp_path, monkeypatch):
    """The machine pretends to an H200, and the processor does the work, by stand-ins of a candidate's `fault`."""
    monkeypatch.setenv("BLACKWELL_MATMUL_CACHE", str(tmp_path))
    kept_winners._read.cache_clear()
    monkeypatch.setattr(detect, "require_gpu", lambda: None)
    monkeypatch.setattr(detect, "detect", tuple)
    monkeypatch.setattr(bench_machine, "gpu_at_hand", lambda index=0: H200)
    monkeypatch.setattr(tuning, "DEVICE", "cpu")
    monkeypatch.setattr(tuning, "TUNING_SETTINGS", Settings(rounds=3, warmup_s=0.0))
    monkeypatch.setattr(tuning, "contender_of", stand_in)


def stand_in(kernel, pins):
    fake = {0: "right", 1: "wrong", 2: "hangs", 3: "dies"}[pins["fault"]]
    return contenders.function(f"{kernel.name} {spelled(pins)}", f"{FAKES}:{fake}")


def test_what_hangs_crashes_or_is_wrong_is_reported_and_never_wins():
    found = tune(FAULTY, PROBLEM, limit_s=3, top=4, predict=0)
    right, *others = found.trials
    assert found.winner is right and right.status == "timed" and right.median_us > 0 and found.cublas_us > 0
    told = {trial.schedule["fault"]: trial for trial in others}
    assert told[1].status == "wrong" and "C[32, 39]" in told[1].reason
    assert told[2].reason == "no sign of life for 3 s."
    assert told[3].reason == "its process was ended by signal 11 (SIGSEGV)."
    assert (len(found.trials), found.left_out) == (4, 4)
    assert stored(find(FAULTY).script_cls, PROBLEM, H200) == dict(right.schedule)
    whole = json.loads(Path(found.stored_in).read_text())
    assert len(whole["tuning"]["trials"]) == 4


class Instant:
    """As `worker.Worker`: everything is right at once. predicted_us: of each candidate; none is refused."""

    predicted_us = ()

    def __init__(self, limit_s, module, environment=None):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def prepare(self):
        pass

    def renew(self):
        pass

    end = renew

    def do(self, task, step=None):
        times = {"median_us": 1.0, "q1_us": 1.0, "q3_us": 1.0, "least_us": 1.0, "rounds": 3, "launched_by": "calls"}
        names = [each["contender"]["name"] for each in task.get("contenders", ())]
        if "pickled" in task:
            _, (trial,), _ = pickle.loads(base64.b64decode(task["pickled"]))
            times_us = [us for pins, us in self.predicted_us if pins in trial.schedule]
            return TaskOutcome(result={"us": times_us[0]}) if times_us else TaskOutcome(refused="nobody knows.")
        checked = {"ok": True, "message": "correct: exact.", "error": 0.0, "cublas_error": 0.0}
        timed = {
            "timings": {name: {**times, "median_us": 9.0 - len(name) % 7} for name in names},
            "warmup": {"seconds": 0.0, "rounds": 0, "settled": True}, "telemetry": {}, "sets": 1,
        }  # fmt: skip
        return TaskOutcome(result=checked if task["do"] == f"{TASKS}:check" else timed)


class InThisProcess(Instant):
    """Whatever is asked for, where torch and tilus are imported already."""

    def do(self, task, step=lambda what: None):
        found, _ = worker_main.outcome(task, step)
        return TaskOutcome(**found)


@pytest.fixture
def instant(monkeypatch):
    monkeypatch.setattr(worker, "Worker", Instant)


def test_top_takes_the_first_by_the_rule(instant):
    found = tune(FAULTY, PROBLEM, top=3)
    assert len(found.trials) == 3 and found.left_out == 5


def test_the_best_by_prediction_are_measured_and_the_others_say_why_not(instant, monkeypatch):
    monkeypatch.setattr(Instant, "predicted_us", [("fault=3", 20.0), ("fault=1", 26.2), ("fault=0", 40.0)])
    found = tune(FAULTY, PROBLEM, top=3)
    assert sorted(trial.predicted_us for trial in found.trials) == [20.0, 20.0, 40.0]  # and what a call would choose
    assert [row.schedule["fault"] for row in found.predicted] == [1, 1, 0]
    assert found.predicted[0].reason == "predicted 31 % slower than the first."
    assert found.left_out == 5  # two were not predicted


def test_several_tiles_are_among_the_best(instant, monkeypatch):
    monkeypatch.setattr(Instant, "predicted_us", [("block_n=64", 20.0), ("block_n=128", 21.0)])
    found = tune(FAULTY, PROBLEM, top=3)
    assert {trial.schedule["block_n"] for trial in found.trials} == {64, 128}


def test_a_budget_that_is_spent_leaves_the_rest_untried(instant, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_CHECK_S", 0.0)
    monkeypatch.setattr(tuning, "CHECK_SHARE", 0.0)
    found = tune(FAULTY, PROBLEM, budget_s=1)
    assert {trial.status for trial in found.trials} == {"not tried"}
    assert found.winner is None and found.stored_in is None


def test_a_short_budget_finds_something(instant, monkeypatch):
    monkeypatch.setattr(tuning, "CHECK_SHARE", 0.0)
    assert tune(FAULTY, PROBLEM, budget_s=1).winner is not None


def test_a_rung_on_a_hopper_is_measured_in_the_order_that_was_fitted_there(instant, monkeypatch):
    monkeypatch.setattr(
        tuning, "contender_of", lambda kernel, pins: contenders.function(f"h2 {spelled(pins)}", f"{FAKES}:right")
    )
    found = tune("h2", Problem(256, 512, 512, "bf16"))
    assert len(found.trials) == tuning.TOP and not found.predicted
    monkeypatch.setattr(bench_machine, "gpu_at_hand", lambda index=0: GPUS["B200"])
    monkeypatch.setattr(Instant, "predicted_us", [("block_m", 20.0)])
    found = tune("v2", Problem(256, 512, 512, "bf16"))
    assert len(found.trials) == tuning.TOP and all(trial.predicted_us == 20.0 for trial in found.trials)


def test_a_block_scaled_rung_is_measured_with_its_scales(monkeypatch):
    monkeypatch.setattr(worker, "Worker", InThisProcess)
    monkeypatch.setattr(bench_machine, "gpu_at_hand", lambda index=0: GPUS["B200"])
    fake = lambda kernel, pins: contenders.function(f"s2 {spelled(pins)}", f"{FAKES}:scaled")
    monkeypatch.setattr(tuning, "contender_of", fake)
    problem = Problem(128, 128, 64, "nvfp4")
    found = tune("s2", problem, top=2, predict=0)
    assert [trial.status for trial in found.trials] == ["timed", "timed"] and found.cublas_us is None
    assert stored("s2", problem, GPUS["B200"]) == dict(found.winner.schedule)


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        ({"budget_s": 0}, "budget is 0; it must be from 1 to"),
        ({"budget_s": "x"}, "budget is 'x'; it must be from 1 to"),
        ({"limit_s": None}, "limit is None; it must be from 1 to"),
        ({"top": 0}, "top is 0; it must be an integer from 1 to"),
        ({"predict": 1.5}, "predict is 1.5; it must be an integer from 0 to"),
        ({"progress": 3}, "progress is 3; it must be a function of a text, or None"),
        ({"executor": 3}, "executor is 3; it must be processes, "),
        ({"rows": 3}, "rows is 3; it must be the path of a file, or None"),
        ({"rows": "absent/x"}, "cannot keep rows in 'absent/x': 'absent' is no folder"),
        ({"rows": "/"}, "cannot keep rows in '/': Is a directory"),
    ],
)
def test_options_are_refused_before_anything_is_started(option, rule, monkeypatch):
    for module, name in ((tuning, "worker_pool"), (ranking, "predictions"), (ranking, "candidates")):
        monkeypatch.setattr(module, name, None)
    told = []
    with pytest.raises(InputError, match=f"^{rule}"):
        tune(FAULTY, PROBLEM, **{"progress": told.append, **option})
    if option.keys() & {"predict", "progress", "executor", "rows"}:
        option = {"most" if name == "predict" else name: value for name, value in option.items()}
        with pytest.raises(InputError, match=f"^{rule.replace('predict', 'most')}"):
            rank("v1", PROBLEM, "B200", **{"progress": told.append, **option})
    with pytest.raises(InputError, match=r"^rung is <class .*BlackwellMatmulV1'>; workers import it, so give a name"):
        rank(BlackwellMatmulV1, PROBLEM, "B200")
    with pytest.raises(InputError, match=r"^problem is \(33, 40, 24\); it must be a Problem\.$"):
        rank("v1", (33, 40, 24), "B200")
    assert told == []


def test_bench_takes_winners_as_contenders_of_their_own_problem():
    other = Problem(99, 40, 24)
    kept_winners.keep(find("v1").script_cls, PROBLEM, H200, {"schedule": {"block_n": 64}})
    (only,) = winners(["v1", "triton"], [BenchCase(PROBLEM), BenchCase(other)], H200)
    assert (only.name, only.source, only.pins) == ("v1 tuned", "v1", "block_n=64")
    assert only.takes(PROBLEM) and not only.takes(other)
    plan = session.Plan((contenders.cublas(), only), (BenchCase(PROBLEM), BenchCase(other)))
    assert [(each.name, case.problem) for each, case in plan.pairs()] == [
        ("cublas", PROBLEM), ("cublas", other), ("v1 tuned", PROBLEM)
    ]  # fmt: skip


# --- several GPUs


@pytest.fixture
def two_gpus(monkeypatch, instant):
    """GPUs that are as fast as each other and always right."""
    seen = tuple(MeasuringGpu(index, {"CUDA_VISIBLE_DEVICES": f"GPU-{index}"}) for index in (0, 1))
    monkeypatch.setattr(tuning, "measuring_gpus", lambda asked: seen if asked is None else (seen[asked[0]],))
    monkeypatch.setattr(several_gpus, "LEAST_SHARE", 2)
    monkeypatch.setattr(several_gpus, "FINALISTS", 1)


def test_gpus_share_the_candidates_and_the_record_says_which(two_gpus):
    found = tune(FAULTY, PROBLEM, top=4, predict=0)
    assert found.winner.compared and found.gpus == (0, 1) and not found.lost
    assert [trial.compared for trial in found.trials] == [True, True, False, False]
    assert {trial.gpu for trial in found.trials[:2]} == {0} and found.trials[2].median_us is not None
    kept = json.loads(Path(found.stored_in).read_text())["tuning"]
    assert kept["gpus"] == [0, 1] and [trial["compared"] for trial in kept["trials"]].count(True) == 2


def test_where_shares_would_be_small_one_gpu_measures(two_gpus, monkeypatch):
    given = []
    monkeypatch.setattr(Instant, "__init__", lambda self, limit_s, module, environment=None: given.append(environment))
    found = tune(FAULTY, PROBLEM, top=3, predict=0)
    assert found.gpus == (0,) and {(trial.gpu, trial.compared) for trial in found.trials} == {(None, True)}
    assert {"CUDA_VISIBLE_DEVICES": "GPU-0"} in given and {"CUDA_VISIBLE_DEVICES": "GPU-1"} not in given


def test_one_gpu_of_several_is_the_only_one_that_its_processes_see(two_gpus, monkeypatch):
    given = []
    monkeypatch.setattr(Instant, "__init__", lambda self, limit_s, module, environment=None: given.append(environment))
    found = tune(FAULTY, PROBLEM, top=2, predict=0, gpus=[1])
    assert {"CUDA_VISIBLE_DEVICES": "GPU-1"} in given and found.gpus == (1,)
    assert {(trial.gpu, trial.compared) for trial in found.trials} == {(None, True)}


def test_times_of_two_sessions_are_in_two_groups(two_gpus, command):
    code, out, _ = command(FAULTY, "--size", "33", "40", "24", "--top", "4", "--predict", "0")
    assert code == 0 and "FaultyMatmul 33x40x24 fp16 on H200, measured by GPUs 0, 1" in out
    assert "Compared on GPU 0; a GPU in brackets has timed a share before, beside cuBLAS." in out
    cells = [line.split()[0] for line in out.splitlines() if "block_n" in line and "Winner" not in line]
    assert sorted(cells[:2] + cells[2:]) == cells[2:] + cells[:2] and set(cells[2:]) == {"(0)", "(1)"}


def test_lost_gpus_are_told(two_gpus):
    found = dataclasses.replace(tune(FAULTY, PROBLEM, top=4, predict=0), gpus=(1,), lost={0: "no sign of life."})
    text = terminal.rendered(tuning_lines(found))
    assert "measured by GPU 1" in text and "GPU 0: left out, no sign of life." in text


# --- the command


@pytest.fixture
def command(command_line):
    return partial(command_line, "tune")


def test_the_ranking_is_shown_with_what_fell_out(instant, command, monkeypatch):
    code, out, _ = command(FAULTY, "--size", "33", "40", "24", "--top", "5")
    assert code == 0 and "FaultyMatmul 33x40x24 fp16 on H200, measured" in out
    assert "8 schedules: 0 cannot run, 5 were taken, in the order of predicted cycles" in out
    assert "3 more could run; --top takes more of them." in out and "Winner: " in out and "kept in" in out


def test_what_was_predicted_is_shown_beside_what_was_measured(instant, command, monkeypatch):
    monkeypatch.setattr(Instant, "predicted_us", [("fault=3", 20.0), ("fault=1", 26.2)])
    code, out, _ = command(FAULTY, "--size", "33", "40", "24", "--top", "2")
    assert code == 0 and "predicted" in out and "20.00 µs" in out
    assert "fault=1: left out, predicted 31 % slower than the first." in out
    assert "2 were taken, those of the shortest predicted time" in out


@pytest.mark.parametrize("json_too", [False, True])
def test_a_gpu_that_is_not_here_gets_an_order_and_nothing_is_measured(instant, command, monkeypatch, json_too):
    monkeypatch.setattr(Instant, "predicted_us", [("block_n=128", 20.0), ("block_n=256", 30.0)])
    code, out, _ = command("v1", "--size", "512", "512", "512", "--gpu", "b200", *(["--json"] if json_too else []))
    assert code == 0
    if json_too:
        record = json.loads(out)
        assert (record["measured"], record["gpu"], record["rows"][0]["predicted_us"]) == (False, "B200", 20.0)
    else:
        assert "BlackwellMatmulV1 512x512x512 fp16 on B200, predicted; nothing was measured" in out
        assert "50.0%" in out and "nobody knows." in out and "cannot run" in out


def test_a_block_scaled_rung_is_ranked_in_its_first_type(instant, command, monkeypatch):
    monkeypatch.setattr(Instant, "predicted_us", [("block_n", 20.0)])
    code, out, _ = command("s2", "--size", "512", "512", "512", "--gpu", "b200", "--predict", "1")
    assert code == 0 and "BlackwellMatmulS2 512x512x512 mxfp8 on B200, predicted; nothing was measured" in out


def test_without_any_prediction_there_is_no_order_and_the_exit_code_says_so(instant, command):
    code, out, _ = command("v1", "--size", "512", "512", "512", "--gpu", "b200", "--predict", "1")
    assert code == 1 and "1 not predicted: nobody knows." in out
    assert "none of them predicted, so there is no order." in out and "--predict takes more" not in out


def test_an_order_by_the_model_itself(monkeypatch):
    told = []
    found = rank("v0", Problem(256, 256, 128), "B200", most=2, progress=told.append)
    first, second, *others = found.rows
    assert first.predicted_us < second.predicted_us and second.reason.endswith("slower than the first.")
    assert {row.predicted_us for row in others} == {None} and len(told) == 2


def test_a_form_is_ranked_and_one_that_a_rung_does_not_compute_is_refused(command, monkeypatch):
    monkeypatch.setattr(worker, "Worker", InThisProcess)
    monkeypatch.setattr(fork_server, "preload", lambda module: None)
    said = ("--size", "256", "256", "128", "--gpu", "B200", "--layout", "nn", "--epilogue", "bias,gelu")
    code, out, _ = command("blackwell", *said, "--predict", "1", "--json")
    record = json.loads(out)
    assert code == 0 and record["rows"][0]["predicted_us"] > 0
    assert record["problem"]["form"]["epilogue"]["activation"] == "gelu" and record["problem"]["form"]["a_major"] == "m"
    code, out, err = command("v2", *said)
    assert code == 2 and "blackwell" in err and not out


def test_an_executor_predicts_and_its_rows_are_kept(tmp_path, monkeypatch):
    rows, problem = tmp_path / "rows.jsonl", Problem(256, 256, 128)
    found = rank("v0", problem, "B200", most=1, executor=THREADS, rows=rows)
    assert [row.predicted_us is None for row in found.rows[:2]] == [False, True]
    kept = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["us"] for row in kept] == [found.rows[0].predicted_us]
    monkeypatch.setattr(PredictionTrial, "predict", None)
    again = rank("v0", problem, "B200", most=1, executor=THREADS, rows=rows)
    assert again.rows == found.rows


def test_json_is_one_object(instant, command):
    code, out, err = command(FAULTY, "--size", "33", "40", "24", "--json")
    record = json.loads(out)
    assert (code, err) == (0, "") and record["problem"] == {"m": 33, "n": 40, "k": 24, "dtype": "fp16"}
    assert list(record)[:2] == ["kernel", "rung"] and record["rung"] is None
    assert {"trials", "refused", "cublas_us", "seconds", "stored_in"} <= set(record)


def test_nothing_right_is_exit_code_1(instant, command, monkeypatch):
    monkeypatch.setattr(tuning, "LEAST_CHECK_S", 0.0)
    monkeypatch.setattr(tuning, "CHECK_SHARE", 0.0)
    code, out, _ = command(FAULTY)
    assert code == 1 and "No candidate is right and has a time, so nothing is kept." in out
    assert "not tried: the budget was spent." in out


def test_without_a_gpu_a_sentence(command, monkeypatch):
    def refuse(index=0):
        raise UnsupportedError("measuring takes a GPU.")

    monkeypatch.setattr(bench_machine, "gpu_at_hand", refuse)
    assert command("v2") == (2, "", "error: measuring takes a GPU.\n")


def test_without_a_gpu_nothing_slow_is_loaded():
    code = (
        "import sys; from blackwell_matmul import cli; from blackwell_matmul.hardware import detect as d; "
        "d.detect = tuple; "
        "print(cli.main(['tune', 'v2']), {'torch', 'tilus', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "2 set()\n" and done.stderr.startswith("error: measuring takes a GPU, and this machine has")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["v9"], "rung is 'v9'"),
        (["v1", "--gpu", "B200", "--rows", "absent/x"], "cannot keep rows in 'absent/x': 'absent' is no folder;"),
        (["v1", "--gpu", "B200", "--rows", "/"], "cannot keep rows in '/': Is a directory;"),
        (["v1", "--gpu", "B200", "--executor", "slurm"], "executor is 'slurm'; it must be"),
        ([FAULTY, "--budget", "soon"], "--budget is 'soon'"),
        (["v1", "--gpu", "B200", "--gpus", "0"], "give one of the two"),
        (["v1", "--gpus", "0,one"], "--gpus is 'one'"),
        (["v1", "--gpus", "0,0"], "it must be numbers of GPUs, each once"),
        (["v1", "--gpus", ""], "it must be numbers of GPUs, each once"),
        (["v1", "--gpu", "GB200"], "times on a GB200 cannot be predicted"),
        (["v1", "--gpu", "H200"], "sm_90a (H100, H200) has no tcgen05"),
    ],
)
def test_bad_input_is_one_sentence(command, argv, words):
    code, out, err = command(*argv)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


# --- the faulty kernel itself, in the simulator


@pytest.mark.parametrize(("fault", "code"), [(0, None), (1, None), (2, "deadlock"), (3, "out-of-bounds")])
def test_the_faults_are_what_they_are_called(fault, code):
    script = find(FAULTY).script_cls
    a, b = (torch.randint(-2, 3, (rows, 64)).half() for rows in (100, 128))
    c = torch.full((100, 128), float("nan"), dtype=torch.float16)
    run = simulate(script, 100, 128, 64, a, b, c, target="sm_90a", schedule={"fault": fault, "block_n": 64})
    assert [finding.code for finding in run.findings][:1] == ([code] if code else [])
    assert torch.equal(c.double(), a.double() @ b.double().T) == (fault == 0)
    assert sys.modules[script.__module__].RIGHT == 0
