"""Timeline of one SM from the records that a kernel with marks has written (`compiler/marks.py`).

A warp's records are the low halves of the SM's %clock64; its header has the full value. %globaltimer, the only clock of
all SMs, gives the SM's start after the grid's first CTA, and the length of a cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import counted, shown
from blackwell_matmul.simulator.trace.recorded import TimelineEvent
from blackwell_matmul.simulator.trace.recorder import WAITS
from blackwell_matmul.simulator.trace.timeline import Timeline

HEADER_WORDS, RECORD_WORDS = 16, 2
AT_MBARRIER = f"{WAITS}mbarrier"
BARRIER_BYTES = 8


Place = tuple[int, int, int]
"""A CTA's %ctaid."""


class HasMarks(Protocol):
    """Protocol of `compiler.bundle.Marks`."""

    @property
    def events(self) -> int: ...
    @property
    def warps(self) -> int: ...
    @property
    def marks(self) -> Sequence[tuple[str, str, str]]: ...
    @property
    def barriers(self) -> Sequence[tuple[int, str]]: ...


@dataclass(frozen=True)
class WarpRow:
    """Records of one warp. start and end: %globaltimer in ns, and %clock64. records: (n, 2) uint32."""

    warp: int
    sm: int
    cta: Place
    start_ns: int
    start_clock: int
    end_ns: int
    end_clock: int
    records: np.ndarray = field(repr=False)

    @property
    def cycles(self) -> np.ndarray:
        """Return the cycles of each record from the warp's start: clocks only increase, by less than 2**32 between
        records."""
        first = np.uint32(self.start_clock & 0xFFFFFFFF)
        return np.cumsum(np.diff(self.records[:, 0], prepend=first).astype(np.uint32), dtype=np.int64)


def rows(words: np.ndarray, made: HasMarks) -> list[WarpRow]:
    """Return the warps that ran. words: the buffer, as uint32.

    Raises InputError if none did, or one had more records than its row holds.
    """
    size = HEADER_WORDS + RECORD_WORDS * made.events
    if words.size % (size * made.warps):
        wanted = 4 * size * made.warps
        raise InputError(
            f"the buffer of a timeline has {wanted:,} bytes a CTA; this one has {4 * words.size:,} in all."
        )
    table = words.reshape(-1, size)
    ran = np.flatnonzero(table[:, 12])
    if not ran.size:
        raise InputError("the buffer of this timeline is empty: no kernel was launched with it, or none has ended.")
    most = int(table[:, 12].max())
    if most > made.events:
        raise InputError(
            f"a warp had {most:,} records to write and its row holds {made.events:,}; compile with timeline={most}."
        )
    return [_row(int(index) % made.warps, table[index]) for index in ran]


def _row(warp: int, words: np.ndarray) -> WarpRow:
    start_ns, start_clock, _, _, end_ns, end_clock = (int(each) for each in words[:12].view(np.uint64))
    x, y, z = (int(each) for each in words[5:8])
    records = words[HEADER_WORDS : HEADER_WORDS + RECORD_WORDS * int(words[12])].reshape(-1, RECORD_WORDS)
    return WarpRow(warp, int(words[4]), (x, y, z), start_ns, start_clock, end_ns, end_clock, records)


def measured(words: np.ndarray, made: HasMarks, kernel: str, gpu: str, sm: int | None = None) -> Timeline:
    """Return the timeline of one SM's warps, in its cycles from the start of the grid's first CTA.

    sm: its number (None: the one with the most records). Raises InputError as `rows` does, and for an SM that ran none.
    """
    every = rows(words, made)
    number = _sm_of_most(every) if sm is None else sm
    here = [each for each in every if each.sm == number]
    if not here:
        raise InputError(f"no CTA ran on SM {shown(sm)}; SM {_sm_of_most(every)} has the most records.")
    ghz, launched = clock_ghz(every), min(each.start_ns for each in every)
    first = min(here, key=lambda each: each.start_clock)
    zero = first.start_clock - round((first.start_ns - launched) * ghz)
    slots = _slots(here)
    names = {slot: f"slot {slot}: " if any(slots.values()) else "" for slot in slots.values()}
    events = [event for each in here for event in _events(each, names[slots[each.cta]], zero, made)]
    events += _ctas(here, {cta: f"{names[slot]}CTA" for cta, slot in slots.items()}, zero)
    tracks = {f"{names[slot]}CTA": (slot, -1) for slot in names}
    tracks |= {f"{names[slots[each.cta]]}warp {each.warp}": (slots[each.cta], each.warp) for each in here}
    return Timeline(
        kernel, gpu, f"SM {number}, which ran {counted(len(slots), 'CTA')}", ghz,
        0.0, float(max(each.end_clock for each in here) - zero), tuple(sorted(tracks, key=lambda each: tracks[each])),
        tuple(sorted(events, key=lambda each: each.start_cycles)), {line: said for _, line, said in made.marks if line},
        predicted=False, measured=True,
    )  # fmt: skip


def _sm_of_most(every: Sequence[WarpRow]) -> int:
    """Return the first SM with the most records."""
    written: Counter[int] = Counter()
    for each in every:
        written[each.sm] += len(each.records)
    return max(sorted(written), key=lambda number: written[number])


def clock_ghz(found: Sequence[WarpRow]) -> float:
    """Return the SMs' clock in GHz by the warps that ran longest; 1 if no time has passed."""
    ns, cycles = (
        np.array([getattr(each, f"end_{clock}") - getattr(each, f"start_{clock}") for each in found], np.float64)
        for clock in ("ns", "clock")
    )
    longest = ns >= 0.9 * ns.max()
    return float(np.median(cycles[longest] / ns[longest])) if ns.max() > 0 else 1.0


def _spans(here: Sequence[WarpRow]) -> dict[Place, tuple[int, int]]:
    """Return when each CTA's warps ran, by the SM's clock, in the order of their start."""
    spans: dict[Place, tuple[int, int]] = {}
    for each in here:
        start, end = spans.get(each.cta, (each.start_clock, each.end_clock))
        spans[each.cta] = min(start, each.start_clock), max(end, each.end_clock)
    return dict(sorted(spans.items(), key=lambda each: each[1]))


def _slots(here: Sequence[WarpRow]) -> dict[Place, int]:
    """Return, for each CTA, the lowest slot that no other CTA had while it ran."""
    slots: dict[Place, int] = {}
    free_from: list[int] = []
    for cta, (start, end) in _spans(here).items():
        slot = next((i for i, free in enumerate(free_from) if free <= start), len(free_from))
        free_from[slot : slot + 1] = [end]
        slots[cta] = slot
    return slots


def _ctas(here: Sequence[WarpRow], tracks: Mapping[Place, str], zero: int) -> Iterator[TimelineEvent]:
    for cta, (start, end) in _spans(here).items():
        yield TimelineEvent(tracks[cta], f"CTA {cta}", float(start - zero), float(end - zero))


def _events(row: WarpRow, slot: str, zero: int, made: HasMarks) -> Iterator[TimelineEvent]:
    """Yield an event from each mark's begin to its end; a warp's instructions do not overlap."""
    cycles, barriers = row.cycles + (row.start_clock - zero), dict(made.barriers)
    numbers, places = row.records[:, 1] & 0xFFFF, (row.records[:, 1] >> 16) * BARRIER_BYTES
    begun = numbers[0::2]
    if len(numbers) % 2 or (begun % 2 == 0).any() or (numbers[1::2] != begun + 1).any():
        raise InputError(f"the records of warp {row.warp} of CTA {row.cta} are no pairs; give a launch a zero buffer.")
    for i in range(0, len(numbers), 2):
        name, line, _ = made.marks[int(numbers[i]) // 2]
        if name == AT_MBARRIER:
            name = WAITS + barriers.get(int(places[i + 1]), "mbarrier")
        yield TimelineEvent(
            f"{slot}warp {row.warp}", name, float(cycles[i]), float(cycles[i + 1]), line, f"CTA {row.cta}"
        )
