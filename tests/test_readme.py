"""The README and the pages that go on from it are true: their Python and their commands run, their links lead on."""

from __future__ import annotations

import os
import re
import runpy
import shlex
from pathlib import Path

import pytest

from blackwell_matmul import cli

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
GUIDES = ("README.md", "docs/command_line.md", "docs/checking.md")
TEXTS = sorted(path.relative_to(ROOT).as_posix() for folder in (ROOT, ROOT / "docs") for path in folder.glob("*.md"))

PROSE = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in GUIDES)
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PROSE, flags=re.MULTILINE | re.DOTALL)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
OUTPUTS = [text for language, text in BLOCKS if language == "text"]
LINES = [line.split("  #")[0].strip() for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
COMMANDS = list(dict.fromkeys(LINES))


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_there_is_something_to_run() -> None:
    assert SNIPPETS
    assert any(command.startswith("blackwell-matmul ") for command in COMMANDS)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_python_snippet_runs_and_prints_the_finding_that_is_shown(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = " ".join(next(text for text in OUTPUTS if text.startswith("error ")).split())
    file = tmp_path / "copy_tile.py"  # a real file: tilus reads the source of a script from it
    file.write_text(SNIPPETS[number], encoding="utf-8")
    runpy.run_path(str(file), run_name="__main__")
    printed = capsys.readouterr().out.replace(f"{tmp_path}{os.sep}", "")
    if "class CopyTile" in SNIPPETS[number]:
        assert " ".join(printed.split()) == shown


def test_the_picture_of_the_rooms_is_as_wide_as_its_page() -> None:
    root = (ROOT / "docs" / "rooms.svg").read_text(encoding="utf-8").partition(">")[0]
    assert 'viewBox="0 0 880 520"' in root and 'width="100%"' in root and "height=" not in root


def test_shown_check_is_what_the_command_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each line that is shown; the report has more."""
    (tmp_path / "copy_tile.py").write_text(next(text for text in SNIPPETS if "class CopyTile" in text), "utf-8")
    console = next(text for language, text in BLOCKS if language == "console" and "copy_tile.py" in text)
    command, *shown = console.splitlines()
    assert cli.main(shlex.split(command)[2:]) == 1
    printed = {line.strip() for line in capsys.readouterr().out.splitlines()}
    assert {line.strip() for line in shown} - {"..."} <= printed


def test_shown_demo_line_is_what_the_demo_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """All of it but the error, which depends on random inputs, and the time."""
    shown = next(text for text in OUTPUTS if text.startswith("BlackwellMatmul"))
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(ROOT / "examples" / "matmul_v1.py"), run_name="__main__")
    printed, err = capsys.readouterr()
    assert err == ""
    stable = re.compile(r"[\d.]+(?=, |x torch| s on)")
    assert stable.sub("#", printed).split() == stable.sub("#", shown).split()


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("blackwell-matmul ")])
def test_shell_command_runs(command: str) -> None:
    assert cli.main(shlex.split(command)[1:]) == 0


def test_quick_start_is_two_commands() -> None:
    assert [c for c in COMMANDS if c.startswith("make")] == ["make demo", "make test"]


def test_ci_calls_the_readme_test_command() -> None:
    assert "\nmake test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_public_ci_calls_the_same() -> None:
    assert "      - run: .ci/run\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "expected"), [("blackwell-matmul sche", "schedules"), ("blackwell-matmul run --po", "--policy")]
)
def test_completion_knows_commands_and_options(
    words: str, expected: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    monkeypatch.setenv("_BLACKWELL_MATMUL_COMPLETE", "complete_bash")
    cli.main([])
    assert capsys.readouterr().out.split() == [expected]


@pytest.mark.parametrize("name", TEXTS)
def test_relative_links_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r"(?:src|href)=\"([^\"#]+)\"", text)
    relative = [link for link in links if not re.match(r"[a-z]+:", link)]
    missing = [link for link in relative if not (ROOT / name).parent.joinpath(link).exists()]
    assert not missing


@pytest.mark.parametrize("name", TEXTS)
def test_links_lead_to_headings(name: str) -> None:
    """Those to a place in a page: `page.md#heading`, or `#heading` of the same page."""
    for file, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", (ROOT / name).read_text(encoding="utf-8")):
        page = (ROOT / name).parent / file if file else ROOT / name
        titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        headings = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert anchor in headings, f"{file}#{anchor}"


def test_the_readme_and_the_notes_of_a_release_are_short() -> None:
    """At most 900 words, and 800 for each release, as docs/release.md says."""
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900
    releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(releases) >= 2 and all(len(release.split()) <= 800 for release in releases)


@pytest.mark.parametrize("name", TEXTS)
def test_named_files_exist(name: str) -> None:
    """A path in backticks that starts at the root is a file or a folder of this project; vN is a rung to come."""
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:blackwell_matmul|examples|tests|docs|bench|tutorials)/[\w./]*)`", text)
    missing = [path for path in paths if "vN" not in path and not (ROOT / path).exists()]
    assert not missing
