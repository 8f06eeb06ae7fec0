"""What the command line offers works from an installed wheel, in a folder that has no checkout beside it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("blackwell_matmul", "pyproject.toml", "README.md", "LICENSE")
OFFLINE = ("--no-deps", "--no-index", "--disable-pip-version-check", "--quiet")

LOADED = """
import blackwell_matmul
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.harness.bench import contenders
from blackwell_matmul.harness import studies_part
assert studies_part.studies() == ()
try:
    contenders.baselines()
except InputError as error:
    assert str(error).startswith("baselines are of blackwell_matmul_studies, which is not here"), error
else:
    raise AssertionError("an installed package has no baselines")
assert blackwell_matmul.__file__.startswith({home!r})
"""

COMMANDS = (
    "bench",
    "check",
    "compile",
    "doctor",
    "emulate",
    "first-light",
    "predict",
    "run",
    "schedules",
    "trace",
    "tune",
    "verify",
)
SIZE = "--size 128 64 64"
SAYS = {
    "--version": "blackwell-matmul",
    f"run v1 {SIZE}": "correct",
    f"check v1 {SIZE}": "clean in 4 orders",
    f"schedules v1 {SIZE}": "> chosen",
    f"predict v1 h7 {SIZE}": "predicted",
    f"trace v1 {SIZE} -o v1.html": "predicted, not measured",
    f"compile v1 {SIZE} -o compiled": "written to",
    f"bench --compile-only --target sm_90a --rungs h1 {SIZE} --out made": "made/bundles",
    "verify gpu": "gpu",
    "doctor": "tilus",
} | {f"{command} --help": f"blackwell-matmul {command}" for command in COMMANDS}
"""What is run, and a word of what it says."""
MAY_SAY_NO = "verify gpu"  # 1: nothing could be verified, as there is no GPU
WRITES = ("v1.html", "compiled/kernel.cubin", "made/bundles")

SAID = """
import contextlib, io, json, runpy, sys
from blackwell_matmul import cli

def said(line):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = cli.main(line.split())
    return code, out.getvalue(), err.getvalue()

if __name__ == "__main__":  # bench's own processes import this file
    commands = [each.name or each.callback.__name__ for each in cli.app.registered_commands]
    print(json.dumps({"commands": commands, **{line: said(line) for line in sys.argv[1:]}}))
    runpy.run_path("loaded.py")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that a wheel of this checkout is installed into."""
    source, home = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, source / part)
    _pip("wheel", "--no-build-isolation", "--wheel-dir", str(source), str(source))
    _pip("install", "--target", str(home), str(next(source.glob("*.whl"))))
    return home


def _pip(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", *words, *OFFLINE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def run(installed: Path, tmp_path: Path):
    """Run Python in another folder, with the installed package alone."""

    def ran(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return ran


def test_type_checkers_may_read_it(installed):
    assert (installed / "blackwell_matmul" / "py.typed").is_file()


def test_every_command_works_and_the_optional_part_is_asked_for(run, installed, tmp_path):
    """All in one process: each would import torch and tilus anew."""
    assert (installed / "bin" / "blackwell-matmul").is_file()
    (tmp_path / "said.py").write_text(SAID)
    (tmp_path / "loaded.py").write_text(LOADED.format(home=str(installed)))
    said = json.loads(run("said.py", *SAYS))
    assert sorted(said.pop("commands")) == sorted(COMMANDS)
    for line, (code, out, err) in said.items():
        assert code <= (line == MAY_SAY_NO) and SAYS[line] in out, (line, out, err)
    assert all((tmp_path / name).exists() for name in WRITES)
    assert "--baselines" in said["bench --help"][1]
