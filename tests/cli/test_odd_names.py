"""Names of files with what a terminal takes for commands, and names that are no text: shown, and never obeyed."""

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from blackwell_matmul import cli
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.cli.views import terminal

KERNEL = """
import tilus, torch
from tilus import float32

class Racy(tilus.Script):
    def __call__(self, x: ~float32, y: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 1
        g_x = self.global_view(x, dtype=float32, shape=[32, 64])
        g_y = self.global_view(y, dtype=float32, shape=[32, 64])
        s = self.shared_tensor(dtype=float32, shape=[32, 64])
        self.copy_async(g_x, s, offsets=[0, 0])  # \x1b[7m
        self.store_global(g_y, self.load_shared(s), offsets=[0, 0])

def example_args(m=64, n=64, k=0):
    return torch.randn(32, 64), torch.empty(32, 64)
"""
NAMES = ["k\x1b[31m\x07<&>.py", os.fsdecode(b"k\xff.py")]


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    """What was printed, once it is known to be harmless."""
    out, err = capsys.readouterr()
    assert {char for char in out + err if not char.isprintable()} <= {"\n"}
    return out + err


@pytest.fixture(params=NAMES, ids=["escapes", "no text"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    file = tmp_path / request.param
    file.write_text(KERNEL)
    return file


@pytest.mark.slow
@pytest.mark.parametrize(("command", "code"), [("check", 1), ("run", 1), ("predict", 0), ("compile", 0)])
def test_results_are_shown(kernel: Path, command: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, f"{kernel}:Racy"]) == code
    assert "Racy" in shown(capsys)


def test_errors_are_shown(kernel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", f"{kernel}:None"]) == 2
    assert "its scripts are Racy" in shown(capsys)
    assert cli.main(["compile", f"{kernel}:Racy", "-o", f"{kernel}/x"]) == 2
    assert "cannot write the bundle to" in shown(capsys)


def test_a_picture_is_xml(kernel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("svg", "html"):
        assert cli.main(["trace", f"{kernel}:Racy", "-o", str(tmp_path / f"\x1b[31m.{ending}")]) == 0
        shown(capsys)
        text = (tmp_path / f"\x1b[31m.{ending}").read_text()
        assert "\x1b" not in text
    root = ElementTree.parse(tmp_path / "\x1b[31m.svg").getroot()
    assert root.tag.endswith("svg")


def test_an_error_is_printable_whatever_it_names() -> None:
    assert str(InputError("cannot read a\x1b[2J\nb\udcff.py.")) == r"cannot read a\x1b[2J\nb\udcff.py."


def test_a_console_shows_lines_and_its_own_colours_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    out = terminal.console()
    with out.capture() as captured:
        out.print("a\x1b[2J\nb", style="red")
    assert captured.get() == "\x1b[31ma\\x1b[2J\x1b[0m\n\x1b[31mb\x1b[0m\n"
