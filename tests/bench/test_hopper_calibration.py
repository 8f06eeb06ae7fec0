"""`bench/calibrate/hopper_micro.py` from its kernels to its table, with the emulator in the GPU's place."""

import csv
import functools
from pathlib import Path

import numpy as np
import pytest

from blackwell_matmul.compiler.nvrtc import compile_source

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "calibrate"
SMS, SCALE = 4, 32
"""Of the emulator here: half of the SMs and of the loops, which still take both buffers in turn."""

compiled = functools.cache(compile_source)


@pytest.fixture
def calibration(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import hopper_micro

    monkeypatch.setattr(hopper_micro, "compile_source", compiled)
    monkeypatch.setattr(hopper_micro, "EMULATED_SMS", SMS)
    monkeypatch.setattr(hopper_micro, "EMULATED_SCALE", SCALE)
    return hopper_micro


def table(path):
    with path.open() as file:
        head = file.readline()
        return head, {(row["what"], row["parameters"]): float(row["value"]) for row in csv.DictReader(file)}


@pytest.mark.slow
def test_the_whole_way_on_a_cpu(calibration, tmp_path, capsys):
    out = tmp_path / "micro.csv"
    assert calibration.main([str(out), "--emulate", "--only", "barriers,plain_loads,tma_stores"]) == 0
    head, rows = table(out)
    assert head.startswith(f"# emulator, {SMS} SMs") and "cycles of the SM" in head
    assert rows["mbarrier.arrive and try_wait", "one thread"] > rows["mbarrier.arrive", "one thread"] > 0
    assert rows["bar.sync", "384 threads"] > rows["bar.sync", "64 threads"] > 0
    assert rows["TMA store till written", "64 rows of 128 bytes, one SM"] > 0
    assert "barriers: " in capsys.readouterr().out


@pytest.mark.slow
def test_a_measurement_that_fails_leaves_the_others(calibration, monkeypatch, tmp_path, capsys):
    def broken(bench):
        yield calibration.measure("one", "", [1, 2, 3], "cycles")
        raise RuntimeError("no such luck")

    started = []
    monkeypatch.setattr(calibration, "MEASUREMENTS", (broken, calibration.plain_loads))
    monkeypatch.setattr(calibration, "_child", lambda command: started.append(command) or 0)
    out = tmp_path / "micro.csv"
    assert calibration.main([str(out), "--emulate"]) == 1
    assert table(out)[1] == {("one", ""): 2}
    (command,) = started
    assert command[command.index("--only") + 1] == "plain_loads" and "--append" in command
    assert "broken failed: no such luck" in capsys.readouterr().out


def test_a_row_is_a_median_with_its_spread(calibration):
    found = calibration.measure("wgmma", "n=64", np.arange(11), "cycles")
    assert (found.value, found.spread) == (5, 8)


def test_ctas_one_after_another_on_an_sm(calibration):
    launch = np.array([[0, 0, 100, 200], [1, 0, 90, 190], [0, 0, 230, 330], [1, 0, 260, 360]])
    assert list(calibration._gaps(launch)) == [30, 70]
