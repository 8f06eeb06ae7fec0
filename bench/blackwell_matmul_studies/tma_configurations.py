"""TMA configurations of Triton kernels, from conservative to aggressive, and how a program falls back between them.

TRITON_AGGRESSIVE_TMA=1 asks for the aggressive ones: `configurations` then begins with the largest, and
`first_that_runs` goes down the list until one compiles and runs, which it remembers.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import attribute, said, shown, spelled

SWITCH = "TRITON_AGGRESSIVE_TMA"
Result = TypeVar("Result")


@dataclass(frozen=True)
class TmaConfiguration:
    """block: (M, N, K) of a GEMM, (rows, columns) of a copy."""

    block: tuple[int, ...]
    num_stages: int
    num_warps: int

    @property
    def conservative(self) -> bool:
        """One stage: nothing for the compiler to pipeline. Those known are of 64x64 or twice that."""
        return self.num_stages == 1

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.block))} s{self.num_stages} w{self.num_warps}"

    @classmethod
    def parse(cls, text: str) -> TmaConfiguration:
        """As `str` writes it."""
        found = re.fullmatch(r"(\d+(?:x\d+)+) s([1-9]\d*) w([1-9]\d*)", text, re.ASCII)
        if found is None:
            raise InputError(f"{shown(text)} is no configuration; 64x64x32 s1 w4 (block, stages, warps) is one.")
        return cls(tuple(map(int, found[1].split("x"))), int(found[2]), int(found[3]))


def _all(*texts: str) -> tuple[TmaConfiguration, ...]:
    return tuple(map(TmaConfiguration.parse, texts))


KNOWN: Mapping[str, tuple[TmaConfiguration, ...]] = MappingProxyType(
    {
        "gemm": _all(
            *("64x64x32 s1 w4", "128x64x32 s1 w4", "64x64x64 s2 w4", "128x128x64 s3 w8", "128x128x64 s4 w4"),
            *("128x128x128 s3 w8", "128x256x64 s3 w8", "256x128x64 s3 w8", "128x256x64 s4 w8", "256x256x64 s3 w8"),
            *("256x128x128 s4 w16", "256x256x128 s5 w16"),
        ),
        "copy": _all(
            *("64x64 s1 w4", "64x128 s1 w4", "64x128 s3 w4", "128x128 s4 w8", "128x256 s3 w8", "256x256 s5 w16"),
        ),
    }
)
"""From the most conservative to the most aggressive."""


# --- the fallback


def configurations(kernel: str) -> tuple[TmaConfiguration, ...]:
    """What to try, in this order: all, the largest first, where TRITON_AGGRESSIVE_TMA is 1; else the conservative."""
    if os.environ.get(SWITCH) == "1":
        return KNOWN[kernel][::-1]
    return tuple(each for each in KNOWN[kernel] if each.conservative)[::-1]


_RAN: dict[Hashable, TmaConfiguration] = {}


def first_that_runs(
    key: Hashable, candidates: Sequence[TmaConfiguration], run: Callable[[TmaConfiguration], Result]
) -> Result:
    """What `run` returns for the first candidate for which it does not raise. key: kernel, shapes, device, or whatever
    else decides; a second call with it goes straight to the one that ran. One warning tells what was skipped, and why.

    `run` has to wait for the GPU if a kernel that fails there is to be skipped; a compiler that takes the process with
    it needs a `run` that starts another process.
    """
    remembered = key, tuple(candidates)
    if remembered in _RAN:
        return run(_RAN[remembered])
    skipped: list[str] = []
    for candidate in candidates:
        try:
            result = run(candidate)
        except Exception as error:
            skipped.append(f"{candidate} ({why(error)})")
            continue
        if skipped:
            warnings.warn(f"{candidate} runs, after {', '.join(skipped)} did not.", stacklevel=2)
        _RAN[remembered] = candidate
        return result
    raise UnsupportedError(f"no configuration runs: {', '.join(skipped) or 'there is none to try'}.")


_UNITS = {"shared memory": "bytes of shared memory", "tensor memory": "columns of tensor memory"}
"""And else threads, of a block."""


def why(error: Exception) -> str:
    """What Triton could not do, in a few words: its own are several lines, with the whole PTX below."""
    required, limit, name = (attribute(error, field) for field in ("required", "limit", "name"))
    if required is not None:  # OutOfResources
        return f"it needs {required} {_UNITS.get(str(name), name)}, and this GPU has {limit}"
    fatal = re.search(r"ptxas fatal\s*: (.*?)(?= ptxas |$)", said(error))
    return f"ptxas: {fatal[1].rstrip('.')}" if fatal else spelled(error)


def refused(error: Exception) -> bool:
    """Whether a compiler or a driver said that this configuration is too much, which is no fault of anybody's."""
    return attribute(error, "required") is not None or "ptxas fatal" in said(error)
