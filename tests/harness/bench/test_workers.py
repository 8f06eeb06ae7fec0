"""The children themselves: what they print, how they break off, and that they leave with their parent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from blackwell_matmul.harness.bench import contenders, workers
from blackwell_matmul.harness.bench.workers import Ended, Workers
from blackwell_matmul.problem import Problem

FAKES = Path(__file__).with_name("fake_contenders.py")


def check(name: str) -> dict:
    who = contenders.function(name, f"{FAKES}:{name}")
    return {
        "do": "check", "contender": who.as_task(), "problem": asdict(Problem(8, 8, 8)), "bundle": None, "device": "cpu"
    }  # fmt: skip


def test_one_child_goes_on_until_it_breaks_and_another_takes_over():
    steps = []
    with Workers(limit_s=20.0) as pool:
        ends = list(pool.run([check("right"), check("leaves"), check("chatty"), check("nothing")], steps.append))
    assert [bool(each.result and each.result["ok"]) for each in ends] == [True, False, True, False]
    assert ends[1].failed == "its process ended with code 3" and ends[1].at == "leaves" and not ends[1].hung
    assert ends[3].refused.endswith("where make() returns a call.")
    assert steps == ["right", "leaves", "chatty", "nothing"]


WHICH = """
import os

def which(step):
    return {"pid": os.getpid()}

def broken(step):
    raise RuntimeError("no more")
"""


@pytest.mark.parametrize("keep", [False, True])
def test_a_child_that_has_done_its_tasks_is_kept_where_that_is_asked_for(tmp_path, keep):
    (tmp_path / "light.py").write_text(WHICH)
    path = os.pathsep.join((str(tmp_path), *filter(None, sys.path)))
    with Workers(20.0, ahead=0, environment={"PYTHONPATH": path}, module="light", keep=keep) as pool:

        def pids(*names):
            return [(ended.result or {}).get("pid") for ended in pool.run([{"do": f"light:{name}"} for name in names])]

        (first, again), (second,) = pids("which", "which"), pids("which")
        assert first == again and (first == second) == keep
        assert (pids("broken"), pids("which") == [second]) == ([None], False)
        next(unfinished := pool.run([{"do": "light:which"}] * 2))
        unfinished.close()
        assert len({*pids("which"), second, first}) == 3 - keep
    assert pids("which") == []


def test_a_child_leaves_when_its_parent_is_killed():
    code = (
        f"import sys, time; sys.path[:0] = [{str(FAKES.parent)!r}]; from test_workers import check\n"
        "from blackwell_matmul.harness.bench.workers import Workers\n"
        "with Workers(600, ahead=0) as pool:\n"
        "    for _ in pool.run([check('hangs')], lambda step: print(step, flush=True)): pass\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "hangs\n"
    (child,) = children_of(parent.pid)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 20
    while is_there(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_there(child)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("needs Linux to see a process's children")
    return [int(word) for word in listed.read_text().split()]


def is_there(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_why_a_process_ended_is_its_last_line(monkeypatch):
    monkeypatch.setattr(workers, "COMMAND", (sys.executable, "-c", "raise SystemExit('no such luck')"))
    with Workers(limit_s=20.0, ahead=0) as pool:
        (ended,) = pool.run([{"do": "x"}])
    assert ended == Ended(failed="its process ended with code 1: no such luck")


def test_messages_are_told_from_what_libraries_print():
    assert workers._message("hello\n") == {}
    assert workers._message(f"blackwell-matmul: {json.dumps({'step': 'x'})}\n") == {"step": "x"}
    assert os.path.basename(workers.COMMAND[0]) == os.path.basename(sys.executable)
