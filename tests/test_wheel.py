"""What the command line offers works from an installed wheel, in a folder that has no checkout beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("blackwell_matmul", "pyproject.toml", "README.md", "LICENSE")
OFFLINE = ("--no-deps", "--no-index", "--disable-pip-version-check", "--quiet")

LOADED = """
import blackwell_matmul
from blackwell_matmul.harness.bench import contenders
from blackwell_matmul.studies import STUDIES, mutation, trials_of
assert all(trials_of(study)(True) for study in STUDIES)
assert all(contenders.named(name).source.startswith({home!r}) for name in contenders.BASELINE_FILES)
assert callable(contenders.make_call(contenders.named("torch.compile"), None, None))
assert {{mutation.kernel(name).__module__.partition(".")[0] for name in mutation.KERNELS}} == {{"blackwell_matmul"}}
assert blackwell_matmul.__file__.startswith({home!r})
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


def test_the_command_line_says_what_it_offers(run, installed):
    assert (installed / "bin" / "blackwell-matmul").is_file()
    assert "--baselines" in run("-m", "blackwell_matmul", "bench", "--help")


def test_a_rung_runs(run):
    assert "correct" in run("-m", "blackwell_matmul", "run", "v1", "--size", "256", "256", "128")


def test_studies_baselines_and_mutated_kernels_load(run, installed):
    run("-c", LOADED.format(home=str(installed)))
