"""The example on the page on several GPUs is executed, and prints what it says."""

from __future__ import annotations

import contextlib
import multiprocessing
import re
import sys
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "parallel.md").read_text()
((CODE, PRINTED),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)

CONTEXT = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")


@pytest.mark.process
@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="torch was built without gloo")
def test_the_page_runs(tmp_path: Path) -> None:
    """In a process of its own, which may start gloo, and has imported what this one has."""
    printed = tmp_path / "printed"
    page = CONTEXT.Process(target=run_into, args=(printed,))
    page.start()
    page.join()
    assert page.exitcode == 0 and printed.read_text() == PRINTED


def run_into(printed: Path) -> None:
    with printed.open("w") as out, contextlib.redirect_stdout(out):
        exec(CODE, {"__name__": "__main__"})
