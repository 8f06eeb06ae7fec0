"""Ctrl-C on real commands in process groups of their own: they end soon, alone, and keep what is done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blackwell_matmul.base import interrupts
from blackwell_matmul.compiler import Bundle

SOON_S = 10.0
"""Two seconds are promised; the machine of a test may be busy."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux to see processes")


class Started:
    """A command, in a process group of its own."""

    def __init__(self, *argv: str, folder: Path) -> None:
        cache = {"BLACKWELL_MATMUL_CACHE": str(folder / "cache")}
        self.process = subprocess.Popen(
            [sys.executable, *argv], cwd=folder, env={**os.environ, **cache}, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def until(self, seen: Callable[[], object], patience_s: float = 120.0) -> None:
        deadline = time.monotonic() + patience_s
        while not seen():
            assert self.process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)

    @property
    def name(self) -> str:
        return name_of(self.process.pid)

    def interrupt(self, times: int = 1) -> tuple[str, str]:
        """stdout and stderr, of a command that ends as it should."""
        theirs, start = self.descendants(), time.monotonic()
        for _ in range(times):
            os.killpg(self.process.pid, signal.SIGINT)
            time.sleep(0.05)
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 130 and time.monotonic() - start < SOON_S
        assert_gone(theirs)
        assert "Traceback" not in err
        return out, err

    def descendants(self) -> set[int]:
        return set(_descendants(self.process.pid))


def _descendants(pid: int) -> Iterator[int]:
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, text_of(listed).split()):
            yield child
            yield from _descendants(child)


def text_of(file: Path) -> str:
    """Of a file of /proc; a thread or a process may end at any time, also while it is read."""
    try:
        return file.read_text()
    except OSError:
        return ""


def name_of(pid: int) -> str:
    """The command line, which a forked process shares."""
    return text_of(Path(f"/proc/{pid}/cmdline"))


def assert_gone(processes: set[int]) -> None:
    deadline = time.monotonic() + SOON_S
    while any(map(is_there, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(filter(is_there, processes))


def is_there(pid: int) -> bool:
    return "State:\tZ" not in (text_of(Path(f"/proc/{pid}/status")) or "State:\tZ")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    started: list[Started] = []

    def begin(*argv: str) -> Started:
        started.append(Started(*argv, folder=tmp_path))
        return started[-1]

    yield begin
    for each in started:
        if each.process.poll() is None:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.communicate()


@pytest.mark.process
def test_compiling_ahead_keeps_what_is_compiled(start, tmp_path: Path) -> None:
    index = tmp_path / "o" / "bundles" / "index.json"
    argv = ("--target", "H200", "--rungs", "h0,h1,h2", "--dtype", "fp16,bf16", "--size", "512", "512", "512")
    command = start("-m", "blackwell_matmul", "bench", "--compile-only", *argv, "--out", "o")
    command.until(index.exists)
    _, err = command.interrupt()
    words = r"error: interrupted; (\d) of 6 kernels are compiled and kept in o/bundles\."
    said = re.fullmatch(words, err.splitlines()[-1])
    kept = json.loads(index.read_text())["bundles"]
    assert said and int(said[1]) == len(kept) >= 1
    for entry in kept.values():
        assert Bundle.load(index.parent / entry["folder"]).cubin
    for place in (tmp_path / "cache").glob("*/[0-9a-f]*"):
        assert Bundle.load(place).key == place.name


@pytest.mark.process
def test_a_simulation_in_several_processes_ends(start) -> None:
    command = start("-m", "blackwell_matmul", "run", "h0", "--size", "4096", "4096", "512", "--workers", "2", "--json")
    command.until(lambda: command.name in map(name_of, command.descendants()))
    out, err = command.interrupt(times=3)
    assert json.loads(out) == {"error": "interrupted."} and err == "error: interrupted.\n"


IMPORTING = """
import os, runpy, signal, sys
from importlib.machinery import PathFinder
class Interrupted:
    def find_spec(name, path, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
        return PathFinder.find_spec(name, path, target)
sys.meta_path.insert(0, Interrupted)
sys.argv[1:] = {words}
runpy.run_module("blackwell_matmul", run_name="__main__", alter_sys=True)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "out"),
    [(["--help"], ""), (["run", "v1", "--json"], '{"error": "interrupted."}\n')],
    ids=["for people", "as JSON"],
)
def test_ctrl_c_during_the_imports_is_one_sentence(start, words: list[str], out: str) -> None:
    process = start("-c", IMPORTING.format(words=words)).process
    assert process.communicate(timeout=60) == (out, "error: interrupted.\n") and process.returncode == 130


POOL = """
import multiprocessing, sys, time
from blackwell_matmul.base import interrupts
if __name__ == "__main__":
    try:
        with interrupts.answered(lambda: None), interrupts.Pool(2, multiprocessing.get_context("fork")) as pool:
            pool.submit(print, "one", flush=True).result()
            list(pool.map(time.sleep, [600.0] * 9))
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.mark.process
def test_a_pool_ends_with_its_jobs(start) -> None:
    command = start("-c", POOL)
    assert command.process.stdout.readline() == "one\n"
    command.until(lambda: len(command.descendants()) == 2)
    assert command.interrupt() == ("", "")


@pytest.mark.process
def test_a_pool_ends_when_its_parent_is_killed(start) -> None:
    command = start("-c", POOL)
    assert command.process.stdout.readline() == "one\n"
    command.until(lambda: len(command.descendants()) == 2)
    theirs = command.descendants()
    command.process.kill()
    command.process.wait()
    assert_gone(theirs)


KEEPING = """
import hashlib, os, time
from blackwell_matmul.base import interrupts
say, kept = lambda: os.write(2, interrupts.sentence().encode()), lambda: "2 of 3 are kept"
with interrupts.answered(say), interrupts.keeping(kept):
    try:
        print("begun", flush=True)
        {work}
    except KeyboardInterrupt:  # swallowed; with a long call, only what came before it
        {work}
"""
LONG_CALL = "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
SWALLOWED = "time.sleep(600)"


@pytest.mark.process
@pytest.mark.parametrize("work", [LONG_CALL, SWALLOWED], ids=["a long call", "a swallowed exception"])
def test_what_hears_nothing_is_ended(start, work: str) -> None:
    command = start("-c", KEEPING.format(work=work))
    assert command.process.stdout.readline() == "begun\n"
    assert command.interrupt() == ("", "interrupted; 2 of 3 are kept.")


def test_what_is_kept_is_said_after_the_block_and_not_of_the_next_command() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts.keeping(lambda: "outer"), interrupts.keeping(lambda: "inner"):
        raise KeyboardInterrupt
    assert interrupts.sentence() == "interrupted; inner."
    with interrupts.answered(lambda: None) as came:
        assert interrupts.sentence() == "interrupted." and not came.is_set()


def test_ctrl_c_is_as_before_after_a_command() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts.answered(lambda: None) as came:
        signal.raise_signal(signal.SIGINT)
    assert came.is_set() and signal.getsignal(signal.SIGINT) is before
