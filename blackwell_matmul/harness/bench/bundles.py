"""Kernels compiled ahead, in a folder that can be copied to the machine with the GPU. That machine compiles nothing.

`index.json` has a bundle and its schedule for each kernel, pins and problem. Several problems may share a bundle, as no
kernel is compiled for one m. An index is ignored if the sources of this package have changed since.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.digests import code_digest, digest
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_json
from blackwell_matmul.base.records import content_of, parsed
from blackwell_matmul.base.validation import plain_values
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.contenders import Contender
from blackwell_matmul.harness.calls.user_kernel import find
from blackwell_matmul.problem.problem import OF_THE_PROBLEM, Problem

if TYPE_CHECKING:
    from blackwell_matmul.harness.calls.kernel_call import KernelCall

INDEX = "index.json"


def key(contender: Contender, problem: Problem) -> str:
    """Return the index key of a bundle. The key of a user's kernel has a digest of its file."""
    name = contender.source.rpartition(":")[2]
    return " ".join(filter(None, (name, _content(contender), contender.pins, str(problem))))


def code_of(contender: Contender) -> str:
    """Return a text that changes with the code of a contender: digests of this package and of its file, and its
    pins."""
    package = code_digest() if contender.kind == "kernel" else ""
    return " ".join(filter(None, (package, contender.pins, _content(contender))))


def _content(contender: Contender) -> str:
    path = Path(contender.source.rpartition(":")[0])
    return digest(path.read_bytes())[:8] if path.is_file() else ""


class Index:
    """Index of the bundles in a folder."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder, self._target = folder, target
        self._entries = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            found = parsed(content_of(self.folder / INDEX))
            fits = found["stamp"] == code_digest() and found["target"] == self._target
            return dict(found["bundles"]) if fits else {}
        except (ValueError, KeyError, TypeError):
            return {}

    def find(self, contender: Contender, problem: Problem) -> dict[str, Any] | None:
        """Return the index entry of a bundle, with its whole path; None if the bundle is not compiled."""
        entry = self._entries.get(key(contender, problem))
        if entry is None or not (self.folder / entry["folder"]).is_dir():
            return None
        return {**entry, "folder": str(self.folder / entry["folder"])}

    def add(self, contender: Contender, problem: Problem, entry: Mapping[str, Any]) -> None:
        self._entries[key(contender, problem)] = dict(entry)

    def save(self) -> None:
        record = {"stamp": code_digest(), "target": self._target, "bundles": self._entries}
        write_json(self.folder / INDEX, record)


def compile_into(folder: Path, contender: Contender, problem: Problem, gpu: Gpu) -> dict[str, Any]:
    """Compile a kernel with the schedule that a call on this GPU would use; return the index entry."""
    from blackwell_matmul.compiler import compile
    from blackwell_matmul.harness.calls.kernel_call import resolve  # loads torch

    found = find(contender.source)
    if found.example_args is not None:
        raise InputError(f"{found.name} has example_args and is no matmul; bench times C = A @ B.T.")
    call = resolve(found, (problem,), schedule=contender.pins)
    with call.kernel.loaded():
        chosen = _schedule(call, gpu)
        bundle = compile(call.script, *call.arguments, schedule=chosen or None, target=gpu.arch)
    place = bundle.key[:24]
    bundle.save(folder / place)
    names = list(inspect.signature(call.script.__call__).parameters)[1:]
    places = [names.index(parameter.name) for parameter in bundle.plan.parameters]
    schedule = {name: value for name, value in plain_values(bundle.schedule).items() if name not in OF_THE_PROBLEM}
    return {"folder": place, "places": places, "schedule": schedule}


def _schedule(call: KernelCall, gpu: Gpu) -> Mapping[str, object]:
    complete = getattr(call.script, "complete", None)
    if complete is None:
        return call.pins
    takes_gpu = "gpu" in inspect.signature(complete).parameters
    told = {"gpu": gpu} if takes_gpu else {}
    chosen: Mapping[str, object] = complete(call.pins, call.with_defaults(), gpu.arch, **told)
    return chosen


def described(gpu: Gpu) -> dict[str, Any]:
    """Return a GPU as a dict for JSON."""
    return {**asdict(gpu), "features": sorted(gpu.features)}


def gpu_of(description: Mapping[str, Any]) -> Gpu:
    major, minor = description["compute_capability"]
    features = frozenset(description["features"])
    return Gpu(**{**description, "compute_capability": (major, minor), "features": features})
