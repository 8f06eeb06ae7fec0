"""`bench/gpu/explained.py`: its cases are promised something, and its results say what came of it."""

import json
from pathlib import Path

import pytest

from blackwell_matmul.base.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "bench" / "results" / "h100_explained.json"


@pytest.fixture
def explained(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench" / "gpu"))
    import explained

    return explained


@pytest.mark.slow
@pytest.mark.parametrize("name", ["narrow tiles", "h1 to h2", "a needless fence"])
def test_what_is_promised_is_what_the_result_says(explained, name):
    case = next(each for each in explained.CASES if each.name == name)
    row = next(each for each in json.loads(RESULT.read_text())["cases"] if each["case"] == name)
    assert explained.promised(case.bad, case.about) == (row["told"], row["promised"])
    assert (row["promised"] is None) == (name == "a needless fence")


def test_the_result_has_each_case_with_what_was_measured(explained):
    rows = json.loads(RESULT.read_text())["cases"]
    assert [row["case"] for row in rows] == [case.name for case in explained.CASES]
    for row in rows:
        before, after = row["measured_us"]
        assert row["measured"] == pytest.approx(1 - after / before, abs=1e-3)
    apart = sorted(abs(row["promised"] - row["measured"]) for row in rows if row["promised"] is not None)
    assert len(apart) == 14 and apart[6] <= 0.1 < apart[7] and apart[12] <= 0.15 and apart[-1] <= 0.245, (
        "as docs/time.md says"
    )


def test_a_table_is_shown_before_anything_is_measured(explained, capsys):
    explained.show([{"case": "narrow tiles", "promised": 0.43, "predicted": 0.41}])
    assert "narrow tiles" in (shown := capsys.readouterr().out) and "43%" in shown and "-" in shown


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cases": [{"case": "another"}]}'])
def test_a_file_of_something_else_is_refused_in_a_sentence(explained, tmp_path, text):
    (file := tmp_path / "file.json").write_text(text)
    with pytest.raises(InputError, match=r"does not have the cases of this script; its `predict` writes"):
        explained.read(file)
    assert file.read_text() == text


def test_the_result_is_such_a_file(explained):
    assert explained.read(RESULT)["cases"]
