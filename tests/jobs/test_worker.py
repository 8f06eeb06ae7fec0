"""The children themselves: what they print, how they break off, and that they leave with their parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from blackwell_matmul.harness.bench import TASKS, contenders
from blackwell_matmul.jobs import fork_server, worker
from blackwell_matmul.jobs.row_file import DIED
from blackwell_matmul.jobs.worker import TaskOutcome, Worker, WorkerEnded, WorkerPool
from blackwell_matmul.problem.problem import Problem

pytestmark = pytest.mark.process

FAKES = Path(__file__).parents[1] / "harness" / "bench" / "fake_contenders.py"


def check(name: str) -> dict:
    who = contenders.function(name, f"{FAKES}:{name}")
    return {
        "do": f"{TASKS}:check", "contender": asdict(who), "problem": asdict(Problem(8, 8, 8)), "bundle": None,
        "device": "cpu",
    }  # fmt: skip


@pytest.fixture(params=[True, False], ids=["forked", "own process"])
def begun(request, monkeypatch):
    """Both ways in which a child begins."""
    if request.param and not fork_server.FORKS:
        pytest.skip("forks on Linux alone")
    monkeypatch.setattr(fork_server, "FORKS", request.param)


def path_to(folder: Path, text: str, name: str = "light") -> str:
    """What PYTHONPATH must be for children to find this module."""
    (folder / f"{name}.py").write_text(text)
    return os.pathsep.join((str(folder), *filter(None, sys.path)))


IN_TURN = ("right", "leaves", "chatty", "nothing")


def test_one_child_goes_on_until_it_breaks_and_another_takes_over():
    """With the tasks of a measurement, which import torch and tilus."""
    with Worker(20.0, TASKS) as pool:
        ends = told_in_turn(pool, [check(name) for name in IN_TURN])
    assert ends[3].refused.endswith("where make() returns a call.")


LIGHT = """
import os
from blackwell_matmul.base.errors import InputError

def right(step):
    step("right")
    return {"ok": True}

def leaves(step):
    step("leaves")
    os._exit(3)

def chatty(step):
    step("chatty")
    print("a library says something", flush=True)
    os.system("echo and so does its child")
    return {"ok": True}

def nothing(step):
    step("nothing")
    raise InputError("there is nothing to call.")
"""


@pytest.mark.usefixtures("begun")
def test_another_child_takes_over_from_one_that_breaks_however_it_begins(tmp_path):
    path = path_to(tmp_path, LIGHT)
    with Worker(20.0, "light", {"PYTHONPATH": path}) as pool:
        ends = told_in_turn(pool, [{"do": f"light:{name}"} for name in IN_TURN])
    assert ends[3].refused == "there is nothing to call."


def told_in_turn(pool: Worker, tasks: list[dict]) -> list[TaskOutcome]:
    """The ends of these four, of which the second breaks its child and the last is refused."""
    steps = []
    ends = [pool.do(task, steps.append) for task in tasks]
    assert [bool(each.result and each.result["ok"]) for each in ends] == [True, False, True, False]
    assert ends[1].failed == "its process ended with code 3" and ends[1].step == "leaves" and not ends[1].timed_out
    assert steps == list(IN_TURN)
    return ends


WHICH = """
import os

def which(step):
    return {"pid": os.getpid()}

def broken(step):
    raise RuntimeError("no more")
"""


HANGS = """
import time

def hangs(step):
    step("hangs")
    time.sleep(600)
"""


@pytest.mark.usefixtures("begun")
def test_a_worker_keeps_its_child_until_the_child_fails_or_a_new_one_is_asked_for(tmp_path):
    path = path_to(tmp_path, WHICH)
    with Worker(20.0, "light", {"PYTHONPATH": path}) as worker:

        def pid(name="which"):
            return (worker.do({"do": f"light:{name}"}).result or {}).get("pid")

        first = pid()
        assert first == pid() and pid("broken") is None
        second = pid()
        worker.renew()
        assert len({first, second, pid()}) == 3
    with pytest.raises(WorkerEnded):
        pid()


@pytest.mark.usefixtures("begun")
def test_a_pool_has_no_child_after_its_items_and_gives_nothing_out_while_an_outcome_is_read(tmp_path):
    environment = {"PYTHONPATH": path_to(tmp_path, WHICH)}
    with WorkerPool([Worker(20.0, "light", environment) for _ in range(2)]) as pool:
        names, given, pids = ["which", "which", "broken", "which", "which"], [], []

        def task(name):
            given.append(name)
            return {"do": f"light:{name}"}

        for name, outcome in pool.run(names, task):
            before = len(given)
            time.sleep(0.05)
            assert len(given) == before and (name == "broken") == bool(outcome.failed)
            pids.append((outcome.result or {}).get("pid"))
        assert given == names and pids.count(None) == 1
        leave([pid for pid in pids if pid])
        assert pool.submit(os.path.commonprefix, ["ab", "ac"]).result() == "a"
        assert pool.submit(os._exit, 3).result() == {DIED: "its process ended with code 3"}


@pytest.mark.usefixtures("begun")
def test_a_child_that_is_ended_meanwhile_is_not_waited_for(tmp_path):
    """As Ctrl-C does, from another thread than the one that waits for what the child says."""
    path = path_to(tmp_path, HANGS)
    pool = Worker(20.0, "light", {"PYTHONPATH": path})
    at_work, ends = threading.Event(), []

    def wait() -> None:
        ends.append(pool.do({"do": "light:hangs"}, lambda step: at_work.set()))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert at_work.wait(20.0)
    pool.end()
    waiting.join(20.0)
    assert not waiting.is_alive() and ends[0].failed.startswith("its process was ended by signal 9")


@pytest.mark.skipif(not fork_server.FORKS, reason="forks on Linux alone")
def test_children_of_several_environments_begin_at_the_same_time(tmp_path):
    path = path_to(tmp_path, WHICH)

    def pids(number):
        with Worker(20.0, "light", {"PYTHONPATH": path, "NUMBER": str(number)}) as pool:
            return [pool.do({"do": "light:which"}).result["pid"]]

    with ThreadPoolExecutor(4) as threads:
        assert len({pid for each in threads.map(pids, range(8)) for pid in each}) == 8


def test_a_child_leaves_when_its_parent_is_killed(tmp_path):
    code = (
        "from blackwell_matmul.jobs.worker import Worker\n"
        "with Worker(600, 'light') as pool:\n"
        "    pool.do({'do': 'light:hangs'}, lambda step: print(step, flush=True))\n"
    )
    path = path_to(tmp_path, HANGS)
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout.readline() == "hangs\n"
    children = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    assert len(children) >= 1 + 2 * fork_server.FORKS
    parent.kill()
    parent.wait()
    leave(children)


def leave(children: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(map(is_there, children)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if is_there(child)]


def is_there(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_why_a_process_ended_is_its_last_line(monkeypatch):
    command = (sys.executable, "-c", "raise SystemExit('no such luck')")
    for forks in {fork_server.FORKS, False}:
        monkeypatch.setattr(fork_server, "FORKS", forks)
        monkeypatch.setattr(fork_server, "SERVER_COMMAND" if forks else "CHILD_COMMAND", command)
        with Worker(20.0, "of no use") as pool:
            ended = pool.do({"do": "x:y"})
        assert ended == TaskOutcome(failed="its process ended with code 1: no such luck")


HEAVY = """
import os, subprocess, sys
from pathlib import Path

HERE = Path(__file__).parent
(HERE / f"imported {os.getpid()}").touch()

def about(step):
    return {"pid": os.getpid(), "gpu": os.environ.get("CUDA_VISIBLE_DEVICES"), "folder": os.getcwd()}

def leaves_one(step):
    return {"pid": subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid}

def killed(step):
    os.kill(os.getpid(), 11)
"""


@pytest.mark.skipif(not fork_server.FORKS, reason="forks on Linux alone")
def test_children_import_once_and_are_processes_of_their_own(tmp_path):
    path = path_to(tmp_path, HEAVY, "heavy")

    def ends(name, gpu):
        with Worker(20.0, "heavy", {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": gpu}) as pool:
            yield pool.do({"do": f"heavy:{name}"})

    first, second = (next(ends("about", gpu)).result for gpu in "01")
    assert first["pid"] != second["pid"] and (first["gpu"], second["gpu"]) == ("0", "1")
    assert first["folder"] == os.getcwd() and "CUDA_VISIBLE_DEVICES" not in os.environ
    (ended,) = ends("killed", "0")
    assert ended.failed == "its process was ended by signal 11 (SIGSEGV)"
    (left,) = ends("leaves_one", "0")
    leave([left.result["pid"]])
    assert len(list(tmp_path.glob("imported *"))) == 1


SPOILT = """
import os, sys, types
from pathlib import Path

(Path(__file__).parent / f"imported {os.getpid()}").touch()
cuda = types.SimpleNamespace(_is_in_bad_fork=lambda parent=os.getpid(): os.getpid() != parent)
sys.modules["torch"] = types.SimpleNamespace(cuda=cuda)

def pid(step):
    return {"pid": os.getpid(), "folder": os.getcwd(), "by": os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK")}
"""


@pytest.mark.skipif(not fork_server.FORKS, reason="forks on Linux alone")
def test_a_child_imports_itself_where_imports_have_asked_cuda(tmp_path):
    path = path_to(tmp_path, SPOILT, "spoilt")
    with Worker(20.0, "spoilt", {"PYTHONPATH": path}) as pool:
        ended = pool.do({"do": "spoilt:pid"})
    assert ended.result["folder"] == os.getcwd() and ended.result["by"] is None
    assert (tmp_path / f"imported {ended.result['pid']}").exists() and len(list(tmp_path.glob("imported *"))) == 2


def test_a_child_that_is_not_needed_is_ended_before_its_imports_are_done(tmp_path):
    path = path_to(tmp_path, "import time; time.sleep(25)", "slow")
    start = time.monotonic()
    with Worker(20.0, "slow", {"PYTHONPATH": path}) as pool:
        pool.prepare()
    assert time.monotonic() - start < 20


def test_messages_are_told_from_what_libraries_print():
    assert worker._message("hello\n") == {}
    assert worker._message(f"blackwell-matmul: {json.dumps({'step': 'x'})}\n") == {"step": "x"}
