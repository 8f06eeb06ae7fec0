"""Memory in bytes: addresses, a record of written bytes, and errors for illegal accesses.

The 64-bit generic address space has windows, distinguished by the bits from 40 on. An address in a state space is the
generic address minus the window's base (PTX ISA, "State Spaces"). From bit 24 on, a shared address has its CTA's rank
in the cluster, as on hardware.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator.emulation_listener import EmulationListener
from blackwell_matmul.emulator.lanes import WORDS, Array

WINDOW_BITS = 40
SHARED, LOCAL, PARAM, CODE, GLOBAL = (number << WINDOW_BITS for number in (1, 2, 3, 4, 0x7F))
RANK = 24
"""Lowest bit of a CTA's rank in a shared address."""

ABSENT_RANK = 0xFF
"""Largest rank in a 32-bit shared address; larger ranks are clipped to it, as no cluster has them."""

OFFSET = (1 << RANK) - 1
"""Mask of the bits below the rank: the offset in a CTA's own shared memory."""

RESERVED_BYTES = 1024
"""Bytes of shared memory reserved by the system (CUDA programming guide, "shared memory per block reserved")."""

GUARD_BYTES = 1 << 20
"""Unmapped bytes between two tensors."""


def in_ctas(address: int, ranks: int) -> list[int]:
    """Return the address of the same variable in the shared memory of each CTA of a mask."""
    return [address & OFFSET | rank << RANK for rank in range(16) if ranks >> rank & 1]


class Undefined(EmulationError):
    """Error for undefined behavior; `scheduler` adds the line."""


def _undefined(text: str) -> None:
    raise Undefined(text)


class Memory:
    """A range of bytes. name: for messages. written: for each byte, 1 if it was written; None if all bytes count as
    written. tell: called with a sentence about a read of unwritten bytes; raises or records a note. listener: gets
    accesses."""

    def __init__(self, name: str, base: int, data: Array, tracked: bool = False, written: Array | None = None) -> None:
        self.name, self.base, self.nbytes = name, base, data.size
        self.data = data
        self.written = np.zeros(data.size, np.uint8) if tracked else written
        self.tell: Callable[[str], None] = _undefined
        self.listener: EmulationListener | None = None
        self._views: dict[int, Array] = {}
        self._written: dict[int, Array] = {}
        self._all_written: dict[int, Array] = {}

    def view(self, nbytes: int) -> Array:
        """Return the memory as an array of words. nbytes: size of a word."""
        found = self._views.get(nbytes)
        if found is None:
            found = self._views[nbytes] = _as_words(self.data, nbytes)
        return found

    def places(self, addresses: Array, nbytes: int, what: str) -> Array:
        """Return the index of each word; raise Undefined for an address outside the memory or misaligned."""
        offsets = addresses - np.uint64(self.base)
        low, high = int(offsets.min()), int(offsets.max())
        if high + nbytes > self.nbytes:  # an address below the base has wrapped to a large offset
            bad = int(addresses[int(offsets.argmax())])
            raise Undefined(
                f"{what} {nbytes} bytes at {bad - self.base:+,} of {self.name}, which has {self.nbytes:,} bytes"
            )
        if nbytes > 1 and int(np.bitwise_or.reduce(addresses)) % nbytes:
            bad = int(addresses[(addresses % np.uint64(nbytes)).argmax()])
            raise Undefined(f"{what} {nbytes} bytes at {bad - self.base:,} of {self.name}: no multiple of {nbytes}")
        return (offsets >> np.uint64(nbytes.bit_length() - 1)).view(np.int64) if low >= 0 else offsets

    def load(self, addresses: Array, nbytes: int, what: str = "reads") -> Array:
        """Return a word from each address. nbytes: size of a word."""
        places = self.places(addresses, nbytes, what)
        if self.written is not None:
            self._check(places, nbytes, what)
        return self.view(nbytes)[places]

    def store(self, addresses: Array, values: Array, nbytes: int) -> None:
        """Store a word at each address; for equal addresses the last lane wins. nbytes: size of a word."""
        places = self.places(addresses, nbytes, "writes")
        self.view(nbytes)[places] = values
        if self.written is not None:
            self._marks(nbytes)[places] = _ONES[nbytes]

    def _marks(self, nbytes: int) -> Array:
        found = self._written.get(nbytes)
        if found is None:
            assert self.written is not None
            found = self._written[nbytes] = _as_words(self.written, nbytes)
        return found

    def _check(self, places: Array, nbytes: int, what: str) -> None:
        marks = self._marks(nbytes)[places]
        if nbytes == 16:
            missing = np.flatnonzero((np.ascontiguousarray(marks).view(np.uint64).reshape(-1, 2) != _ONE8).any(axis=1))
        else:
            missing = np.flatnonzero(marks != _ONES[nbytes])
        if missing.size:
            place = int(np.ravel(places)[missing[0]]) * nbytes
            self.tell(f"{what} {nbytes} bytes at {place:,} of {self.name} that nothing has written")

    def all_written(self, chunks: Array) -> bool:
        """Return True if all 16 bytes of each chunk were written. chunks: indices of chunks, in an array that must
        never change. Written bytes stay written, so the answer True is cached for the array."""
        if self._all_written.get(id(chunks)) is chunks:
            return True
        if self.written is None:
            return False
        marks = self._marks(16).view(np.uint64).reshape(-1, 2)
        found = int(chunks.max()) < len(marks) and bool((marks[chunks] == _ONE8).all())
        if found:
            self._all_written[id(chunks)] = chunks
        return found

    def taken_words(self, offsets: Array, nbytes: int) -> Array:
        """Return words as an array, words x bytes. offsets: must be in range and aligned."""
        return _words_at(self.data, offsets, nbytes)

    def unwritten(self, offsets: Array, nbytes: int) -> int:
        """Return the number of unwritten bytes in the words at these offsets. nbytes: size of a word."""
        return 0 if self.written is None else int((_words_at(self.written, offsets, nbytes) == 0).sum())

    def put_words(self, offsets: Array, values: Array) -> None:
        """Store words and mark them as written. values: words x bytes. offsets: must be in range and aligned."""
        nbytes = values.shape[1]
        if nbytes not in WORDS:
            self.data[offsets[:, None] + np.arange(nbytes)] = values
            return
        places = offsets // nbytes
        self.view(nbytes)[places] = np.ascontiguousarray(values).view(WORDS[nbytes])[:, 0]
        if self.written is not None:
            self._marks(nbytes)[places] = _ONES[nbytes]

    def bytes(self, address: int, nbytes: int, what: str = "reads") -> Array:
        """Return a view of contiguous bytes; raise Undefined if they are not all in this memory."""
        offset = address - self.base
        if offset < 0 or offset + nbytes > self.nbytes:
            raise Undefined(f"{what} {nbytes} bytes at {offset:+,} of {self.name}, which has {self.nbytes:,} bytes")
        return self.data[offset : offset + nbytes]

    def hear(self, address: int, nbytes: int, writes: bool) -> None:
        """Report to the listener an access by the operation that completes now."""
        if self.listener is not None:
            told = self.listener.written if writes else self.listener.read
            told(self, np.array([address], np.int64), nbytes)

    def lack(self, text: str) -> None:
        """Report a read of unwritten memory to the listener; raise Undefined without a listener."""
        if self.listener is None:
            raise Undefined(text)
        self.listener.unwritten(text)

    def taken(self, address: int, nbytes: int) -> Array:
        """Return contiguous bytes; call `tell` if a byte was never written."""
        found, start = self.bytes(address, nbytes), address - self.base
        if self.written is not None and not self.written[start : start + nbytes].all():
            self.tell(f"reads {nbytes} bytes at {start:,} of {self.name} that nothing has written")
        return found

    def mark(self, address: int, nbytes: int) -> None:
        """Mark contiguous bytes as written."""
        if self.written is not None:
            self.written[address - self.base : address - self.base + nbytes] = 1


class SharedBank:
    """Shared memory of several CTAs, one after the other. nbytes: of one CTA. step: bytes from one CTA to the next."""

    def __init__(self, ctas: int, shared_bytes: int) -> None:
        self.nbytes = RESERVED_BYTES + shared_bytes
        self.step = -(-self.nbytes // CTA_ALIGNMENT) * CTA_ALIGNMENT
        data = np.full(ctas * self.step, UNWRITTEN_BYTE, np.uint8)
        self.memory = Memory("shared memory", 0, data, tracked=True)

    def verify(self, offsets: Array) -> None:
        """Raise Undefined unless aligned words of up to 16 bytes at these offsets are in the shared memory of one
        CTA."""
        if int(offsets.max()) >= self.nbytes // LONGEST_WORD_BYTES * LONGEST_WORD_BYTES:
            raise Undefined("an address is of another CTA or at the end of shared memory")

    def of(self, number: int, name: str, base: int) -> Memory:
        """Return the shared memory of a CTA. number: of the CTA in the bank. base: its first address."""
        which = slice(number * self.step, number * self.step + self.nbytes)
        assert self.memory.written is not None
        return Memory(name, base, self.memory.data[which], written=self.memory.written[which])


LONGEST_WORD_BYTES = 16
"""Bytes of the longest word of a load or store. An aligned word does not cross a multiple of this size."""

CTA_ALIGNMENT = 1024
"""Alignment in bytes of a CTA's shared memory in a bank; the longest swizzle needs this alignment."""

UNWRITTEN_BYTE = 0xFF
"""Value of unwritten bytes of shared memory; as floats these bytes are NaN."""

_ONE8 = np.uint64(0x0101010101010101)
_ONES: dict[int, Any] = {1: 1, 2: 0x0101, 4: 0x01010101, 8: _ONE8, 16: np.frombuffer(b"\1" * 16, WORDS[16])[0]}


def _as_words(data: Array, nbytes: int) -> Array:
    return data[: data.size // nbytes * nbytes].view(WORDS[nbytes])


def _words_at(data: Array, offsets: Array, nbytes: int) -> Array:
    if nbytes not in WORDS:
        return data[offsets[:, None] + np.arange(nbytes)]
    return _as_words(data, nbytes)[offsets // nbytes].view(np.uint8).reshape(-1, nbytes)


class GlobalSpace:
    """Global memory: the tensors of a launch and the module's variables, with unmapped bytes between them."""

    def __init__(self) -> None:
        self.memories: list[Memory] = []
        self._bases: list[int] = []
        self._next = GLOBAL
        self.listener: EmulationListener | None = None

    def add(self, name: str, data: Array) -> Memory:
        memory = Memory(name, self._next, data)
        memory.listener = self.listener
        self._next += (data.size + GUARD_BYTES) // GUARD_BYTES * GUARD_BYTES + GUARD_BYTES
        self.memories.append(memory)
        self._bases.append(memory.base)
        return memory

    def remove(self, memory: Memory) -> None:
        self._bases.remove(memory.base)
        self.memories.remove(memory)

    def at(self, address: int, what: str = "reads") -> Memory:
        """Return the memory that contains an address; raise Undefined, with the nearest memory, if there is none."""
        index = bisect.bisect_right(self._bases, address) - 1
        if index >= 0 and address < self.memories[index].base + self.memories[index].nbytes:
            return self.memories[index]
        raise Undefined(f"{what} global memory at {address:#x}, which is {self._nearest(address)}")

    def _nearest(self, address: int) -> str:
        def distance(memory: Memory) -> int:
            return memory.base - address if address < memory.base else address - (memory.base + memory.nbytes) + 1

        if not self.memories:
            return "no tensor's"
        nearest = min(self.memories, key=distance)
        side = "in front of" if address < nearest.base else "behind"
        return f"{distance(nearest):,} bytes {side} {nearest.name} ({nearest.nbytes:,} bytes)"

    def split(self, addresses: Array, what: str) -> Iterable[tuple[Memory, Array | slice]]:
        """Return each addressed memory with its lanes; usually one memory and all lanes."""
        low, high = int(addresses.min()), int(addresses.max())
        memory = self.at(low, what)
        if high < memory.base + memory.nbytes:
            return [(memory, slice(None))]
        owners = np.searchsorted(np.array(self._bases, np.uint64), addresses, side="right").astype(np.int64) - 1
        ends = np.array([each.base + each.nbytes for each in self.memories], np.uint64)
        outside = (owners < 0) | (addresses >= ends[owners])
        if outside.any():
            self.at(int(addresses[outside.argmax()]), what)
        return [(self.memories[each], np.flatnonzero(owners == each)) for each in np.unique(owners).tolist()]
