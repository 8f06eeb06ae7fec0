"""Colours and names of a timeline, on a page and in a picture, in light and in dark."""

from __future__ import annotations

from blackwell_matmul.simulator.trace.recorded import TimelineEvent

BAR_STYLES = {
    "mma": ("tensor core", "#7c3aed", "#a78bfa"),
    "load": ("loads", "#0969da", "#58a6ff"),
    "store": ("stores", "#b45309", "#f0883e"),
    "run": ("instructions", "#1a7f37", "#3fb950"),
    "wait": ("waits", "#d0d7de", "#3d444d"),
    "phase": ("mbarrier phases", "#0e7490", "#39c5cf"),
}
"""Names and colours in light and dark, by kind."""

LIGHT = {"page": "#ffffff", "band": "#f6f8fa", "rule": "#d8dee4", "text": "#1f2328", "faint": "#59636e"}
DARK = {"page": "#0d1117", "band": "#151b23", "rule": "#2a313c", "text": "#e6edf3", "faint": "#9198a1"}


def kind_of(each: TimelineEvent) -> str:
    track = each.track.removeprefix("predicted: ")
    if each.name.startswith("waits for "):
        return "wait"
    if each.name.startswith("phase "):
        return "phase"
    if track == "tensor core":
        return "mma"
    if track in ("TMA loads", "cp.async"):
        return "load"
    return "store" if "stores" in track else "run"


def colours() -> str:
    """Return CSS variables."""
    light = LIGHT | {kind: each[1] for kind, each in BAR_STYLES.items()}
    dark = DARK | {kind: each[2] for kind, each in BAR_STYLES.items()}
    return f":root{{{_variables(light)}}}@media(prefers-color-scheme:dark){{:root{{{_variables(dark)}}}}}"


def _variables(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())
