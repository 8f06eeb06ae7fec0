"""Sweeps in real workers: who is killed costs a second try and no row, and runs that share a file share the work."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from cheap_trials import job, runs

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.jobs.executors import ExecutorPool, _dask_width
from blackwell_matmul.jobs.running_trials import DIED, Job, run

pytestmark = pytest.mark.process

HERE = Path(__file__).parent
SQUARES = [{"number": number, "square": number**2} for number in range(40)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "ran"
    made.mkdir()
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def rows_of(file: Path) -> list[dict[str, int]]:
    return sorted(map(json.loads, file.read_text().splitlines()), key=lambda row: row["number"])


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    """The address of a cluster of two worker processes."""
    distributed = pytest.importorskip("distributed")
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=2, **options) as cluster:
        yield cluster.scheduler_address


def test_a_worker_of_dask_killed_in_the_middle_loses_nothing(dask: str, folder: Path, file: Path) -> None:
    assert run(job(folder, 40, kills_once=20), file, f"dask:{dask}", quiet=True) == SQUARES
    assert rows_of(file) == SQUARES and len(runs(folder, 20)) == 2


def test_a_process_killed_in_the_middle_loses_nothing(folder: Path, file: Path) -> None:
    assert run(job(folder, 40, kills_once=20), file, "processes:2", quiet=True) == SQUARES
    assert rows_of(file) == SQUARES and len(runs(folder, 20)) == 2


def test_a_trial_that_kills_twice_is_named_and_the_others_go_on(folder: Path, file: Path) -> None:
    found = run(job(folder, 8, kills=5), file, "processes:2", quiet=True)
    assert [row["number"] for row in found if DIED in row] == [5] and "its worker ended" in found[5][DIED]
    assert [row["square"] for row in found if DIED not in row] == [0, 1, 4, 9, 16, 36, 49]
    assert len(runs(folder, 5)) == 2


def test_what_is_there_is_not_run_again_and_a_torn_line_is(folder: Path, file: Path) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in SQUARES[:9]) + '{"number": 9, "squ')
    assert run(job(folder, 12), file, "cheap_trials:two_threads", quiet=True) == SQUARES[:12]
    assert rows_of(file) == SQUARES[:12]
    assert [len(runs(folder, number)) for number in range(12)] == [0] * 9 + [1] * 3


def share(folder: str, file: str) -> None:
    run(job(Path(folder), 40), Path(file), "cheap_trials:two_threads", quiet=True)


def test_two_runs_share_a_file_and_the_work(folder: Path, file: Path) -> None:
    context = multiprocessing.get_context("fork")
    both = [context.Process(target=share, args=(str(folder), str(file))) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    assert [each.exitcode for each in both] == [0, 0] and rows_of(file) == SQUARES
    ran = [path.name.split("-")[1] for path in folder.iterdir()]
    assert len(set(ran)) == 2 and len(ran) < 60  # of 80, had they not looked


def test_a_trial_that_raises_ends_the_run_in_a_sentence_and_keeps_the_rows(folder: Path, file: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"^trial 3 fails, KeyError: 'a fault'; \d+ of 8 trials are kept in .*\.$"
    ):
        run(job(folder, 8, raises=3), file, "cheap_trials:two_threads", quiet=True)
    assert not runs(folder, 3) or all(row in SQUARES for row in rows_of(file))


def test_a_scheduler_that_ends_while_it_is_asked_is_one_sentence_and_keeps_the_rows(folder: Path, file: Path) -> None:
    told = iter([{"worker": 1}, {"worker": 1}])

    class Client:
        def nthreads(self) -> dict[str, int]:
            for threads in told:
                return threads
            raise OSError("Stream is closed")  # as Dask's CommClosedError

    @contextmanager
    def opened() -> Iterator[ExecutorPool]:
        with ThreadPoolExecutor(1) as executor:
            yield ExecutorPool(executor, partial(_dask_width, Client(), "dask:tcp://HOST:8786"))

    with pytest.raises(UnsupportedError, match=r"the executor has ended; 1 of 4 trials are kept in "):
        run(job(folder, 4), file, opened, quiet=True)
    (row,) = rows_of(file)
    assert row in SQUARES[:4]


def test_no_time_begins_nothing_and_no_trials_make_no_file(folder: Path, file: Path) -> None:
    assert run(job(folder, 3), file, "processes:1", until_s=time.monotonic(), quiet=True) == []
    assert not list(folder.iterdir())
    file.unlink()
    assert run(Job("none", [], abs, dict), file, quiet=True) == [] and not file.exists()


SCRIPT = """
import sys
from pathlib import Path
from cheap_trials import job
from blackwell_matmul.jobs.running_trials import run
from blackwell_matmul_studies.scripts import script

def main() -> None:
    run(job(Path(sys.argv[0]).parent / "ran", 6, sleeps=3), FILE, EXECUTOR)

if __name__ == "__main__":
    script(main)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
@pytest.mark.parametrize("executor", ["processes:2", "dask"])
def test_ctrl_c_ends_soon_and_says_what_is_kept(folder: Path, file: Path, executor: str) -> None:
    if executor == "dask":
        pytest.importorskip("distributed")
        pytest.importorskip("cryptography")
    told = interrupted(folder, executor, lambda: bool(runs(folder, 3)))
    last = f"error: interrupted; {len(rows_of(file))} of 6 trials are kept in {file}."
    assert told.splitlines()[-1] == last and "Traceback" not in told


@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_says_nothing_of_a_file_that_nobody_named(folder: Path) -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    told = interrupted(folder, "dask", lambda: bool(runs(folder, 3)), file="None")
    assert told.splitlines()[-1] == "error: interrupted." and "resource_tracker" not in told


def test_without_a_file_the_rows_are_only_returned(folder: Path) -> None:
    assert run(job(folder, 12), None, "cheap_trials:two_threads", quiet=True) == SQUARES[:12]
    assert list(folder.parent.iterdir()) == [folder]
    with pytest.raises(UnsupportedError, match=r"'a fault'; nothing is kept, as no file was named\.$"):
        run(job(folder, 8, raises=3), None, "cheap_trials:two_threads", quiet=True)


ROWS = 'Path(sys.argv[0]).parent / "rows.jsonl"'


def interrupted(folder: Path, executor: str, seen: Callable[[], bool], file: str = ROWS) -> str:
    """What a script tells that gets a Ctrl-C once it is seen to be so far."""
    script = folder.parent / "script.py"
    script.write_text(SCRIPT.replace("EXECUTOR", repr(executor)).replace("FILE", file))
    paths = os.pathsep.join((str(HERE), str(HERE.parents[1]), str(HERE.parents[1] / "bench")))
    started = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": paths}, start_new_session=True,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not seen():
        assert started.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    start = time.monotonic()
    os.killpg(started.pid, signal.SIGINT)
    _, told = started.communicate(timeout=60)
    assert started.returncode == 130 and time.monotonic() - start < 10
    return told


@pytest.mark.slow
def test_a_trial_whose_row_json_does_not_have_is_named_and_the_others_are_kept(folder: Path, file: Path) -> None:
    squares = job(folder, 3)
    odd = Job("odd", squares.trials, lambda trial: {"square": float("nan") if trial[0] == 1 else 0}, squares.name)
    with pytest.raises(UnsupportedError, match=r"^trial 1 is not kept, its row is none that JSON has: "):
        run(odd, file, "cheap_trials:two_threads", quiet=True)
    assert all(row["square"] == 0 for row in rows_of(file))
