"""Which words name an executor, and what is said of others."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from blackwell_matmul.base.errors import BlackwellMatmulError, InputError, UnsupportedError
from blackwell_matmul.jobs import executors
from blackwell_matmul.jobs.executors import open_executor


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "executor is ''; it must be processes, processes:4, dask,"),
        ("slurm", "executor is 'slurm'; it must be"),
        ("processes:", "executor is 'processes:'; it must be"),
        ("processes:0", "the number of processes must be from 1 to 1024."),
        ("processes:many", "the number of processes must be from 1 to 1024."),
        ("nowhere:Pool", "executor is 'nowhere:Pool', which does not import; it must be"),
        ("math:nothing", "does not import"),
        ("cheap_trials:NOT_CALLABLE", "which cannot be called"),
        ("builtins:dict", "which makes no concurrent.futures.Executor"),
    ],
)
def test_no_executor_is_one_sentence(spec: str, words: str) -> None:
    with pytest.raises(InputError) as caught, open_executor(spec):
        pass
    assert words in str(caught.value) and str(caught.value).endswith(".")


def test_dask_here_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "find_spec", lambda name: None if name == "cryptography" else True)
    with pytest.raises(UnsupportedError, match=r"and cryptography is not installed; install blackwell-matmul\[dask\]"):
        open_executor("dask")


STRANGER = """
import asyncio, distributed, sys
async def ask():
    try:
        async with distributed.Client(sys.argv[1], asynchronous=True, timeout=2) as client:
            print("RAN", await client.submit(int))
    except (OSError, TypeError, ValueError) as error:
        print("refused", type(error).__name__)
if __name__ == "__main__":
    asyncio.run(ask())
"""


@pytest.mark.process
def test_a_cluster_that_is_started_here_takes_nobody_without_its_key() -> None:
    pytest.importorskip("cryptography")
    with open_executor("dask") as found:
        address = found.executor._client.scheduler.address
        assert address.startswith("tls://127.0.0.1:")
        assert found.executor.submit(len, "abc").result() == 3
        done = subprocess.run([sys.executable, "-c", STRANGER, address], capture_output=True, text=True, timeout=60)
        assert done.stdout.startswith("refused"), done.stderr


def test_dask_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match=r"install blackwell-matmul\[dask\], or take processes\.$"):
        open_executor("dask")


@pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="needs Dask")
def test_a_scheduler_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "CONNECT_LIMIT_S", 0.2)
    with (
        pytest.raises(BlackwellMatmulError, match="no Dask scheduler answers there"),
        open_executor("dask:tcp://127.0.0.1:9"),
    ):
        pass


def test_any_other_by_its_name() -> None:
    with open_executor("cheap_trials:two_threads") as found:
        assert isinstance(found.executor, ThreadPoolExecutor) and found.parallel_trials() == 2
