"""What keeps the suite fast and alone: one thread of arithmetic a process, and a cache of compiled kernels that the
processes of this run share and nobody else; no test depends on it."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable

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


def pytest_addoption(parser: pytest.Parser) -> None:
    meaning = "leave out tests marked slow, process or gpu, and skip a test that compiles a kernel"
    parser.addoption("--quick", action="store_true", help=meaning)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.quick and not config.option.markexpr:
        config.option.markexpr = "not (slow or process or gpu)"


def _stay_quick() -> None:
    """From now on, fail each test that starts a process, and skip each that compiles a kernel."""
    from blackwell_matmul.compiler import nvrtc
    from blackwell_matmul.simulator import parallel

    def starts(event: str, args: object) -> None:
        assert event not in STARTS, "this test starts a process: mark it with pytest.mark.process"

    def compiles(*args: object) -> None:
        pytest.skip("it compiles a kernel, which is not quick")

    parallel._can_fork = lambda: False  # a simulation that takes long would start processes
    sys.addaudithook(starts)
    nvrtc.compile_source = compiles


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
