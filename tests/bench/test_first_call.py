"""What bench/first_call.py says where there is nothing to measure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import first_call


def test_a_pack_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(first_call.main)
    found = CliRunner().invoke(app, [str(tmp_path / "none.zip")])
    assert found.exit_code == 2 and "does not exist" in found.output and "Traceback" not in found.output


@pytest.mark.process
def test_a_command_that_has_said_why_it_fails_ends_the_script(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="3"):
        first_call.output(["-c", "raise SystemExit(3)"], tmp_path)
    assert first_call.output(["-c", "print('[7]')"], tmp_path) == [7]
