"""Modules under the names that they had before 0.1.0: the same module objects, with a DeprecationWarning.

Version 0.2.0 removes the old names.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

PROJECT = "blackwell_matmul"

FOLDERS = {"trials": "jobs", "doctor": "cli.doctor"}
"""New name of each old top-level folder; the modules inside keep their names."""

RENAMED = {
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
"""New name of each renamed module, by its old name."""

SPLIT = {
    ("", "base."): "digests errors files interrupts one_line processes records strides validation",
    ("", "hardware."): "detect driver gpu_figures gpus",
    ("", "problem."): "elements form",
    ("", "harness."): "testing typed",
    ("", "runtime."): "script",
    ("frontend.", "frontend.python."): "loop_ranges python_names python_operators python_statements",
    ("frontend.", "frontend.faults."): (
        "barrier_slices mma_tiles operand_majors products raw_copies reductions refusals register_layouts "
        "register_slices shared_layouts tilus_arithmetic tilus_compat tma_coordinates wide_views"
    ),
    ("frontend.", "frontend.faster."): "hidet_rules hidet_visits quick_visits",
    ("frontend.", "frontend.messages."): "lacking other_names phrases raised reasons script_reasons written",
    ("harness.", "harness.calls."): "helper_modules host_memory inputs kernel_call user_kernel",
    ("ops.", "ops.distributed."): "exchanges overlap sharding",
    ("simulator.semantics.", "simulator.lowering."): "accumulators context",
    ("simulator.timing.", "simulator.timing.model."): (
        "banks deeper loads occupancy one_sm path sectors servers sm spread timed_engine traffic turns work"
    ),
    ("simulator.timing.", "simulator.timing.explain."): (
        "beside explain_beside explain_idle explain_launch explain_loads explain_threads stages thread_watches what_if"
    ),
}
"""Modules that moved from an old to a new folder, by the pair of folders."""

MOVED = RENAMED | {old + name: new + name for (old, new), names in SPLIT.items() for name in names.split()}


class OldNames:
    """A finder and loader for `sys.meta_path`; loads the module of the new name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return a spec for a module that has moved; None for any other."""
        top, _, old = name.partition(".")
        new = moved_to(old) if top == PROJECT and old else None
        if new is None:
            return None
        warnings.warn(f"{name} is {PROJECT}.{new} now; the old name goes with 0.2.0", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, cast(Any, self), origin=f"{PROJECT}.{new}")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module of the new name. The import system gives it the spec of the old name; `exec_module`
        restores its own."""
        module = import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec. The module was executed under its new name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def moved_to(old: str) -> str | None:
    """Return the new name of a module, without the package's name; None if the module has not moved. old: old name,
    also without the package's."""
    top, dot, rest = old.partition(".")
    return FOLDERS[top] + dot + rest if top in FOLDERS else MOVED.get(old)


def install() -> None:
    """Add the finder before other finders, which would load a second copy of a moved folder's files."""
    if not any(isinstance(finder, OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, cast(Any, OldNames()))
