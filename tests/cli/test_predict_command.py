"""`blackwell-matmul predict`."""

import json

import pytest

from blackwell_matmul import cli


@pytest.mark.slow
def test_a_row_for_each_kernel_and_what_holds_it(capsys):
    assert cli.main(["predict", "v0", "v3", "--size", "1024", "1024", "2048"]) == 0
    shown = capsys.readouterr().out
    assert "predicted for B200, not measured" in shown
    lines = shown.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["v0", "v3"]
    text = " ".join(shown.split())
    assert (
        "those of all 148 SMs multiply, on average" in text
        and "about one SM that has work. v0: the tensor core" in text
    )


def test_without_a_gpu_it_is_the_one_that_the_kernel_is_for(capsys):
    assert cli.main(["predict", "v2", "h2", "--size", "256", "256", "256"]) == 0
    shown = capsys.readouterr().out
    assert "predicted for B200, H200, not measured" in shown and "h2 (H200)" in shown
    assert cli.main(["predict", "h2", "--size", "256", "256", "256", "--target", "sm_90a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predictions"][0]["gpu"] == "H200"


def test_json_says_that_it_is_predicted(capsys):
    assert cli.main(["predict", "v2", "--size", "512", "512", "512", "--gpu", "b300", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["predicted"]
    (found,) = record["predictions"]
    assert (found["rung"], found["gpu"], found["predicted"]) == ("v2", "B300", True)
    assert found["cycles"] > 1000


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["v2", "--gpu", "B1000"], "time can be predicted for B200"),
        (["v9"], "the rungs are v0"),
        (["v2", "--size", "0", "1", "1"], "m"),
        (["h5", "--gpu", "B200"], "no wgmma instructions; H100 and H200 have them"),
        (["v2", "--target", "3"], "target is '3'; time can be predicted for B200, B300"),
        (["v2", "--gpu", "sm_80"], "gpu is 'sm_80'; time can be predicted for B200, B300"),
        (["v2", "--target", "sm_80"], "target is 'sm_80'; time can be predicted for B200, B300"),
        (["v2", "--target", "sm_100a", "--gpu", "B200"], "--gpu and --target name the same thing"),
    ],
)
def test_bad_input_is_one_sentence(capsys, words, why):
    assert cli.main(["predict", *words]) == 2
    told = capsys.readouterr().err
    assert why in " ".join(told.split())
