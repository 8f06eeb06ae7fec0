"""Shared libraries that a program loads as CUDA's, built from `host.c` by the machine's C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.emulator.cuda_runtime.entry_points import ENTRY_POINTS

SOURCE, FOR_PYTHON, FOR_TORCH = (Path(__file__).with_name(name) for name in ("host.c", "for_python.py", "for_torch.py"))
DRIVER = "libcuda.so.1"
RUNTIMES = tuple(f"libcudart.so.{version}" for version in ("11.0", "12", "13"))
"""File names of the CUDA runtime. Each version is a library of its own, as its symbols contain the version."""

SUFFIXES = ("_v2", "_v3", "_v4", "_ptsz", "_ptds", "_v2_ptsz", "_v2_ptds")
"""Suffixes of entry points: newer versions, and variants for per-thread streams. All act alike here."""


def build(folder: Path) -> None:
    """Build the libraries in a folder; raise UnsupportedError, one sentence, if there is no C compiler."""
    shutil.copy(FOR_PYTHON, folder / "sitecustomize.py")
    shutil.copy(FOR_TORCH, folder)
    (folder / "entries.h").write_text(_entries())
    (folder / "runtime").mkdir()
    (folder / "runtime" / "entries.h").write_text(_entries(of_runtime=True))
    _compile(folder / DRIVER, folder, ["-DDRIVER", f"-Wl,-soname,{DRIVER}"])
    (folder / "libcuda.so").symlink_to(DRIVER)
    _compile(folder / "runtime.o", folder / "runtime", ["-c"])
    for name in RUNTIMES:
        (folder / "versions").write_text(f"{name} {{ *; }};")
        options = ["-nostartfiles", f"-Wl,--version-script={folder / 'versions'}", f"-Wl,-rpath,{folder}"]
        parts = [str(folder / "runtime.o"), str(folder / DRIVER)]
        _run(["-shared", "-o", str(folder / name), f"-Wl,-soname,{name}", *parts, *options])
    (folder / "libcudart.so").symlink_to(RUNTIMES[-1])


def _compiler() -> str:
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        found = name and shutil.which(name)
        if found:
            return found
    raise UnsupportedError(
        "CUDA's entry points are built by a C compiler, and this machine has no cc, gcc or clang on PATH; install one, "
        "or give the PTX to blackwell_matmul.emulate."
    )


def _compile(target: Path, headers: Path, options: Sequence[str]) -> None:
    _run([str(SOURCE), f"-I{headers}", "-o", str(target), *options, *([] if "-c" in options else ["-shared"])])


def _run(arguments: Sequence[str]) -> None:
    command = [_compiler(), "-fPIC", "-w", "-pthread", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
        raise UnsupportedError(f"{command[0]} does not build CUDA's entry points: {why}.")


def _entries(of_runtime: bool = False) -> str:
    """Return C code for the entry points: functions, aliases, and the driver's table."""
    numbers = {each.name: number for number, each in enumerate(ENTRY_POINTS) if ("cuda" in each.name) == of_runtime}
    of = {f"{name}{suffix}": name for name in numbers for suffix in SUFFIXES} | {f"_{name}": name for name in numbers}
    others = {other: name for other, name in of.items() if other not in numbers}
    lines = [f"ENTRY({number}, {name})" for name, number in numbers.items()]
    lines += [f"ALIAS({other}, {name})" for other, name in others.items()]
    return "\n".join([*lines, f"#define PLACES {' '.join(f'PLACE({each})' for each in (*numbers, *others))}", ""])
