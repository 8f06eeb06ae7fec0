"""The README is true: its Python runs, its commands run, its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXTS = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")

BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
OUTPUTS = [text for language, text in BLOCKS if language == "text"]
COMMANDS = [line.split("  #")[0].strip() for language, text in BLOCKS if language == "sh" for line in text.splitlines()]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command of the README in `folder`, with this checkout's package."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, encoding="utf-8", timeout=300)


def test_there_is_something_to_run() -> None:
    assert SNIPPETS
    assert any(command.startswith("blackwell-matmul ") for command in COMMANDS)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_snippet_runs(number: int, tmp_path: Path) -> None:
    file = tmp_path / f"snippet_{number}.py"  # a real file: tilus reads the source of a script from it
    file.write_text(SNIPPETS[number], encoding="utf-8")
    result = run([sys.executable, str(file)], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_shown_finding_is_what_the_snippet_prints(tmp_path: Path) -> None:
    shown = " ".join(next(text for text in OUTPUTS if text.startswith("error ")).split())
    snippet = next(text for text in SNIPPETS if "class CopyTile" in text)
    file = tmp_path / "copy_tile.py"
    file.write_text(snippet, encoding="utf-8")
    printed = run([sys.executable, str(file)], tmp_path).stdout
    assert " ".join(printed.replace(f"{tmp_path}{os.sep}", "").split()) == shown


def test_shown_check_is_what_the_command_prints(tmp_path: Path) -> None:
    """Each line that is shown; the report has more."""
    (tmp_path / "copy_tile.py").write_text(next(text for text in SNIPPETS if "class CopyTile" in text), "utf-8")
    console = next(text for language, text in BLOCKS if language == "console" and "copy_tile.py" in text)
    command, *shown = console.splitlines()
    result = run([sys.executable, "-m", "blackwell_matmul", *shlex.split(command)[2:]], tmp_path)
    assert result.returncode == 1
    printed = {line.strip() for line in result.stdout.splitlines()}
    assert {line.strip() for line in shown} - {"..."} <= printed


def test_shown_demo_line_is_what_the_demo_prints(tmp_path: Path) -> None:
    """All of it but the error, which depends on random inputs, and the time."""
    shown = next(text for text in OUTPUTS if text.startswith("BlackwellMatmul"))
    printed = run([sys.executable, str(ROOT / "examples" / "matmul_v1.py")], tmp_path).stdout
    stable = re.compile(r"[\d.]+(?=, |x torch| s on)")
    assert stable.sub("#", printed).split() == stable.sub("#", shown).split()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("blackwell-matmul ")])
def test_shell_command_runs(command: str, tmp_path: Path) -> None:
    result = run([sys.executable, "-m", "blackwell_matmul", *shlex.split(command)[1:]], tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr


def test_quick_start_is_two_commands() -> None:
    assert [c for c in COMMANDS if c.startswith("make")] == ["make demo", "make test"]


def test_ci_calls_the_readme_test_command() -> None:
    assert "\nmake test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TEXTS)
def test_relative_links_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r"(?:src|href)=\"([^\"#]+)\"", text)
    relative = [link for link in links if not re.match(r"[a-z]+:", link)]
    missing = [link for link in relative if not (ROOT / link).exists()]
    assert not missing


@pytest.mark.parametrize("name", TEXTS)
def test_named_files_exist(name: str) -> None:
    """A path in backticks that starts at the root is a file or a folder of this project; vN is a rung to come."""
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:blackwell_matmul|examples|tests|docs|bench|tutorials)/[\w./]*)`", text)
    missing = [path for path in paths if "vN" not in path and not (ROOT / path).exists()]
    assert not missing
