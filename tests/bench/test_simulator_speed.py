"""What `bench/simulator_speed.py` takes for a rung; measuring is no test."""

import runpy
import sys
from pathlib import Path

import pytest

from blackwell_matmul.kernels import KERNELS, NAMES

FOLDER = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def known(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from simulator_speed import known

    return known


@pytest.mark.parametrize("name", KERNELS)
def test_any_rung_of_the_ladders_can_be_measured(known, name):
    assert known(name.upper()) == name


def test_another_name_is_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["simulator_speed.py", "--rungs", "v1", "h99"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / "simulator_speed.py"), run_name="__main__")
    assert ended.value.code == f"error: rung is 'h99'; the rungs are {', '.join(NAMES)}."
    assert capsys.readouterr() == ("", "")
