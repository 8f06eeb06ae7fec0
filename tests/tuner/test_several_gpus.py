"""Candidates shared out over GPUs: who measures what, a GPU that dies or hangs, and what decides at the end."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import psutil
import pytest

from blackwell_matmul.harness.bench import contenders
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.contenders import CUBLAS
from blackwell_matmul.harness.bench.measuring_gpus import MeasuringGpu
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import Machine, SuiteResults
from blackwell_matmul.harness.bench.session import Plan
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.jobs import fork_server, worker
from blackwell_matmul.jobs.worker import TaskOutcome
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.tuner import several_gpus
from blackwell_matmul.tuner.gpu_workers import gpu_workers
from blackwell_matmul.tuner.several_gpus import SeveralGpus

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "harness" / "bench" / "fake_contenders.py"
PROBLEM = Problem(33, 40, 24)
ALL = tuple("abcdefgh")
TIMES_US = {CUBLAS: 10.0, **{name: 20.0 + number for number, name in enumerate(ALL)}}
"""h is the slowest and a the fastest, on every GPU."""


class Gpus:
    """Workers of GPUs that are none. factors: of the times, by GPU. dies_at: a GPU and what it dies at, by the word of
    a task and a name in it. crashes: who always fails, without harm to a GPU. poison: whose turn kills a GPU."""

    def __init__(self) -> None:
        self.factors, self.dies_at, self.hangs = {0: 1.0}, {}, False
        self.crashes, self.poison, self.dead = set(), set(), set()
        self.log: list[tuple[int, str, tuple[str, ...]]] = []
        self.rounds: list[int] = []

    def __call__(self, limit_s, module, environment=None):
        return FakeWorkers(self, int(environment["CUDA_VISIBLE_DEVICES"]))

    def did(self, gpu: int, what: str) -> list[tuple[str, ...]]:
        return [names for at, did, names in self.log if (at, did) == (gpu, what)]

    def end_of(self, gpu: int, task) -> TaskOutcome:
        parts = task.get("contenders") or [{"contender": task["contender"]}]
        names = tuple(part["contender"]["name"] for part in parts)
        do = task["do"].rpartition(":")[2]
        self.log.append((gpu, do, names))
        self.rounds += [task["settings"]["rounds"]] if do == "measure" else []
        what, who = self.dies_at.get(gpu, ("", ""))
        if (what == do and who in names) or self.poison & set(names):
            self.dead.add(gpu)
        bad = sorted(self.crashes & set(names))
        if gpu in self.dead or bad:
            return TaskOutcome(failed="no sign of life for 30 s", step=[*bad, *names][0], timed_out=self.hangs)
        return TaskOutcome(result=CHECKED if do == "check" else timed(names, self.factors.get(gpu, 1.0)))


class FakeWorkers:
    def __init__(self, gpus: Gpus, index: int) -> None:
        self._gpus, self._index, self._over = gpus, index, False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()

    def prepare(self):
        pass

    def end(self):
        self._over = True

    def renew(self):
        pass

    def do(self, task, step=None):
        if self._over:
            raise worker.WorkerEnded
        return self._gpus.end_of(self._index, task)


CHECKED = {"ok": True, "message": "correct: exact.", "error": 0.0, "cublas_error": 0.0}


def timed(names, factor):
    def record(name):
        us = TIMES_US[name] * factor
        return {"median_us": us, "q1_us": us, "q3_us": us, "least_us": us, "rounds": 3, "launched_by": "calls"}

    about = {"warmup": {"seconds": 0.0, "rounds": 0, "settled": True}, "telemetry": {}, "sets": 1}
    return {"timings": {name: record(name) for name in names}, **about}


@pytest.fixture
def gpus(monkeypatch):
    made = Gpus()
    monkeypatch.setattr(worker, "Worker", made)
    return made


def plan_of(names) -> Plan:
    made = (contenders.function(name, f"{FAKES}:right") for name in names)
    return Plan((contenders.cublas(), *made), (BenchCase(PROBLEM),), Settings(rounds=3, warmup_s=0.0), "cpu", 3.0)


def seen(count):
    return [MeasuringGpu(index, {"CUDA_VISIBLE_DEVICES": str(index)}) for index in range(count)]


def measured(folder, count, names=ALL, until_s=math.inf, checkers=1, limit_s=3.0):
    like = SuiteResults(folder, "tune", Machine("a GPU", "sm_90a", 1, None))
    index = Index(folder / "bundles", "sm_90a")
    with gpu_workers(seen(count), checkers, limit_s) as workers:
        return SeveralGpus(workers, plan_of(names), index, like, folder, tell).measure(until_s)


def tell(what: str) -> None:
    """Nobody listens."""


def winner(found) -> str:
    rows = (found.rows[name] for name in found.last if found.rows[name].timing)
    return min(rows, key=lambda row: row.timing.median_us).contender


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_each_candidate_is_measured_on_one_gpu_and_the_first_of_each_again_on_one(gpus, tmp_path, quiet):
    gpus.factors = {0: 1.3, 1: 1.0}  # every time of GPU 1 is shorter than those of GPU 0
    found = measured(tmp_path, 2)
    checked = [sorted(name for (name,) in gpus.did(index, "check")) for index in (0, 1)]
    assert checked == [["a", "c", CUBLAS, "e", "g"], ["b", CUBLAS, "d", "f", "h"]]
    assert gpus.did(1, "measure") == [(CUBLAS, "b", "d", "f", "h")]
    assert gpus.did(0, "measure") == [(CUBLAS, "a", "c", "e", "g"), (CUBLAS, "a", "b", "c", "d", "e", "f")]
    assert found.last == set("abcdef") and winner(found) == "a" and not found.lost
    assert {name: found.gpu_of[name] for name in "bgh"} == {"b": 0, "g": 0, "h": 1}
    assert found.rows["b"].timing.median_us == 21.0 * 1.3 and found.rows["h"].timing.median_us == 27.0
    assert gpus.rounds == [2, 2, 3]  # half of them, and all


def test_more_gpus_than_candidates(gpus, tmp_path, quiet):
    found = measured(tmp_path, 4, "ab")
    assert {gpu for gpu, _, _ in gpus.log} == {0, 1} and winner(found) == "a"


def test_a_candidate_that_fails_costs_no_gpu(gpus, tmp_path, quiet):
    gpus.crashes = {"a"}
    found = measured(tmp_path, 2)
    assert found.rows["a"].status == "failed" and not found.lost and winner(found) == "b"


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("dies_at", [("check", CUBLAS), ("check", "e"), ("measure", "e")])
def test_the_others_take_over_what_a_lost_gpu_had(gpus, tmp_path, dies_at, hangs):
    gpus.dies_at, gpus.hangs = {1: dies_at}, hangs
    with pytest.warns(RuntimeWarning, match="GPU 1 is left out from here on, and the others take its share over: "):
        found = measured(tmp_path, 3)
    assert {name for name in found.rows if name != CUBLAS} == set(ALL)
    assert all(row.timing for row in found.rows.values()) and winner(found) == "a"
    assert set(found.lost) == {1} and 1 not in found.gpu_of.values()
    dead = [entry for entry in gpus.log if entry[0] == 1]
    assert len(dead) - dead.index(next(e for e in dead if e[1] == dies_at[0] and dies_at[1] in e[2])) == 2


def test_the_last_session_goes_to_another_gpu_where_its_own_is_lost(gpus, tmp_path):
    gpus.dies_at = {0: ("measure", "b")}  # which GPU 1 has had
    with pytest.warns(RuntimeWarning, match="GPU 0 is left out"):
        found = measured(tmp_path, 2)
    assert found.gpu_of[winner(found)] == 1 and winner(found) == "a"


def test_whose_turn_loses_two_gpus_gets_no_third(gpus, tmp_path):
    gpus.poison = {"a"}
    with pytest.warns(RuntimeWarning):
        found = measured(tmp_path, 4)
    assert len(found.lost) == 2 and winner(found) == "b"
    assert found.rows["a"].reason.startswith("two GPUs were lost at its turn")


def test_of_several_that_were_under_way_the_one_that_loses_another_gpu_gets_no_third(gpus, tmp_path, many_cores):
    """GPU 0 dies of a, when cuBLAS has been checked there, and e fails of it first."""
    checked, dead, blamed = threading.Event(), threading.Event(), threading.Event()

    def end_of(gpu, task, usual=gpus.end_of):
        name = task.get("contender", {}).get("name", "")
        if (gpu, name) == (0, CUBLAS):
            ended = usual(gpu, task)
            checked.set()
            return ended
        if gpu == 0 and name == "a":
            checked.wait(20)
            gpus.dead.add(0)
            dead.set()
            blamed.wait(20)
        elif (gpu, name) == (0, "e"):
            dead.wait(20)
        elif name == f"{CUBLAS} after e":
            blamed.set()
        return usual(gpu, task)

    gpus.poison, gpus.end_of = {"a"}, end_of
    with pytest.warns(RuntimeWarning) as told:
        found = measured(tmp_path, 4, checkers=4)
    assert [str(each.message).split(" something")[0][-1] for each in told] == ["e", "a"]
    assert len(found.lost) == 2 and winner(found) == "b" and found.rows["e"].timing
    assert found.rows["a"].reason.startswith("two GPUs were lost at its turn")


def test_without_any_gpu_left_nobody_wins_and_each_says_why(gpus, tmp_path):
    gpus.dies_at = {0: ("check", "c"), 1: ("check", "d")}
    with pytest.warns(RuntimeWarning) as told:
        found = measured(tmp_path, 2)
    assert len(told) == 2 and "no other one is left" in str(told[-1].message)
    assert not found.last and {found.rows[name].reason for name in ALL} == {several_gpus.NO_GPU_LEFT}
    gpus.dead, gpus.dies_at = set(), {0: ("measure", "b"), 1: ("measure", "a")}
    with pytest.warns(RuntimeWarning) as told:
        found = measured(tmp_path, 2)
    assert len(told) == 2 and "no other one is left" in str(told[-1].message)
    assert not found.last and {found.rows[name].untimed for name in "abcdef"} == {several_gpus.NO_GPU_LEFT}


def test_a_budget_that_is_spent_checks_nothing(gpus, tmp_path, quiet):
    found = measured(tmp_path, 2, until_s=0.0)
    assert not found.rows and not gpus.log


@pytest.mark.parametrize(("cores", "checkers"), [(32, 4), (8, 3), (4, 1), (1, 1)])
def test_all_gpus_together_check_as_many_at_once_as_there_are_cores_for(gpus, monkeypatch, cores, checkers):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    with gpu_workers(seen(2), 4, 3.0) as workers:
        assert [len(each.checkers.workers) for each in workers] == [checkers, checkers]


@pytest.fixture
def many_cores(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 32)


# --- in real children


LIGHT = """
import json, os, sys, time
from pathlib import Path
here, gpu = Path({folder!r}), os.environ["CUDA_VISIBLE_DEVICES"]

def done(task):
    names, do = [part["contender"]["name"] for part in task.get("contenders", [task])], task["do"].rpartition(":")[2]
    (here / f"{{do}} {{gpu}} {{os.getpid()}} {{'-'.join(names)}}").touch()
    while do == "check" and len({{path.name.split()[2] for path in here.glob("check *")}}) < {at_once}:
        time.sleep(0.01)
    return {checked!r} if do == "check" else {{**{timed!r}, "timings": {{
        name: {{**{timed!r}["timings"]["a"], "median_us": 1.0 + number}} for number, name in enumerate(names)
    }}}}

(here / f"start {{gpu}} {{os.getpid()}}").touch()
for line in sys.stdin:
    print("blackwell-matmul: " + json.dumps({{"result": done(json.loads(line))}}), flush=True)
"""
"""A child that loads nothing. Its checks end when so many children have begun one."""


@pytest.mark.process
def test_each_gpu_has_its_processes_once_and_they_check_at_the_same_time(tmp_path, monkeypatch, many_cores):
    code = LIGHT.format(folder=str(tmp_path), at_once=8, checked=CHECKED, timed=timed("a", 1.0))
    monkeypatch.setattr(fork_server, "FORKS", False)
    monkeypatch.setattr(fork_server, "CHILD_COMMAND", (sys.executable, "-S", "-c", code))
    found = measured(tmp_path, 2, tuple("abcdefghijklmnop"), checkers=4, limit_s=60.0)
    assert len(found.rows) == 17 and all(row.timing for row in found.rows.values())
    for gpu, sessions in (("0", 2), ("1", 1)):
        started, checked, timing = (pids(tmp_path, f"{what} {gpu} *") for what in ("start", "check", "measure"))
        assert (len(started), len(set(checked)), len(checked)) == (5, 4, 9)
        assert len(timing) == sessions and len(set(timing)) == 1 and set(started) == {*checked, *timing}


def pids(folder, pattern) -> list[str]:
    return [path.name.split()[2] for path in folder.glob(pattern)]


@pytest.mark.process
def test_children_see_their_gpu_alone_and_one_that_starts_no_process_is_lost(tmp_path):
    """PYTHONHOME stands in for what lets no process start."""
    text = tmp_path / "told.py"
    text.write_text(
        "import os\n"
        "def make():\n"
        "    def call(a, b, c):\n"
        f"        open({str(tmp_path / 'seen')!r}, 'a').write(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "        c.copy_(a @ b.T)\n"
        "    return call\n"
    )
    plan = plan_of(())
    made = [contenders.function(name, f"{text}:make") for name in "ab"]
    plan = Plan((*plan.contenders, *made), plan.cases, plan.settings, "cpu", 60.0)
    two = [
        MeasuringGpu(0, {"CUDA_VISIBLE_DEVICES": "5"}),
        MeasuringGpu(1, {"CUDA_VISIBLE_DEVICES": "6", "PYTHONHOME": "/nowhere"}),
    ]
    like, index = (
        SuiteResults(tmp_path, "tune", Machine("a GPU", "sm_90a", 1, None)),
        Index(tmp_path / "bundles", "sm_90a"),
    )
    with (
        pytest.warns(RuntimeWarning, match="GPU 1 is left out.* the others take its share over"),
        gpu_workers(two, 1, plan.limit_s) as workers,
    ):
        found = SeveralGpus(workers, plan, index, like, tmp_path, tell).measure(math.inf)
    assert found.last == {"a", "b"} and set((tmp_path / "seen").read_text()) == {"5"}


INTERRUPTED = """
import sys
sys.path[:0] = [{here!r}]
from pathlib import Path
import test_several_gpus as tests
from blackwell_matmul.base.interrupts import answered

def plan_of(names):
    made = tuple(tests.contenders.function(name, f"{{tests.FAKES}}:hangs") for name in names)
    return tests.Plan(made, (tests.BenchCase(tests.PROBLEM),), tests.Settings(), "cpu", 600.0)

tests.plan_of, tests.tell = plan_of, lambda what: print(what, flush=True)
with answered(lambda: None, last=True):
    try:
        tests.measured(Path({folder!r}), 2, "ab")
    except KeyboardInterrupt:
        sys.exit(130)
"""


def all_gone(pids, until_s):
    """By then. Where a process had no orderly end, its children end by themselves, soon after it."""
    while left := [pid for pid in pids if Path(f"/proc/{pid}/stat").exists()]:
        if time.monotonic() > until_s:
            return not left
        time.sleep(0.05)
    return True


@pytest.mark.process
def test_ctrl_c_ends_the_children_of_all_gpus(tmp_path):
    code = INTERRUPTED.format(here=str(Path(__file__).parent), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, start_new_session=True)
    waiting = {f"GPU {index}: checked cublas {PROBLEM}\n" for index in (0, 1)}  # and now another, which hangs
    while waiting:
        waiting.discard(line := process.stdout.readline())
        assert line
    theirs = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130 and time.monotonic() - start < 10
    assert len(theirs) >= 2 and all_gone(theirs, time.monotonic() + 20)
    process.stdout.close()
