"""`bench/calibrate/first_light.py`: a report becomes a table, and says which figures it measures."""

import csv
import json
from pathlib import Path

import pytest

from blackwell_matmul.hardware.gpu_figures import TIME_FIGURES

FOLDER = Path(__file__).resolve().parents[2] / "bench" / "calibrate"


@pytest.fixture
def calibration(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import first_light

    return first_light


def report(folder, emulated=False, gpu="B200"):
    latency = {
        "what": "mma",
        "parameters": "n",
        "unit": "cycles",
        "spread": 1,
        "figure": "mma_latency_cycles",
        "how": "measured",
    }
    rows = [
        {**latency, "value": value + n, "expected": 136 + n, "held": True}
        for n, value in ((32, 140), (64, 146), (128, 150))
    ]
    row = {"stage": "micro", "item": "mma", "status": "held", "told": "", "rows": rows}
    made = {
        "format": 1,
        "gpu": gpu,
        "sm_count": 148,
        "emulated": emulated,
        "command": "first-light",
        "taken": "today",
        "rows": [row],
    }
    (folder / "report.json").write_text(json.dumps(made))
    return folder / "report.json"


def test_a_report_becomes_a_table_and_moves_its_figures(calibration, tmp_path, capsys):
    file = report(tmp_path)
    assert calibration.main([str(file), str(tmp_path / "out.csv")]) == 0
    told = capsys.readouterr().out
    assert "mma_latency_cycles       beside a measured 136: 146" in told and "3 rows" in told
    lines = list(csv.reader((tmp_path / "out.csv").open()))
    assert lines[0][0].startswith("# B200") and lines[2] == ["mma", "n", "172", "cycles", "1"]
    (change,) = calibration.changes(json.loads(file.read_text()), TIME_FIGURES["B200"])
    assert calibration.replaced(TIME_FIGURES["B200"], [change]).mma_latency_cycles == 146


@pytest.mark.parametrize(
    ("given", "told"), [({"emulated": True}, "was emulated"), ({"gpu": "RTX PRO 6000"}, "no figures of a RTX PRO 6000")]
)
def test_what_is_no_measurement_is_refused(calibration, tmp_path, capsys, given, told):
    assert calibration.main([str(report(tmp_path, **given)), str(tmp_path / "out.csv")]) == 2
    assert told in capsys.readouterr().err
