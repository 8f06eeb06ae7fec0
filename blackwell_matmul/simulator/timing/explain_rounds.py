"""What is said of CTAs that stay and go through the tiles, where some have more of them than others."""

from __future__ import annotations

from collections.abc import Iterator

from blackwell_matmul.simulator.timing.one_sm import Change
from blackwell_matmul.simulator.timing.what_if import SHARE, PredictedRun, Supposed


def rounds(run: PredictedRun) -> Iterator[tuple[float, str]]:
    """What the rounds that only some have would save, less what all would have more of, were they even."""
    most, least = run.spread.most.tiles, run.spread.of_places[run.spread.least_at].tiles
    tiles = sum(share.tiles for share in run.spread.of_places)
    if run.turns > run.resident or most <= run.turns or most == least:
        return
    mean = tiles / len(run.spread.of_places)
    gain = run.gain(Supposed(run.conditions, Change(place=run.spread.least_at))) * (most - mean) / (most - least)
    if gain > SHARE:
        yield (
            gain,
            (
                f"{tiles:,} tiles for {run.clusters} {run.who} that stay: some have {most} rounds of them, one after"
                f" the other, and the mean is {mean:.2f}; if they came out even, {gain:.0%} fewer cycles."
            ),
        )
