"""`bench/counters.py` as far as it goes without a GPU: what it asks ncu, what it reads of the answer, the table."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.problem.problem import Problem

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
import counters

PROBLEM = Problem(4096, 4096, 4096)
NCU = """#!{python}
import sys
given = sys.argv[1:]
assert given[given.index("--profile-from-start") + 1] == "off" and given[given.index("--clock-control") + 1] == "none"
assert given[-3:] == ["--inside", "h5", "4096"], given
print("==PROF== Connected")
print('"ID","Kernel Name","Metric Name","Metric Value"')
for number, name in enumerate(given[given.index("--metrics") + 1].split(",")):
    print(f'"0","a_kernel","{{name}}","{{number + 1}},000"')
"""


def fake_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = folder / "ncu"
    program.write_text(text.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.process
def test_ncu_counts_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(tmp_path, monkeypatch, NCU)
    values = {name: 1000 * number for number, name in enumerate(counters.METRICS, 1)}
    assert counters.counted("h5", PROBLEM) == {"kernel": "a_kernel", **values}


@pytest.mark.process
def test_an_ncu_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_ncu(tmp_path, monkeypatch, "#!{python}\nraise SystemExit('ERR_NVGPUCTRPERM')\n")
    with pytest.raises(UnsupportedError, match="ncu failed for h5: ERR_NVGPUCTRPERM"):
        counters.counted("h5", PROBLEM)


def test_without_ncu_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match=r"Counting takes ncu \(Nsight Compute\), which is not on the PATH\."):
        counters.counted("h5", PROBLEM)


def test_the_table() -> None:
    counts = {name: 1_000_000 * number for number, name in enumerate(counters.METRICS, 1)}
    load = {"us": 217.4, "sm_clock_mhz": 1440.0, "power_w": 690.6, "energy_mj": 150.1}
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(counters.table([{"contender": "h5", "problem": str(PROBLEM), **counts, **load}]))
    cells = [cell.strip() for cell in console.export_text().splitlines()[3].split("│")[1:-1]]
    assert cells == [str(PROBLEM), "h5", "1000", "2", "7", "217", "1440", "691", "150"]


def test_a_name_that_stands_for_nothing() -> None:
    with pytest.raises(InputError, match="h9"):
        counters.call_of("h9", PROBLEM)
