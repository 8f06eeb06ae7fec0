"""A timeline of a few events, and as it is written."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest

from blackwell_matmul.simulator.trace.timeline import Timeline, TimelineEvent
from blackwell_matmul.simulator.trace.timeline_page import as_html
from blackwell_matmul.simulator.trace.timeline_style import KINDS, kind_of
from blackwell_matmul.simulator.trace.timeline_svg import as_svg, tick_cycles

EVENTS = (
    TimelineEvent("tensor core", "tcgen05.mma", 100, 300, "k.py:3", "s_a[0:1]"),
    TimelineEvent("warp 0", "waits for full[0]", 100, 250, "k.py:4"),
    TimelineEvent("full[0]", "phase 0", 250, 250, "", "</script><b>"),
)
TIMELINE = Timeline(
    "K",
    "B200",
    "1 of 1",
    2.0,
    0,
    1000,
    ("tensor core", "warp 0", "full[0]"),
    EVENTS,
    {"k.py:3": "a < b", "k.py:4": "x"},
)


def test_a_part_of_it_has_what_lies_there():
    part = TIMELINE.between(200, 260)
    assert (part.start_cycles, part.end_cycles, len(part.events)) == (200, 260, 3)
    assert part.busy_cycles("tensor core") == 60
    assert TIMELINE.between(300, 400).events == ()


def test_chromes_format_has_names_slices_and_instants():
    record = json.loads(json.dumps(TIMELINE.as_chrome_trace(), allow_nan=False))
    kinds = [each["ph"] for each in record["traceEvents"]]
    assert (kinds.count("M"), kinds.count("X"), kinds.count("i")) == (7, 2, 1)
    product = next(each for each in record["traceEvents"] if each["name"] == "tcgen05.mma")
    assert (product["ts"], product["dur"], product["args"]["source"]) == (0.05, 0.1, "a < b")
    assert record["otherData"]["predicted"] is True
    assert "predicted, not measured" in record["traceEvents"][0]["args"]["name"]


def test_the_page_needs_nothing_else():
    page = as_html(TIMELINE)
    assert not re.search(r"https?:|src=|href=|@import|url\(", page)
    assert page.count("</script>") == 1 and "predicted, not measured" in page
    data = json.loads(re.search(r"const D=(.*);\n", page)[1])
    assert [event[:3] for event in data["events"]] == [[0, 100, 300], [1, 100, 250], [2, 250, 250]]
    assert data["words"][data["events"][2][6]] == "</script><b>"


def test_the_picture_is_xml_and_its_boxes_say_what_they_are():
    picture = ElementTree.fromstring(as_svg(TIMELINE))
    told = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert told[0] == "tcgen05.mma, cycles 100 to 300, k.py:3" and len(told) == 2


def test_a_picture_of_many_events_stays_small():
    many = tuple(TimelineEvent("tensor core", "mma", at / 10, at / 10 + 0.09) for at in range(10_000))
    assert len(as_svg(Timeline("K", "B200", "", 2.0, 0, 1000, ("tensor core",), many, {}))) < 10_000


@pytest.mark.parametrize(("cycles", "step"), [(1, 1), (16, 2), (40, 5), (900, 200), (12000, 2000), (1e6, 200000)])
def test_ticks_are_round(cycles, step):
    assert tick_cycles(cycles) == step


def test_each_event_has_a_colour():
    assert [kind_of(each) for each in EVENTS] == ["mma", "wait", "phase"]
    tracks = ("TMA loads", "cp.async", "TMA stores", "loads and stores", "slot 1: warp 3")
    assert [kind_of(TimelineEvent(track, "x", 0, 1)) for track in tracks] == ["load", "load", "store", "store", "run"]
    assert all(kind_of(each) in KINDS for each in EVENTS)
