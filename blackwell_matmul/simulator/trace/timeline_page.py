"""A timeline as one HTML page that needs nothing else: no network, no library."""

from __future__ import annotations

import json
from html import escape

from blackwell_matmul.simulator.trace.timeline import Timeline
from blackwell_matmul.simulator.trace.timeline_style import KINDS, colours, kind_of


def as_html(timeline: Timeline) -> str:
    legend = "".join(f'<i style="background:var(--{kind})"></i>{name}' for kind, (name, _, _) in KINDS.items())
    data = json.dumps(_data(timeline), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    told = f"{timeline.part}; cycles from the launch, at {timeline.ghz:.2f} GHz"
    return PAGE.format(
        title=escape(timeline.title), told=escape(told), colours=colours(), legend=legend, data=data, script=SCRIPT
    )  # fmt: skip


def _data(timeline: Timeline) -> dict[str, object]:
    """Words once, and events as numbers: track, start, end, kind, name, line, detail."""
    words: dict[str, int] = {}
    tracks, kinds = {track: row for row, track in enumerate(timeline.tracks)}, [*KINDS]

    def number(word: str) -> int:
        return words.setdefault(word, len(words))

    events = [
        [tracks[e.track], round(e.start_cycles, 1), round(e.end_cycles, 1), kinds.index(kind_of(e)), number(e.name),
         number(e.line), number(e.detail)]
        for e in timeline.events
    ]  # fmt: skip
    return {
        "from": timeline.start_cycles, "to": timeline.end_cycles, "ghz": timeline.ghz, "tracks": timeline.tracks,
        "kinds": kinds, "words": [*words], "sources": dict(timeline.sources), "events": events,
    }  # fmt: skip


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>{colours}
:root{{color-scheme:light dark}}
body{{margin:0;height:100vh;display:flex;flex-direction:column;background:var(--page);color:var(--text);
font:13px system-ui,sans-serif;overflow:hidden}}
header{{padding:10px 14px 8px}}h1{{font-size:16px;margin:0 0 4px}}p{{margin:0;color:var(--faint)}}
i{{display:inline-block;width:10px;height:10px;border-radius:2px;margin:0 5px 0 14px}}i:first-child{{margin-left:0}}
main{{flex:1;min-height:0;position:relative}}canvas{{position:absolute;inset:0;width:100%;height:100%;cursor:grab;
touch-action:none;outline:none}}
#tip{{position:fixed;display:none;max-width:560px;padding:7px 10px;border:1px solid var(--rule);border-radius:6px;
background:var(--page);color:var(--text);box-shadow:0 3px 12px #0004;pointer-events:none;overflow-wrap:anywhere}}
#tip b,#tip span,#tip code{{display:block}}#tip span{{color:var(--faint)}}
#tip code{{white-space:pre-wrap;margin-top:3px}}
</style></head><body>
<header><h1>{title}</h1><p>{told}. The wheel zooms, dragging moves, a double click shows all.</p>
<p style="margin-top:6px">{legend}</p></header>
<main><canvas tabindex="0" aria-label="{title}"></canvas></main><div id="tip"></div>
<script>const D={data};
{script}</script></body></html>
"""

SCRIPT = """
const LEFT = 200, ROW = 22, AXIS = 26, FIRST = 16000;
const canvas = document.querySelector("canvas"), pen = canvas.getContext("2d"), tip = document.getElementById("tip");
const rows = D.tracks.map(() => []);
for (const e of D.events) rows[e[0]].push(e);
let from = D.from, to = Math.min(D.to, D.from + FIRST), top_ = 0, mouse = null, held = null, ink = {};

const wide = () => Math.max(1, canvas.clientWidth - LEFT - 8);
const x = cycles => LEFT + (cycles - from) / (to - from) * wide();
const cycle = at => from + (at - LEFT) / wide() * (to - from);
const fmt = n => n.toLocaleString("en", {maximumFractionDigits: 1});

function show(start, span) {
  span = Math.min(Math.max(span, 20), D.to - D.from);
  from = Math.min(Math.max(start, D.from), D.to - span);
  to = from + span;
  const hidden = rows.length * ROW + AXIS + 8 - canvas.clientHeight;
  top_ = Math.min(Math.max(top_, 0), Math.max(hidden, 0));
  requestAnimationFrame(draw);
}

function firstAfter(row, at) {  // the first event that ends after this cycle
  let low = 0, high = row.length;
  while (low < high) { const mid = low + high >> 1; if (row[mid][2] < at) low = mid + 1; else high = mid; }
  return low;
}

function drawRow(row, y) {
  for (let i = firstAfter(row, from); i < row.length && row[i][1] <= to; i++) {
    const e = row[i], a = Math.max(x(e[1]), LEFT), b = Math.min(x(e[2]), LEFT + wide());
    const w = b - a > 3 ? b - a - 1 : Math.max(b - a, e[1] === e[2] ? 2 : .7);
    pen.fillStyle = ink[D.kinds[e[3]]];
    pen.fillRect(a, y + 3, w, ROW - 6);
    const wait = D.kinds[e[3]] === "wait", name = D.words[e[4]];
    if (w > 46) text(wait ? name.replace("waits for ", "") : name, a + 5, y, w - 8, wait ? ink.text : ink.page);
  }
}

function drawBand(number, y) {
  pen.fillStyle = ink[number % 2 ? "page" : "band"];
  pen.fillRect(0, y, canvas.clientWidth, ROW);
  text(D.tracks[number], 14, y, LEFT - 22, ink.text);
}

function text(words, at, y, room, colour) {
  pen.fillStyle = colour;
  while (words.length > 1 && pen.measureText(words).width > room) words = words.slice(0, -2) + "…";
  if (words.length > 2) pen.fillText(words, at, y + ROW / 2 + 1);
}

function drawAxis(lines) {
  pen.fillStyle = ink.page;
  if (!lines) pen.fillRect(0, 0, canvas.clientWidth, AXIS);
  let step = 1;
  for (let k = 0; (to - from) / step > wide() / 110; k++) step *= k % 3 === 1 ? 2.5 : 2;
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    pen.fillStyle = ink.rule;
    pen.fillRect(x(at), AXIS - 6, 1, lines ? canvas.clientHeight : 6);
    pen.fillStyle = ink.faint;
    if (!lines) pen.fillText(fmt(at), x(at) + 4, AXIS / 2);
  }
  if (!lines) text("cycles", 14, 2, LEFT, ink.faint);
}

function draw() {
  const ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
  for (const name of [...D.kinds, "page", "band", "rule", "text", "faint"])
    ink[name] = style.getPropertyValue("--" + name);
  canvas.width = canvas.clientWidth * ratio;
  canvas.height = canvas.clientHeight * ratio;
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const placed = rows.map((row, n) => [row, n, AXIS + n * ROW - top_]);
  const seen = placed.filter(each => each[2] > -ROW && each[2] < canvas.clientHeight);
  for (const [, n, y] of seen) drawBand(n, y);
  drawAxis(true);
  for (const [row, , y] of seen) drawRow(row, y);
  drawAxis(false);
  if (mouse && mouse[0] > LEFT) { pen.fillStyle = ink.faint; pen.fillRect(mouse[0], AXIS, 1, canvas.clientHeight); }
}

function under(at) {
  const row = rows[Math.floor((at[1] - AXIS + top_) / ROW)];
  if (!row || at[0] < LEFT || at[1] < AXIS) return null;
  const slack = 2 * (to - from) / wide(), here = cycle(at[0]);
  let best = null;
  for (let i = firstAfter(row, here - slack); i < row.length && row[i][1] <= here + slack; i++)
    if (!best || row[i][1] <= here) best = row[i];
  return best;
}

function line(tag, words) {
  if (words) tip.appendChild(document.createElement(tag)).textContent = words;
}

function hint(event) {
  const e = held ? null : under(mouse);
  tip.style.display = e ? "block" : "none";
  if (!e) return;
  tip.replaceChildren();
  const took = e[2] - e[1], where = D.words[e[5]];
  line("b", D.words[e[4]]);
  line("span", D.tracks[e[0]]);
  const when = `cycles ${fmt(e[1])} to ${fmt(e[2])}: ${fmt(took)}, ${fmt(took / D.ghz)} ns`;
  line("span", took ? when : `cycle ${fmt(e[1])}`);
  line("span", D.words[e[6]]);
  line("code", where && `${where}  ${D.sources[where] || ""}`);
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
}

canvas.addEventListener("wheel", event => {
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))
    return show(from + (event.deltaX || event.deltaY) / wide() * (to - from), to - from);
  const factor = Math.exp(Math.max(-50, Math.min(50, event.deltaY)) / 250), at = cycle(Math.max(event.offsetX, LEFT));
  const span = Math.min(Math.max((to - from) * factor, 20), D.to - D.from);
  show(at - (at - from) * span / (to - from), span);
}, {passive: false});
canvas.addEventListener("pointerdown", event => {
  held = [event.clientX, event.clientY, from, top_];
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointerup", () => { held = null; });
canvas.addEventListener("pointercancel", () => { held = null; });
canvas.addEventListener("pointermove", event => {
  mouse = [event.offsetX, event.offsetY];
  if (held) {
    top_ = held[3] - (event.clientY - held[1]);
    show(held[2] - (event.clientX - held[0]) / wide() * (to - from), to - from);
  } else requestAnimationFrame(draw);
  hint(event);
});
canvas.addEventListener("pointerleave", () => {
  mouse = null;
  tip.style.display = "none";
  requestAnimationFrame(draw);
});
canvas.addEventListener("dblclick", () => show(D.from, D.to - D.from));
canvas.addEventListener("keydown", event => {
  const part = (to - from) / 5, up = {ArrowUp: -ROW, ArrowDown: ROW}[event.key];
  const moves = {ArrowLeft: [-part, 0], ArrowRight: [part, 0], "+": [part, -2 * part], "-": [-part, 2 * part]};
  const [by, longer] = moves[event.key] || [0, 0];
  top_ += up || 0;
  if (up || event.key in moves) show(from + by, to - from + longer);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", () => show(from, to - from));
show(from, to - from);
"""
