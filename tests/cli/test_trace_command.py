"""`blackwell-matmul trace`."""

import json

import pytest

from blackwell_matmul import cli

SMALL = ["v2", "--size", "256", "256", "256"]


@pytest.mark.parametrize(
    ("ending", "begins"),
    [
        ("html", b"<!doctype html>"), ("svg", b"<svg"), ("json", b'{"traceEvents"'),
        pytest.param("png", b"\x89PNG", marks=pytest.mark.process),  # matplotlib asks for the fonts once
    ],
)  # fmt: skip
def test_the_ending_decides(tmp_path, capsys, ending, begins):
    if ending == "png":
        pytest.importorskip("matplotlib")
    file = tmp_path / f"v2.{ending}"
    assert cli.main(["trace", *SMALL, "-o", str(file)]) == 0
    assert file.read_bytes().startswith(begins)
    assert "predicted, not measured" in " ".join(capsys.readouterr().out.split())


def test_json_says_where_and_what(tmp_path, capsys):
    file = tmp_path / "v2.json"
    words = ["trace", *SMALL, "--target", "sm_103a", "--cycles", "3000", "4000", "-o", str(file), "--json"]
    assert cli.main(words) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["rung"], record["gpu"], record["predicted"], record["file"]) == ("v2", "B300", True, str(file))
    assert record["cycles"] == [3000, 4000]
    events = json.loads(file.read_text())["traceEvents"]
    assert sum(each["ph"] != "M" for each in events) == record["events"] > 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "--output"),
        (["-o", "v2.pdf"], "must end in .html, .json, .svg or .png"),
        (["-o", "v2"], "must end in .html, .json, .svg or .png"),
        (["-o", "nowhere/v2.html"], "a folder that is there"),
        (["-o", "v2.html", "--gpu", "B1000"], "time can be predicted for B200"),
        (["-o", "v2.html", "--cycles", "5", "x"], "END of --cycles"),
        (["-o", "v2.html", "--cycles", "9", "5"], "END more than START"),
        (["-o", "v2.html", "--cycles", "900000", "900001"], "the run is over after"),
        (
            ["-o", "v2.svg", "--cycles", "1", "2"],
            "--cycles is 1 2, where nothing happens; there are events from cycle 2",
        ),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, monkeypatch, capsys, words, why):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["trace", *SMALL, *words]) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert why in text and "Traceback" not in text
    assert not list(tmp_path.iterdir())
