"""Report of a run of `first-light`: a JSON file with all values, and an HTML page."""

from __future__ import annotations

import datetime
import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_json, write_whole
from blackwell_matmul.base.records import content_of, parsed
from blackwell_matmul.cli.first_light.cases import STAGES
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED

REPORT, PAGE, REPORT_FORMAT = "report.json", "index.html", 1
STATUSES = ("not held", "failed", "not run", "measured", "held")
Row = Mapping[str, Any]
Report = Mapping[str, Any]


def record(rows: Sequence[Row], gpu: Gpu, emulated: bool, missing: int, command: str, machine: Row) -> dict[str, Any]:
    """Return the report as a dict for JSON. missing: number of items for which the time did not suffice."""
    counts = Counter(row["status"] for row in rows)
    return {
        "format": REPORT_FORMAT, "gpu": gpu.name, "arch": gpu.arch, "sm_count": gpu.sm_count, "emulated": emulated,
        "taken": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"), "command": command,
        "machine": dict(machine), "counts": {each: counts[each] for each in STATUSES}, "items_left": missing,
        "rows": [dict(row) for row in rows],
    }  # fmt: skip


def save(report: Report, folder: Path) -> Path:
    """Write the JSON and the page, and return the page's path; raise InputError if a file cannot be written."""
    try:
        write_json(folder / REPORT, report)
        write_whole(folder / PAGE, page(report).encode())
    except OSError as error:
        raise InputError(
            f"cannot write the report to {folder}: {error.strerror or error}; every item is kept, so make room and "
            "start again."
        ) from error
    return folder / PAGE


def load(path: Path) -> dict[str, Any]:
    """Return a report from its file or folder; raise InputError for any other path."""
    file = path / REPORT if path.is_dir() else path
    try:
        found = parsed(content_of(file))
        if found["format"] == REPORT_FORMAT and isinstance(found["rows"], list):
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise InputError(f"{file} is no report of first-light; it writes {REPORT} into its folder.")


# --- the page


REPORT_STYLE = """
:root{--ink:#1f2328;--quiet:#57606a;--line:#d0d7de;--good:#1a7f37;--bad:#b42318;--warn:#9a6700;--paper:#fff;--soft:#f6f8fa}
@media (prefers-color-scheme:dark){:root{--ink:#e6edf3;--quiet:#9198a1;--line:#3d444d;--good:#3fb950;--bad:#f85149;
--warn:#d29922;--paper:#0d1117;--soft:#151b23}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1040px;margin:2rem auto;
padding:0 1rem}
h1{font-size:1.6rem;margin:0}h2{font-size:1.15rem;margin:2.2rem 0 .5rem;border-bottom:1px solid var(--line)}
p,li{max-width:75ch}.quiet{color:var(--quiet)}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;width:100%}td,th{text-align:left;padding:.25rem .6rem;
border-bottom:1px solid var(--line);vertical-align:top;overflow-wrap:break-word}
td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}.held{color:var(--good)}.bad{color:var(--bad);font-weight:600;white-space:nowrap}.warn{color:var(--warn)}
.tiles{display:flex;gap:.75rem;flex-wrap:wrap;margin:1rem 0}.tile{background:var(--soft);border:1px solid var(--line);
border-radius:6px;padding:.5rem .9rem;min-width:7rem}.tile b{display:block;font-size:1.5rem}
.mark{background:#9a6700;color:#fff;padding:.5rem .9rem;border-radius:6px;margin:1rem 0}
svg text{fill:currentColor;font:12px system-ui,sans-serif}
body.emulated{background-image:repeating-linear-gradient(-35deg,transparent 0 180px,rgba(154,103,0,.07) 180px 210px)}
"""
CLASSES = {"held": "held", "measured": "held", "not held": "bad", "failed": "bad", "not run": "warn"}


def page(report: Report) -> str:
    """Return a self-contained HTML page: the counts, the claims that did not hold, then each stage."""
    title = f"First light on {report['gpu']}" + (", emulated" if report["emulated"] else "")
    body = "\n".join(part for section in (_head(report, title), *_sections(report)) for part in section)
    kind = ' class="emulated"' if report["emulated"] else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width,initial-scale=1"><title>{_text(title)}</title><style>{REPORT_STYLE}</style></head>'
        f"<body{kind}>{body}</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _head(report: Report, title: str) -> Iterator[str]:
    yield f"<h1>{_text(title)}</h1>"
    yield f'<p class="quiet">{_text(report["arch"])}, {report["sm_count"]} SMs; {_text(report["taken"])}</p>'
    if report["emulated"]:
        yield (
            '<p class="mark">EMULATED: no GPU ran this. Values are the emulator\'s; cycles count instructions and are '
            "no times.</p>"
        )
    names = ("held", "not held", "failed", "not run", "measured")
    told = (each.replace("not held", "did not hold") for each in names)
    tiles = "".join(_tile(report["counts"][each], text, CLASSES[each]) for each, text in zip(names, told))
    left = f'<div class="tile"><b class="warn">{report["items_left"]}</b>left for lack of time</div>' * bool(
        report["items_left"]
    )
    yield f'<div class="tiles">{tiles}{left}</div>'


def _tile(count: int, text: str, kind: str) -> str:
    return f'<div class="tile"><b class="{kind if count else ""}">{count}</b>{text}</div>'


def _sections(report: Report) -> Iterator[Iterator[str]]:
    yield _not_held(report["rows"])
    drawn = {"values": _values, "micro": _micro, "ladder": _ladder, "doctor": _doctor, "timelines": _timelines}
    for stage, heading in sorted(STAGES.items(), key=lambda each: each[0] == "doctor"):  # "doctor" comes last
        rows = [row for row in report["rows"] if row["stage"] == stage]
        if rows:
            yield iter([f"<h2>{_text(heading)}</h2>"])
            yield drawn.get(stage, _plain)(rows)
    yield _about(report)


def _not_held(rows: Sequence[Row]) -> Iterator[str]:
    bad = [row for row in rows if row["status"] in ("not held", "failed")]
    yield "<h2>What did not hold</h2>"
    if not bad:
        yield "<p>Nothing: all that ran is as claimed.</p>"
        return
    yield _table(
        ("stage", "item", "", "what was seen"), ([row["stage"], row["item"], _status(row), row["told"]] for row in bad)
    )


class _Markup(str):
    """Text that is HTML, and is not escaped."""


def _status(row: Row) -> _Markup:
    return _Markup(f'<span class="{CLASSES[row["status"]]}">{_text(row["status"])}</span>')


def _table(head: Sequence[str], rows: Any) -> str:
    def cell(value: Any) -> str:
        number = isinstance(value, (int, float))
        told = value if isinstance(value, _Markup) else _text(_number(value) if number else value)
        return f'<td class="n">{told}</td>' if number else f"<td>{told}</td>"

    lines = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    heads = "".join(f"<th>{_text(each)}</th>" for each in head)
    return f'<div class="scroll"><table><tr>{heads}</tr>{lines}</table></div>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"


def _plain(rows: Sequence[Row]) -> Iterator[str]:
    yield _table(("item", "", "what was seen"), ([row["item"], _status(row), row["told"]] for row in rows))


MARKS = {"held": "&#10003;", "measured": "&#10003;", "not held": "wrong", "failed": "failed", "not run": "&ndash;"}


def _values(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the block-scaled kernels and one of the other kernels, which have other problems."""
    for scaled in (True, False):
        some = [row for row in rows if bool(BLOCK_SCALED.keys() & str(row["item"]).split()) == scaled]
        if some:
            yield _grid(some)


def _grid(rows: Sequence[Row]) -> str:
    """Return a table with a row for each kernel, and a column for each type and size. Cases with pinned schedules share
    the last column."""
    grid: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        kernel, _, problem = str(row["item"]).partition(" ")
        what = " ".join(problem.split()[:2])
        grid.setdefault(kernel, {}).setdefault("other schedules" if len(problem.split()) > 2 else what, []).append(row)
    columns = sorted(
        dict.fromkeys(what for of in grid.values() for what in of), key=lambda each: each == "other schedules"
    )

    def cell(found: Sequence[Row]) -> _Markup:
        return _Markup(" ".join(
            f'<span class="{CLASSES[row["status"]]}" title="{_text(row["told"])}">{MARKS[row["status"]]}</span>'
            for row in found
        ))  # fmt: skip

    return _table(
        ("kernel", *columns), ([name, *(cell(of.get(each, ())) for each in columns)] for name, of in grid.items())
    )


def _doctor(rows: Sequence[Row]) -> Iterator[str]:
    lines = [each for row in rows for each in row.get("rows", ())]
    if not lines:
        yield from _plain(rows)
        return
    yield _table(("", "", ""), ([each["name"], each["status"], each["value"]] for each in lines))


def _micro(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the microbenchmarks. A bar shows the ratio of each value to the time model's."""
    yield '<p class="quiet">The bar is the measured value over the model\'s, from a quarter to four times.</p>'
    table = []
    for row in rows:
        if not row.get("rows"):
            table.append([row["item"], "", _status(row), row["told"], "", "", ""])
        for each in row.get("rows", ()):
            expected = "" if each["expected"] is None else float(each["expected"])
            value, known = float(each["value"]), (expected, each["how"], _bar(each))
            table.append([each["what"], each["parameters"], value, each["unit"], *known])
    yield _table(("what", "", "measured", "", "model", "known", ""), table)


def _bar(row: Row) -> _Markup:
    if row["held"] is None or not row["expected"] or row["value"] <= 0:
        return _Markup("")
    place = max(-2.0, min(2.0, math.log2(row["value"] / row["expected"])))
    color = "var(--good)" if row["held"] else "var(--bad)"
    left, width = 80 + min(0.0, place) * 40, abs(place) * 40
    return _Markup(
        f'<svg width="162" height="14" role="img" aria-label="{row["value"] / row["expected"]:.2f} times the model">'
        f'<rect x="{left:.1f}" y="3" width="{max(2.0, width):.1f}" height="8" style="fill:{color}"/>'
        '<line x1="80" x2="80" y1="0" y2="14" style="stroke:var(--quiet)"/></svg>'
    )


def _ladder(rows: Sequence[Row]) -> Iterator[str]:
    timed = [row for row in rows if row.get("tflops")]
    if not timed:
        yield from _plain(rows)
        return
    most = max(max(row["tflops"], row.get("cublas_tflops", 0)) for row in timed)
    lines = []
    for row in timed:
        predicted = row["tflops"] * row["time_us"] / row["predicted_us"] if row.get("predicted_us") else None
        bar = f'<rect x="0" y="3" width="{300 * row["tflops"] / most:.1f}" height="10" fill="#3b6ea5"/>'
        for value, color in ((row.get("cublas_tflops"), "var(--ink)"), (predicted, "#d9761a")):
            if value:
                place = min(300.0, 300 * value / most)
                bar += f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="16" style="stroke:{color};stroke-width:2"/>'
        lines.append([
            row["item"], _status(row), float(row["tflops"]), row.get("percent_of_cublas", ""),
            "" if predicted is None else float(predicted), _Markup(f'<svg width="304" height="16">{bar}</svg>'),
        ])  # fmt: skip
    yield '<p class="quiet">Bar: measured TFLOPS. Black line: cuBLAS. Orange line: predicted.</p>'
    yield _table(("kernel and problem", "", "TFLOPS", "% of cuBLAS", "predicted", ""), lines)
    rest = [row for row in rows if row not in timed and row["status"] != "measured"]
    if rest:
        yield from _plain(rest)


def _timelines(rows: Sequence[Row]) -> Iterator[str]:
    def link(row: Row) -> object:
        return _Markup(f'<a href="{_text(row["page"])}">{_text(row["item"])}</a>') if row.get("page") else row["item"]

    def cells(row: Row) -> list[Any]:
        cycles = (float(row[name]) if row.get(name) else "" for name in ("measured_cycles", "predicted_cycles"))
        return [link(row), _status(row), row["told"], *cycles]

    yield _table(("kernel and problem", "", "what was seen", "cycles measured", "predicted"), map(cells, rows))


def _about(report: Report) -> Iterator[str]:
    yield "<h2>How this was made</h2>"
    yield f"<p><code>{_text(report['command'])}</code></p>"
    facts = [[name, _text(value)] for name, value in _flat(report["machine"])]
    yield _table(("", ""), facts)


def _flat(record: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}{key} ")
        else:
            yield f"{name}{key}", value
