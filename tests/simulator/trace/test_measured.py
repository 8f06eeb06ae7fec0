"""Buffers that kernels with marks write, made by hand (`simulator/trace/measured.py`), and both kinds of timeline in
one.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler.bundle import Marks
from blackwell_matmul.simulator.trace.measured import HEADER_WORDS, clock_ghz, measured, rows
from blackwell_matmul.simulator.trace.recorded import BarrierState, TimelineEvent
from blackwell_matmul.simulator.trace.timeline import Timeline
from blackwell_matmul.simulator.trace.timeline_page import as_html
from blackwell_matmul.simulator.trace.timeline_style import kind_of
from blackwell_matmul.simulator.trace.timeline_svg import as_svg

MADE = Marks(
    events=4,
    warps=2,
    marks=(("wgmma.mma_async", "k.py:7", "mma()"), ("waits for mbarrier", "k.py:9", "wait()")),
    barriers=((1024, "full[0]"), (1032, "full[1]")),
)
WRAPPED = (5 << 32) - 100
"""A clock whose low half is about to begin anew."""


def row(
    cta: int, sm: int, ns: tuple[int, int], clock: tuple[int, int], *records: tuple[int, int], count: int | None = None
) -> np.ndarray:
    """A header, then the clock and the number of each record."""
    words = np.zeros(HEADER_WORDS + 2 * MADE.events, np.uint32)
    words[0:4].view(np.uint64)[:] = ns[0], clock[0]
    words[4:8] = sm, cta, 0, 0
    words[8:12].view(np.uint64)[:] = ns[1], clock[1]
    words[12] = len(records) if count is None else count
    for index, (at, number) in enumerate(records):
        words[HEADER_WORDS + 2 * index :][:2] = at & 0xFFFFFFFF, number
    return words


NOTHING = np.zeros(HEADER_WORDS + 2 * MADE.events, np.uint32)


def two_sms() -> np.ndarray:
    """SM 3 begins 100 ns after SM 8, at 2 cycles a ns; the second CTA of SM 8 takes the place of the first."""
    late = row(0, 3, (1100, 2100), (WRAPPED, WRAPPED + 2000), (WRAPPED + 50, 1), (WRAPPED + 150, 2))
    wait = (129 << 16) + 4
    first = row(1, 8, (1000, 2000), (40, 2040), (60, 3), (90, wait), (100, 1), (120, 2))
    second = row(2, 8, (2100, 2600), (2240, 3240), (2250, 1), (2260, 2))
    beside = row(3, 8, (1000, 2600), (40, 3240), (70, 1), (80, 2))
    return np.concatenate([late, NOTHING, first, NOTHING, second, NOTHING, beside, NOTHING])


def test_rows_are_those_that_were_written() -> None:
    found = rows(two_sms(), MADE)
    assert [(each.warp, each.sm, each.cta) for each in found] == [
        (0, 3, (0, 0, 0)), (0, 8, (1, 0, 0)), (0, 8, (2, 0, 0)), (0, 8, (3, 0, 0)),
    ]  # fmt: skip
    assert found[0].cycles.tolist() == [50, 150], "the low half of the clock begins anew between them"
    assert clock_ghz(found) == 2.0


def test_the_sm_with_the_most_records_is_shown_with_its_slots() -> None:
    found = measured(two_sms(), MADE, "K", "H200")
    assert found.title == "K, H200: measured" and found.part == "SM 8, which ran 3 CTAs" and found.ghz == 2.0
    assert found.tracks == ("slot 0: CTA", "slot 0: warp 0", "slot 1: CTA", "slot 1: warp 0")
    assert found.sources == {
        "k.py:7": "mma()",
        "k.py:9": "wait()",
    }
    ctas = {each.name: (each.track, each.start_cycles, each.end_cycles) for each in found.events if not each.line}
    assert ctas == {
        "CTA (1, 0, 0)": ("slot 0: CTA", 0, 2000),
        "CTA (2, 0, 0)": ("slot 0: CTA", 2200, 3200),
        "CTA (3, 0, 0)": ("slot 1: CTA", 0, 3200),
    }
    assert [astuple(each) for each in found.events if each.line] == [
        ("slot 0: warp 0", "waits for full[1]", 20, 50, "k.py:9", "CTA (1, 0, 0)"),
        ("slot 1: warp 0", "wgmma.mma_async", 30, 40, "k.py:7", "CTA (3, 0, 0)"),
        ("slot 0: warp 0", "wgmma.mma_async", 60, 80, "k.py:7", "CTA (1, 0, 0)"),
        ("slot 0: warp 0", "wgmma.mma_async", 2210, 2220, "k.py:7", "CTA (2, 0, 0)"),
    ]  # fmt: skip
    assert (found.start_cycles, found.end_cycles) == (0, 3200) and "the start of the first CTA" in as_html(found)


def test_another_sm_begins_as_much_later_as_the_global_timer_says() -> None:
    found = measured(two_sms(), MADE, "K", "H200", sm=3)
    assert [(each.track, each.start_cycles, each.end_cycles) for each in found.events] == [
        ("CTA", 200, 2200),
        ("warp 0", 250, 350),
    ]
    with pytest.raises(InputError, match=r"no CTA ran on SM 5; SM 8 has the most records\."):
        measured(two_sms(), MADE, "K", "H200", sm=5)


def test_a_timer_that_stood_still_gives_cycles_as_they_are() -> None:
    still = row(0, 0, (7, 7), (10, 90), (20, 1), (30, 2))
    assert measured(np.concatenate([still, NOTHING]), MADE, "K", "G").ghz == 1.0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (NOTHING, r"has 192 bytes a CTA; this one has 96 in all"),
        (np.concatenate([NOTHING] * 4), r"is empty"),
        (np.concatenate([row(0, 0, (0, 9), (0, 9), count=9), NOTHING]), r"had 9 records .* holds 4; compile .*=9\."),
        (np.concatenate([row(0, 0, (0, 9), (0, 9), (1, 1)), NOTHING]), r"warp 0 of CTA \(0, 0, 0\) are no pairs"),
        (np.concatenate([row(0, 0, (0, 9), (0, 9), (1, 1), (2, 4)), NOTHING]), r"are no pairs"),
        (np.concatenate([row(0, 0, (0, 9), (0, 9), (1, 2), (2, 3)), NOTHING]), r"are no pairs"),
    ],
)
def test_what_is_no_buffer(words: np.ndarray, text: str) -> None:
    with pytest.raises(InputError, match=text):
        measured(words, MADE, "K", "H200")


# --- beside a prediction


def predicted() -> Timeline:
    events = (
        TimelineEvent("TMA loads", "cp.async.bulk.tensor (load)", 900, 1100, "k.py:5"),
        TimelineEvent("warp 0", "wgmma.mma_async", 1000, 1030, "k.py:7"),
    )
    states = (BarrierState("full[0]", 950, 0, 1, 1, 0),)
    tracks = ("TMA loads", "warp 0", "full[0]")
    return Timeline("K", "H200", "1 of 1 CTAs", 1.5, 0.0, 1500.0, tracks, events, {"k.py:5": "load()"}, states)


def test_both_lie_above_each_other_and_begin_at_once() -> None:
    below = measured(two_sms(), MADE, "K", "NVIDIA H200", sm=3)
    both = predicted().above(below)
    assert both.title == "K, H200 and NVIDIA H200: predicted above, measured below" and both.ghz == 1.5
    assert both.tracks == (
        "predicted: TMA loads",
        "predicted: warp 0",
        "predicted: full[0]",
        "measured: CTA",
        "measured: warp 0",
    )
    starts = {each.track: (each.start_cycles, each.end_cycles) for each in both.events}
    assert starts == {
        "predicted: TMA loads": (900, 1100), "predicted: warp 0": (1000, 1030), "measured: warp 0": (1000, 1100),
        "measured: CTA": (950, 2950),
    }  # fmt: skip
    assert both.end_cycles == 750 + below.end_cycles and both.start_cycles == 0
    assert both.barriers[0].track == "predicted: full[0]" and both.sources["k.py:7"] == "mma()"
    assert [kind_of(each) for each in both.events] == ["load", "run", "run", "run"]
    assert "measured: warp 0" in as_svg(both) and "cycles from the launch" in as_html(both)


def test_perfetto_shows_two_groups(tmp_path: Path) -> None:
    predicted().above(measured(two_sms(), MADE, "K", "NVIDIA H200")).save(tmp_path / "both.json")
    record = json.loads((tmp_path / "both.json").read_text())
    groups = {each["pid"]: each["args"]["name"] for each in record["traceEvents"] if each["name"] == "process_name"}
    assert [name.rsplit(": ", 1)[1] for name in groups.values()] == ["predicted", "measured"] and set(groups) == {1, 2}
    threads = {each["tid"]: each["pid"] for each in record["traceEvents"] if each["name"] == "thread_name"}
    assert all(threads[each["tid"]] == each["pid"] for each in record["traceEvents"] if each["ph"] == "X")
    assert record["otherData"]["predicted"] is record["otherData"]["measured"] is True
