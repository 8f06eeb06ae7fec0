"""A timeline as one self-contained HTML page: no network, no library."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from blackwell_matmul.simulator.trace.recorded import Recorded
from blackwell_matmul.simulator.trace.timeline_style import BAR_STYLES, colours, kind_of

SCRIPT = Path(__file__).with_name("timeline.js")
"""JavaScript of the page, which finds its data in D."""

FIRST_CYCLES = 16_000
"""Cycles that the page shows at first."""


def as_html(timeline: Recorded) -> str:
    legend = "".join(
        f'<span><i style="background:var(--{kind})"></i>{name}</span>' for kind, (name, _, _) in BAR_STYLES.items()
    )
    data = json.dumps(_data(timeline), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    text = f"{timeline.part}; cycles from {timeline.zero}, at {timeline.ghz:.2f} GHz"
    return PAGE.format(
        title=escape(timeline.title), told=escape(text), colours=colours(), legend=legend, data=data,
        script=SCRIPT.read_text(encoding="utf-8"),
    )  # fmt: skip


def _data(timeline: Recorded) -> dict[str, object]:
    """Return the data with each word once. Events are numbers: track, start, end, kind, name, line, detail; states of
    mbarriers: track, cycle, phase, pending and expected arrivals, bytes."""
    words: dict[str, int] = {}
    tracks, kinds = {track: row for row, track in enumerate(timeline.tracks)}, [*BAR_STYLES]

    def number(word: str) -> int:
        return words.setdefault(word, len(words))

    events = [
        [tracks[e.track], round(e.start_cycles, 1), round(e.end_cycles, 1), kinds.index(kind_of(e)), number(e.name),
         number(e.line), number(e.detail)]
        for e in timeline.events
    ]  # fmt: skip
    barriers = [
        [number(b.track), round(b.cycle, 1), b.phase, b.pending, b.expected, b.tx_bytes] for b in timeline.barriers
    ]
    return {
        "from": timeline.start_cycles, "to": timeline.end_cycles, "ghz": timeline.ghz, "tracks": timeline.tracks,
        "kinds": kinds, "words": [*words], "sources": dict(timeline.sources), "events": events, "barriers": barriers,
        "first": FIRST_CYCLES,
    }  # fmt: skip


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{colours}
:root{{color-scheme:light dark}}
body{{margin:0;height:100vh;height:100dvh;display:flex;flex-direction:column;background:var(--page);color:var(--text);
font:13px system-ui,sans-serif;overflow:hidden}}
header{{padding:10px 14px 8px}}h1{{font-size:16px;margin:0 0 4px}}p{{margin:0;color:var(--faint)}}
header span{{white-space:nowrap;margin-right:14px}}#shown{{white-space:normal;margin-right:.3em}}
i{{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}}
main{{flex:1;min-height:0;position:relative}}canvas{{position:absolute;inset:0;width:100%;height:100%;cursor:crosshair;
touch-action:none;outline:none}}
#tip{{position:fixed;display:none;max-width:560px;padding:7px 10px;border:1px solid var(--rule);border-radius:6px;
background:var(--page);color:var(--text);box-shadow:0 3px 12px #0004;pointer-events:none;overflow-wrap:anywhere}}
#tip b,#tip span,#tip code{{display:block}}#tip span{{color:var(--faint)}}
#tip code{{white-space:pre-wrap;margin-top:3px}}
nav{{display:flex;flex-wrap:wrap;gap:6px;align-items:center;padding:7px 14px;border-top:1px solid var(--rule);
background:var(--band)}}
nav output{{color:var(--faint)}}nav b{{margin-left:auto}}
button,select{{font:inherit;color:var(--text);background:var(--page);border:1px solid var(--rule);border-radius:6px;
padding:4px 9px;min-height:30px;max-width:100%}}
section{{max-height:34vh;overflow:auto;background:var(--band)}}
table{{border-collapse:separate;border-spacing:0;width:100%;font-variant-numeric:tabular-nums}}
th,td{{text-align:left;padding:3px 14px;border-top:1px solid var(--rule);vertical-align:top}}
th{{position:sticky;top:0;background:var(--band);color:var(--faint);font-weight:normal;white-space:nowrap}}
td:first-child,th:first-child{{white-space:nowrap}}tr.now td{{background:var(--page);font-weight:600}}
td small{{margin-left:.6em;white-space:nowrap;color:var(--faint);font-weight:normal}}tr{{scroll-margin-top:28px}}
@media(max-width:640px){{th,td{{padding:3px 5px}}th{{white-space:normal}}tr{{scroll-margin-top:46px}}
td small{{display:block;margin:0}}section{{max-height:38vh}}
body{{font-size:12px}}td:first-child{{white-space:normal;overflow-wrap:anywhere;min-width:60px}}
header p+p{{display:flex;flex-wrap:wrap}}.keys{{display:none}}}}
</style></head><body>
<header><h1>{title}</h1><p>{told}. <span id="shown"></span><span class="keys" style="white-space:normal">The wheel
zooms, dragging moves. A click picks a moment, and n and p step from it to the next and the previous change of an
mbarrier.</span></p>
<p style="margin-top:6px">{legend}</p></header>
<main><canvas tabindex="0" aria-label="{title}"></canvas></main><div id="tip"></div>
<nav><button id="out" aria-label="zoom out">−</button><button id="in" aria-label="zoom in">+</button>
<button id="previous" title="key p">◀ change</button><button id="next" title="key n">change ▶</button>
<select aria-label="of which mbarrier"></select><output></output></nav>
<section><table><thead><tr><th>mbarrier</th><th>phase</th><th>arrivals pending</th><th>bytes pending</th>
<th>who waits</th><th>last change</th></tr></thead><tbody></tbody></table></section>
<script>const D={data};

{script}</script></body></html>
"""
