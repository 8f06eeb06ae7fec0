"""The page on serving is true: processes without tilus serve its bundle, and one whose peer is killed says so."""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

ROOT = Path(__file__).resolve().parents[2]
SERVE = str(ROOT / "examples" / "serve.py")
COMPILE, SERVED, ANSWER, STOPS = re.findall(
    r"```(?:sh|text)\n(.*)\n```", (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
)
WITHOUT_TILUS = """
import runpy, sys
sys.modules |= {"tilus": None, "tvm_ffi": None}
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folder of the page's bundle, and its size."""
    pytest.importorskip("tilus")
    from blackwell_matmul import cli

    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(COMPILE)[1:]) == 0
    folder, *size = shlex.split(SERVED)[-3:]
    return [str(tmp_path / folder), *size]


@contextlib.contextmanager
def serving(layer: list[str]) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes, as torchrun starts them, but that it would end those that are left."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env = os.environ | {"PYTHONPATH": str(ROOT), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    env |= {"CUDA_VISIBLE_DEVICES": "", "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", WITHOUT_TILUS, SERVE, *layer]
    ranks = [
        subprocess.Popen(command, env=env | {"RANK": str(each), "LOCAL_RANK": str(each)}, text=True, **pipes)
        for each in range(2)
    ]
    try:
        yield ranks
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


@pytest.mark.process
@pytest.mark.skipif(not dist.is_gloo_available(), reason="torch was built without gloo")
def test_an_answer_and_a_killed_peer(layer: list[str]) -> None:
    with serving(layer) as ranks:
        print("8", file=ranks[0].stdin, flush=True)
        answer = ranks[0].stdout.readline()
        assert answer.partition("largest")[0] == ANSWER.partition("largest")[0], ranks[0].communicate()[1]
        ranks[1].kill()
        assert ranks[0].wait(timeout=20) == 1  # of the 30 s after which a peer that is silent would be given up
        said = ranks[0].stderr.read()
        pattern = re.sub("stops: [^;]+", "stops: [^;]+", STOPS)
        assert re.search(f"^{pattern}$", said, re.MULTILINE) and "Traceback" not in said, said


def test_a_rank_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert runpy.run_path(SERVE)["own_device"]() == torch.device("cuda:3")
    assert chosen == [torch.device("cuda:3")]
