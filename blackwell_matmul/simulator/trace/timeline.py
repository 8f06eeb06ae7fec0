"""`Timeline`: the events of one SM by cycle, and the files that show it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike

from blackwell_matmul.base.files import TIMELINE_ENDINGS, file_to_write, write_whole
from blackwell_matmul.simulator.trace.recorded import Recorded
from blackwell_matmul.simulator.trace.timeline_page import FIRST_CYCLES, as_html
from blackwell_matmul.simulator.trace.timeline_png import as_png
from blackwell_matmul.simulator.trace.timeline_svg import as_svg


@dataclass(frozen=True, repr=False)
class Timeline(Recorded):
    """Events of one SM by cycle, predicted or measured: those of a track are sorted by their start, and do not overlap.

    start_cycles, end_cycles: the shown range, counted from `zero`. part: the part of the SM's work. ghz: the clock.
    tracks: from top to bottom. sources: the text of each line. barriers: the states of mbarriers, by cycle.

    `between(start, end)` returns a part of it, `busy_cycles(track)` the busy cycles of a track, `as_chrome_trace()`
    data for ui.perfetto.dev, `predicted.above(measured)` a timeline of both. A notebook shows a picture of the first
    cycles.
    """

    def __repr__(self) -> str:
        """Return one line, as there are thousands of events."""
        cycles = f"cycles {self.start_cycles:,.0f} to {self.end_cycles:,.0f}"
        return f"{self.title}; {self.part}, {cycles}, {len(self.events)} events on {len(self.tracks)} tracks"

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file, whose suffix selects the format: .html is a page to zoom and step in, .json opens in
        ui.perfetto.dev, .svg and .png are pictures (.png needs matplotlib).

        Raises InputError for another suffix, or a missing folder."""
        file = file_to_write("path", path, TIMELINE_ENDINGS)
        write_whole(file, WRITERS[file.suffix.lower()](self))

    def _repr_html_(self) -> str:
        """Return the picture as an image, whose style cannot affect the rest of a notebook."""
        shown = self.between(self.start_cycles, self.start_cycles + FIRST_CYCLES)
        picture = base64.b64encode(as_svg(shown).encode()).decode()
        text = f"cycles {shown.start_cycles:,.0f} to {shown.end_cycles:,.0f} of {self.end_cycles:,.0f}"
        image = f'<img style="max-width:100%" alt="{self.title}" src="data:image/svg+xml;base64,{picture}">'
        return f"{image}<br>{self.title}; {text}"


WRITERS: Mapping[str, Callable[[Recorded], bytes]] = dict(zip(TIMELINE_ENDINGS, (
    lambda each: as_html(each).encode(), lambda each: json.dumps(each.as_chrome_trace(), allow_nan=False).encode(),
    lambda each: as_svg(each).encode(), as_png,
)))  # fmt: skip
