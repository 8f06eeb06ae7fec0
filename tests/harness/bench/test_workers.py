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

from blackwell_matmul.harness.bench import contenders, nursery, workers
from blackwell_matmul.harness.bench.workers import Ended, Workers
from blackwell_matmul.problem.problem import Problem

FAKES = Path(__file__).with_name("fake_contenders.py")


def check(name: str) -> dict:
    who = contenders.function(name, f"{FAKES}:{name}")
    return {
        "do": "check", "contender": who.as_task(), "problem": asdict(Problem(8, 8, 8)), "bundle": None, "device": "cpu"
    }  # fmt: skip


@pytest.fixture(params=[True, False], ids=["forked", "own process"])
def begun(request, monkeypatch):
    """Both ways in which a child begins."""
    if request.param and not nursery.FORKS:
        pytest.skip("forks on Linux alone")
    monkeypatch.setattr(nursery, "FORKS", request.param)


def path_to(folder: Path, text: str, name: str = "light") -> str:
    """What PYTHONPATH must be for children to find this module."""
    (folder / f"{name}.py").write_text(text)
    return os.pathsep.join((str(folder), *filter(None, sys.path)))


IN_TURN = ("right", "leaves", "chatty", "nothing")


def test_one_child_goes_on_until_it_breaks_and_another_takes_over():
    """With the tasks of a measurement, which import torch and tilus."""
    with Workers(limit_s=20.0) as pool:
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
    with Workers(20.0, {"PYTHONPATH": path}, "light") as pool:
        ends = told_in_turn(pool, [{"do": f"light:{name}"} for name in IN_TURN])
    assert ends[3].refused == "there is nothing to call."


def told_in_turn(pool: Workers, tasks: list[dict]) -> list[Ended]:
    """The ends of these four, of which the second breaks its child and the last is refused."""
    steps = []
    ends = list(pool.run(tasks, steps.append))
    assert [bool(each.result and each.result["ok"]) for each in ends] == [True, False, True, False]
    assert ends[1].failed == "its process ended with code 3" and ends[1].at == "leaves" and not ends[1].hung
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
@pytest.mark.parametrize("keep", [False, True])
def test_a_child_that_has_done_its_tasks_is_kept_where_that_is_asked_for(tmp_path, keep):
    path = path_to(tmp_path, WHICH)
    with Workers(20.0, environment={"PYTHONPATH": path}, module="light", keep=keep) as pool:

        def pids(*names):
            return [(ended.result or {}).get("pid") for ended in pool.run([{"do": f"light:{name}"} for name in names])]

        (first, again), (second,) = pids("which", "which"), pids("which")
        assert first == again and (first == second) == keep
        assert (pids("broken"), pids("which") == [second]) == ([None], False)
        next(unfinished := pool.run([{"do": "light:which"}] * 2))
        unfinished.close()
        assert len({*pids("which"), second, first}) == 3 - keep
    assert pids("which") == []


@pytest.mark.usefixtures("begun")
def test_a_child_that_is_ended_meanwhile_is_not_waited_for(tmp_path):
    """As Ctrl-C does, from another thread than the one that waits for what the child says."""
    path = path_to(tmp_path, HANGS)
    pool = Workers(20.0, {"PYTHONPATH": path}, "light")
    at_work, ends = threading.Event(), []

    def wait() -> None:
        ends.extend(pool.run([{"do": "light:hangs"}], lambda step: at_work.set()))

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert at_work.wait(20.0)
    pool.end()
    waiting.join(20.0)
    assert not waiting.is_alive() and ends[0].failed.startswith("its process was ended by signal 9")


@pytest.mark.skipif(not nursery.FORKS, reason="forks on Linux alone")
def test_children_of_several_environments_begin_at_the_same_time(tmp_path):
    path = path_to(tmp_path, WHICH)

    def pids(number):
        with Workers(20.0, {"PYTHONPATH": path, "NUMBER": str(number)}, "light") as pool:
            return [ended.result["pid"] for ended in pool.run([{"do": "light:which"}])]

    with ThreadPoolExecutor(4) as threads:
        assert len({pid for each in threads.map(pids, range(8)) for pid in each}) == 8


def test_a_child_leaves_when_its_parent_is_killed(tmp_path):
    code = (
        "from blackwell_matmul.harness.bench.workers import Workers\n"
        "with Workers(600, module='light') as pool:\n"
        "    for _ in pool.run([{'do': 'light:hangs'}], lambda step: print(step, flush=True)): pass\n"
    )
    path = path_to(tmp_path, HANGS)
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout.readline() == "hangs\n"
    children = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
    assert len(children) >= 1 + 2 * nursery.FORKS
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
    for forks in {nursery.FORKS, False}:
        monkeypatch.setattr(nursery, "FORKS", forks)
        monkeypatch.setattr(nursery, "TEMPLATE" if forks else "CHILD", command)
        with Workers(limit_s=20.0, module="of no use") as pool:
            (ended,) = pool.run([{"do": "x"}])
        assert ended == Ended(failed="its process ended with code 1: no such luck")


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


@pytest.mark.skipif(not nursery.FORKS, reason="forks on Linux alone")
def test_children_import_once_and_are_processes_of_their_own(tmp_path):
    path = path_to(tmp_path, HEAVY, "heavy")

    def ends(name, gpu):
        with Workers(20.0, {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": gpu}, "heavy") as pool:
            yield from pool.run([{"do": f"heavy:{name}"}])

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


@pytest.mark.skipif(not nursery.FORKS, reason="forks on Linux alone")
def test_a_child_imports_itself_where_imports_have_asked_cuda(tmp_path):
    path = path_to(tmp_path, SPOILT, "spoilt")
    with Workers(20.0, {"PYTHONPATH": path}, "spoilt") as pool:
        (ended,) = pool.run([{"do": "spoilt:pid"}])
    assert ended.result["folder"] == os.getcwd() and ended.result["by"] is None
    assert (tmp_path / f"imported {ended.result['pid']}").exists() and len(list(tmp_path.glob("imported *"))) == 2


def test_a_child_that_is_not_needed_is_ended_before_its_imports_are_done(tmp_path):
    path = path_to(tmp_path, "import time; time.sleep(25)", "slow")
    start = time.monotonic()
    with Workers(20.0, {"PYTHONPATH": path}, "slow") as pool:
        pool.prepare()
    assert time.monotonic() - start < 20


def test_messages_are_told_from_what_libraries_print():
    assert workers._message("hello\n") == {}
    assert workers._message(f"blackwell-matmul: {json.dumps({'step': 'x'})}\n") == {"step": "x"}
