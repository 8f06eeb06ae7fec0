"""Modules under the names that they had before 0.1.0: the same module objects, with a DeprecationWarning.

The old names go with 0.2.0.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, cast

PACKAGE = "blackwell_matmul"

RENAMED = {
    "trials": "jobs",
    "doctor": "cli.doctor",
    "runtime.known_calls": "compiler.entries",
    "harness.bench.nursery": "jobs.fork_server",
    "harness.bench.template": "jobs.fork_server_main",
    "harness.bench.child": "jobs.worker_main",
    "harness.bench.workers": "jobs.worker",
    "tuner.measuring_crews": "tuner.gpu_workers",
    "tuner.predicting_trials": "tuner.predictions",
    "tuner.store": "tuner.tuned",
    "tuner.tuned_contenders": "tuner.tuned",
    "kernels.matmul": "kernels.host.matmul",
    "kernels.forms": "kernels.host.forms",
    "kernels.finishing": "kernels.parts.epilogue",
    "kernels.operands": "kernels.parts.operand",
    "kernels.tiles": "kernels.parts.raster",
    "kernels.ring": "kernels.parts.ring",
    "kernels.blackwell.v7": "kernels.products.blackwell",
    "kernels.hopper.v8": "kernels.products.hopper",
}
"""Old name of a folder or a module to its new one; `PACKAGE` stands before both."""

SPLIT = {
    "": ("base", "hardware", "problem", "harness", "runtime"),
    "frontend": ("frontend.python", "frontend.faults", "frontend.faster", "frontend.messages"),
    "harness": ("harness.calls",),
    "ops": ("ops.distributed",),
    "simulator.semantics": ("simulator.lowering",),
    "simulator.timing": ("simulator.timing.model", "simulator.timing.explain"),
}
"""Old folder to the folders that its modules are in now."""


class OldNames:
    """A finder of `sys.meta_path` and a loader: what it loads is the module of the new name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module that has moved; None for any other."""
        top, _, old = name.partition(".")
        new = moved_to(old) if top == PACKAGE and old else None
        if new is None:
            return None
        warnings.warn(f"{name} is {PACKAGE}.{new} now; the old name goes with 0.2.0", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, cast(Any, self), origin=f"{PACKAGE}.{new}")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the new name; the import system gives it the old name's spec until `exec_module`."""
        module = import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its own spec back: it has been executed."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def moved_to(old: str) -> str | None:
    """Return the new name of the module `old`, both without the package's; None if it has not moved."""
    for before, now in RENAMED.items():
        if old == before or old.startswith(f"{before}."):
            return now + old[len(before) :]
    folder, _, name = old.rpartition(".")
    if folder not in SPLIT or _is_in(folder, name):
        return None
    return next((f"{new}.{name}" for new in SPLIT[folder] if _is_in(new, name)), None)


def _is_in(folder: str, name: str) -> bool:
    """Return whether the package's `folder` has a module or a folder `name`."""
    places = [f"{root}/{folder.replace('.', '/')}" for root in sys.modules[PACKAGE].__path__]
    return PathFinder.find_spec(name, places) is not None


def install() -> None:
    """Add the finder, before those that would load a second copy of a moved folder's files."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, cast(Any, OldNames()))
