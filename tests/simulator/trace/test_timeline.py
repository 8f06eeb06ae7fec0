"""A timeline of a few events, and as it is written."""

import base64
import io
import json
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from blackwell_matmul import InputError, UnsupportedError
from blackwell_matmul.simulator.trace.recorded import BarrierState, TimelineEvent
from blackwell_matmul.simulator.trace.timeline import Timeline
from blackwell_matmul.simulator.trace.timeline_page import as_html
from blackwell_matmul.simulator.trace.timeline_picture import tick_cycles
from blackwell_matmul.simulator.trace.timeline_png import as_png
from blackwell_matmul.simulator.trace.timeline_style import BAR_STYLES, kind_of
from blackwell_matmul.simulator.trace.timeline_svg import as_svg

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
    tuple(BarrierState("full[0]", cycle, phase, 1, 1, 0) for cycle, phase in ((0, 0), (250, 1), (400, 2))),
)


def test_it_prints_as_one_line():
    assert str(TIMELINE) == repr(TIMELINE) and "\n" not in str(TIMELINE)
    assert str(TIMELINE).startswith(f"{TIMELINE.title}; {TIMELINE.part}, cycles 0 to ")
    assert f", {len(TIMELINE.events)} events on {len(TIMELINE.tracks)} tracks" in str(TIMELINE)


def test_a_part_of_it_has_what_lies_there():
    part = TIMELINE.between(200, 260)
    assert (part.start_cycles, part.end_cycles, len(part.events)) == (200, 260, 3)
    assert part.busy_cycles("tensor core") == 60
    assert TIMELINE.between(301, 399).events == ()


def test_a_part_begins_with_the_states_that_barriers_are_in():
    assert [(each.cycle, each.phase) for each in TIMELINE.between(300, 500).barriers] == [(300, 1), (400, 2)]
    assert [(each.cycle, each.phase) for each in TIMELINE.between(250, 399).barriers] == [(250, 1)]


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
    assert [data["words"][data["barriers"][1][0]], *data["barriers"][1][1:]] == ["full[0]", 250, 1, 1, 1, 0]


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
    assert all(kind_of(each) in BAR_STYLES for each in EVENTS)


@pytest.mark.process
def test_the_picture_of_pixels_shows_each_kind_in_its_colour():
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image").open(io.BytesIO(as_png(TIMELINE))).convert("RGB")
    found = {"#{:02x}{:02x}{:02x}".format(*colour) for _, colour in image.getcolors(maxcolors=100_000)}
    assert {BAR_STYLES[kind_of(each)][1] for each in EVENTS} <= found
    assert image.width == 2400


def test_without_matplotlib_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'blackwell-matmul\[png\]', or write an \.svg"):
        as_png(TIMELINE)


@pytest.mark.parametrize(("name", "why"), [("x.pdf", "must end in"), (5, "must end in"), ("no/x.svg", "that is there")])
def test_where_it_cannot_be_saved(tmp_path, monkeypatch, name, why):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=why):
        TIMELINE.save(name)
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_an_image_of_the_first_cycles():
    long = Timeline("K", "B200", "", 2.0, 0, 90_000, ("tensor core",), (TimelineEvent("tensor core", "x", 5, 9),), {})
    shown = long._repr_html_()
    assert "cycles 0 to 16,000 of 90,000" in shown
    picture = base64.b64decode(re.search(r"base64,([^\"]*)", shown)[1]).decode()
    assert ElementTree.fromstring(picture).tag.endswith("svg") and "16,000" in picture
