"""Host memory that a simulated run needs, and memory that is available to this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.harness.verdict import BLOCK_ELEMENT_BYTES, BLOCK_ELEMENTS
from blackwell_matmul.problem.problem import Problem

MARGIN = 1.3
"""Ratio of measured peak memory to `run_bytes`, for the kernel "v1" with a large A, B or C."""


def require_memory(problem: Problem) -> None:
    """Raise InputError if a run of this problem needs more memory than is available."""
    need_bytes, have_bytes = MARGIN * run_bytes(problem), available_bytes()
    if have_bytes is not None and need_bytes > have_bytes:
        raise InputError(
            f"{problem} takes about {need_bytes / 2**30:.4g} GiB, with the simulator's copies and the check, and this "
            f"machine has {have_bytes / 2**30:.4g} GiB left; choose a smaller size."
        )


def run_bytes(problem: Problem) -> int:
    """Return the estimated peak of host memory in a run: A, B and C, and the largest need of its three steps.

    The steps generate operands, simulate, and check.
    """
    return problem.bytes + max(_made(problem), _simulated(problem), _checked(problem))


def _elements(problem: Problem) -> tuple[int, int]:
    """Return the number of elements of A and of B, in all batches."""
    a = problem.m * (problem.batches if problem.form.a_batched else 1)
    b = problem.n * (problem.batches if problem.form.b_batched else 1)
    return a * problem.k, b * problem.k


def _made(problem: Problem) -> int:
    """Return the bytes of the larger operand in fp32, from which the operand is converted."""
    return 4 * max(_elements(problem))


def _simulated(problem: Problem) -> int:
    """Return the bytes that a simulation needs: A and B in fp32, and a C that processes share."""
    return 4 * sum(_elements(problem)) + problem.c_bytes * problem.batches * problem.m * problem.columns


def _checked(problem: Problem) -> int:
    """Return the bytes that a check needs: B in float64, and the largest of a second B, a block of A, and a block of
    C."""
    rows = min(problem.m, max(1, BLOCK_ELEMENTS // problem.columns))
    of_b = 8 * problem.n * problem.k
    return of_b + max(of_b, 8 * rows * problem.k, BLOCK_ELEMENT_BYTES * rows * problem.columns)


# --- available memory


def available_bytes(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the available bytes of the machine and of this process's control groups (containers); None if unknown."""
    found = _of_the_machine(proc), *_of_groups(proc, groups)
    return min((each for each in found if each is not None), default=None)


def _of_the_machine(proc: Path) -> int | None:
    """Return the bytes that are available without swapping, on Linux; elsewhere all bytes of the machine."""
    left = _fields(proc / "meminfo").get("MemAvailable:")
    if left is not None:
        return left * 1024
    with suppress(AttributeError, OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _of_groups(proc: Path, groups: Path) -> Iterator[int]:
    """Yield the available bytes of each control group of this process: its limit, minus its use, plus reclaimable file
    pages (Linux, "Control Group v2: memory.max", and v1, "memory.limit_in_bytes"). A limit covers all groups below.
    """
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        version = 1 if "memory" in controllers.split(",") else 2
        if version == 1 or not controllers:
            for each in (PurePosixPath(path), *PurePosixPath(path).parents):
                inside = groups / "memory" if version == 1 else groups
                yield from _of_group(inside / str(each).lstrip("/"), version)


_FILES = {1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
          2: ("memory.max", "memory.current", "inactive_file")}  # fmt: skip


def _of_group(folder: Path, version: int) -> Iterator[int]:
    limit, used, of_files = _FILES[version]
    most, taken = "".join(_lines(folder / limit)), "".join(_lines(folder / used))
    if most.isdigit() and taken.isdigit():
        yield max(0, int(most) - int(taken) + _fields(folder / "memory.stat").get(of_files, 0))


def _fields(file: Path) -> dict[str, int]:
    """Return the number in the second word of each line, by the first word."""
    words = (line.split() for line in _lines(file))
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _lines(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text().splitlines()
    return []
