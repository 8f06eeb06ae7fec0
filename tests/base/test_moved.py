"""Modules under the names that they had before 0.1.0."""

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import blackwell_matmul
from blackwell_matmul.base.moved import FOLDERS, MOVED, moved_to

OLD = {
    "errors": "base.errors",
    "gpus": "hardware.gpus",
    "form": "problem.form",
    "testing": "harness.testing",
    "script": "runtime.script",
    "trials.row_file": "jobs.row_file",
    "harness.bench.workers": "jobs.worker",
    "tuner.store": "tuner.tuned",
    "frontend.tilus_compat": "frontend.faults.tilus_compat",
    "harness.user_kernel": "harness.calls.user_kernel",
    "kernels.finishing": "kernels.parts.epilogue",
    "kernels.blackwell.v7": "kernels.products.blackwell",
    "simulator.timing.loads": "simulator.timing.model.loads",
}


@pytest.mark.parametrize("old", OLD)
def test_an_old_name_is_the_module_of_the_new_name(old: str) -> None:
    with pytest.warns(DeprecationWarning, match="goes with 0.2.0"):
        sys.modules.pop(f"blackwell_matmul.{old}", None)
        found = importlib.import_module(f"blackwell_matmul.{old}")
    new = importlib.import_module(f"blackwell_matmul.{OLD[old]}")
    assert found is new
    assert new.__spec__ is not None and new.__spec__.name == new.__name__ == f"blackwell_matmul.{OLD[old]}"


@pytest.mark.parametrize("name", ["problem", "frontend.bind", "kernels", "nowhere", "frontend.nowhere"])
def test_other_names_are_left_alone(name: str) -> None:
    assert moved_to(name) is None


@pytest.mark.process
def test_a_moved_folder_is_not_loaded_twice() -> None:
    code = (
        "from blackwell_matmul.trials.row_file import RowFile as old; "
        "from blackwell_matmul.jobs.row_file import RowFile as new; assert old is new"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("old", "new"), [*FOLDERS.items(), *MOVED.items()])
def test_each_new_name_is_a_module_and_no_old_name_is_taken(old: str, new: str) -> None:
    assert importlib.util.find_spec(f"blackwell_matmul.{new}") is not None
    place = Path(blackwell_matmul.__path__[0]) / old.replace(".", "/")
    assert not place.exists() and not place.with_suffix(".py").exists()
