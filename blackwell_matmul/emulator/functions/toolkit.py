"""Device functions of the CUDA toolkit: assert, printf, malloc and free (CUDA C++ programming guide).

Each takes the warp, the lane and the lane's arguments as unsigned integers, and returns an unsigned integer.
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.base.validation import printable
from blackwell_matmul.emulator.instructions.moves import gather, where
from blackwell_matmul.emulator.lanes import LANES
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.spaces import Undefined

HEAP_BYTES = 8 << 20
"""Bytes of memory for malloc (CUDA programming guide, "Heap Memory Allocation"); beyond, malloc returns null."""

HEAP = "memory of malloc"

_LONGEST_STRING = 1 << 16

_PRINTF_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t|L)?([diouxXcsfFeEgGaAp%])")


def _string(warp: WarpState, address: int) -> str:
    """Return the characters at an address, up to a zero byte."""
    ((memory, places, _),) = where(warp, np.array([address], np.uint64), "", "reads")
    start = int(places[0]) - memory.base
    raw = memory.data[start : start + _LONGEST_STRING].tobytes()
    return raw.partition(b"\0")[0].decode(errors="replace")


def assertion(warp: WarpState, lane: int, message: int, file: int, line: int, function: int, size: int) -> int:
    """Raise Undefined with the text of a failed `assert` of CUDA C++ ("Assertion")."""
    texts = []
    for address in (message, file, function):
        try:
            texts.append(printable(_string(warp, address)))
        except Undefined:
            texts.append("")
    what, where_, name = texts
    place = f" at {where_ or 'line'}:{line}" + (f" in {name}" if name else "")
    thread = f"thread {warp.index * LANES + lane} of CTA {warp.cta.index}"
    raise Undefined(f"the assertion{f' `{what}`' if what else ''} fails{place}, in {thread}")


def print_formatted(warp: WarpState, lane: int, format: int, arguments: int) -> int:
    """Print text as C's printf does; return the number of arguments ("Formatted Output")."""
    reader = _Arguments(warp, arguments)
    text = _PRINTF_CONVERSION.sub(reader.converted, _string(warp, format))
    sys.stdout.write(text)
    return reader.count


class _Arguments:
    """Reader of vprintf's arguments in memory, each aligned to its size."""

    def __init__(self, warp: WarpState, address: int) -> None:
        self.warp, self.at, self.count = warp, address, 0

    def take(self, nbytes: int) -> int:
        self.at += -self.at % nbytes
        found = int(gather(self.warp, np.array([self.at], np.uint64), "", nbytes)[0])
        self.at, self.count = self.at + nbytes, self.count + 1
        return found

    def signed(self, nbytes: int) -> int:
        found = self.take(nbytes)
        return found - (found >> 8 * nbytes - 1 << 8 * nbytes)

    def converted(self, found: re.Match[str]) -> str:
        flags, width, precision, length, kind = found.groups()
        if kind == "%":
            return "%"
        width, precision = (str(self.signed(4)) if each == "*" else each for each in (width, precision))
        spec = f"%{flags}{width or ''}{'' if precision is None else '.' + precision}"
        return self.plain(spec, length, kind)

    def plain(self, spec: str, length: str | None, kind: str) -> str:
        nbytes = 8 if length in ("l", "ll", "z", "j", "t") else 4
        if kind == "s":
            return f"{spec}s" % _string(self.warp, self.take(8))
        if kind == "p":
            return f"{spec}s" % hex(self.take(8))
        if kind == "c":
            return f"{spec}s" % chr(self.take(4) & 255)
        if kind in "di":
            return f"{spec}d" % _narrow(self.signed(nbytes), length, True)
        if kind in "ouxX":
            return (spec + kind.replace("u", "d")) % _narrow(self.take(nbytes), length, False)
        value = struct.unpack("<d", self.take(8).to_bytes(8, "little"))[0]
        return f"{spec}s" % value.hex() if kind in "aA" else (spec + kind) % value


def _narrow(value: int, length: str | None, signed: bool) -> int:
    """Return an int cut to the char of %hhd or the short of %hd; unchanged for other lengths."""
    bits = {"hh": 8, "h": 16}.get(length or "")
    if bits is None:
        return value
    low = value & (1 << bits) - 1
    return low - (low >> bits - 1 << bits) if signed else low


def allocate(warp: WarpState, lane: int, nbytes: int) -> int:
    memory = warp.cta.cluster.grid.memory
    used = sum(each.nbytes for each in memory.memories if each.name == HEAP)
    if not nbytes or used + nbytes > HEAP_BYTES:
        return 0
    return int(memory.add(HEAP, np.full(-(-nbytes // 16) * 16, 0x5A, np.uint8)).base)


def release(warp: WarpState, lane: int, address: int) -> int:
    memory = warp.cta.cluster.grid.memory
    found = next((each for each in memory.memories if each.base == address and each.name == HEAP), None)
    if found is not None:
        memory.remove(found)
    elif address:
        raise Undefined(f"frees {address:#x}, which malloc has not returned")
    return 0


TOOLKIT: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "__assertfail": (assertion, (8, 8, 4, 8, 8)),
    "vprintf": (print_formatted, (8, 8)),
    "malloc": (allocate, (8,)),
    "free": (release, (8,)),
}
"""Functions by name, each with the bytes of its arguments."""
