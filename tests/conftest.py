"""What keeps the suite fast and alone: one thread of arithmetic a process, and a cache of compiled kernels that the
processes of this run share and nobody else; no test depends on it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Here, in the workers and in the processes that tests start. The tensors are small; threads of torch that wait for one
another on busy cores take twenty times as long as one."""

os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
"""The vector instructions that the CPU names are there. torch's inductor would compile a program for each to ask."""

signal.signal(signal.SIGINT, signal.default_int_handler)
"""A shell that starts the suite in the background ignores it, and what the tests start would, too."""

CACHE = "BLACKWELL_MATMUL_CACHE"
_own_cache = None if os.environ.get("PYTEST_XDIST_WORKER") else tempfile.mkdtemp(prefix="blackwell-matmul-tests-")
"""Of the process that starts the workers, which inherit its environment."""
if _own_cache:
    os.environ[CACHE] = _own_cache


gc.set_threshold(1_000_000, 20, 100)
"""From before the tests are collected, which imports torch and tilus: they stay, and the collector hardly ever looks
through them. Freezing them costs more: each simulation asks how much is frozen, and to count that is a walk through all
of it."""


STARTS = frozenset({"os.fork", "os.posix_spawn", "subprocess.Popen"})
"""Python's audit events of a process that starts."""


SLOW = Path(__file__).with_name("slow.txt")
"""Functions, a line each, that are slow and not marked in their file: `pytest --quick --measure` adds them."""

SLOW_SECONDS = 0.2
"""CPU time of all cases of a function that is slow. `make quick` has 90 s for some 5,000 cases of 2,000 functions."""


def pytest_addoption(parser: pytest.Parser) -> None:
    meaning = "leave out tests marked slow, process or gpu, and skip a test that compiles a kernel"
    parser.addoption("--quick", action="store_true", help=meaning)
    parser.addoption("--measure", action="store_true", help=f"add to {SLOW.name} what takes long; in one process")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick and not config.option.markexpr:
        config.option.markexpr = "not (slow or process or gpu)"
    if config.option.measure:
        config.pluginmanager.register(Measured())


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is marked
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {*SLOW.read_text().splitlines()}
    for item in items:
        if _function(item) in slow:
            item.add_marker(pytest.mark.slow)


class Measured:
    """The plugin of --measure, which adds functions to the list."""

    def __init__(self) -> None:
        self.cpu_seconds: Counter[str] = Counter()  # in this process, by function

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.cpu_seconds[_function(item)] += time.process_time() - start

    def pytest_sessionfinish(self) -> None:
        found = {name for name, seconds in self.cpu_seconds.items() if seconds > SLOW_SECONDS}
        SLOW.write_text("".join(f"{name}\n" for name in sorted({*SLOW.read_text().splitlines(), *found})))


def _stay_quick() -> None:
    """From now on, fail each test that starts a process, and skip each that compiles a kernel."""
    from blackwell_matmul.compiler import compiling, nvrtc
    from blackwell_matmul.simulator import parallel

    def starts(event: str, args: object) -> None:
        assert event not in STARTS, "this test starts a process: mark it with pytest.mark.process"

    def compiles(*args: object) -> None:
        pytest.skip("it compiles a kernel, which is not quick")

    replace = pytest.MonkeyPatch().setattr
    for module in (parallel, compiling):  # what takes long would start processes
        replace(module, "can_fork", lambda: False)
    replace(nvrtc, "compile_source", compiles)
    sys.addaudithook(starts)


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.quick:
        _stay_quick()
    if providers := sys.modules.get("hypothesis.internal.conjecture.providers"):
        # it draws constants of our modules that happen to be loaded; here always the same, whatever ran before
        vars(providers)["is_local_module_file"] = lambda path: False


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.freeze()  # a process that ends frees its memory at once; pytest would take each object apart before
    if _own_cache:
        shutil.rmtree(_own_cache, ignore_errors=True)


@pytest.fixture
def command_line(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: its exit code and what it says on stdout and stderr, which is never a traceback."""
    from blackwell_matmul import cli

    def run(*argv: str) -> tuple[int, str, str]:
        code = cli.main(argv)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return run
