"""Comparison of two reports: the values that both have, and the items whose status differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Report = Mapping[str, Any]


@dataclass(frozen=True)
class ComparedValue:
    """A value in both reports. ratio: the second divided by the first."""

    what: str
    unit: str
    first: float
    second: float

    @property
    def ratio(self) -> float | None:
        return self.second / self.first if self.first else None


def pairs(first: Report, second: Report) -> list[ComparedValue]:
    """Return the values that both reports have, the largest difference first."""
    before, after = dict(_values(first)), dict(_values(second))
    found = [ComparedValue(*named, before[named], after[named]) for named in before.keys() & after.keys()]
    return sorted(found, key=lambda each: (-_distance(each.ratio), each.what))


def _distance(ratio: float | None) -> float:
    return 0.0 if ratio is None or ratio <= 0 else max(ratio, 1 / ratio)


def _values(report: Report) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield each value of a report, with its name and unit."""
    for row in report["rows"]:
        for each in row.get("rows", ()):
            if "value" in each and "unit" in each:
                yield (f"{each['what']}, {each['parameters']}", each["unit"]), float(each["value"])
        if row.get("tflops"):
            yield (row["item"], "TFLOPS"), float(row["tflops"])
        if row["stage"] == "timelines" and row.get("measured_cycles"):
            yield (row["item"], "cycles"), float(row["measured_cycles"])


def changed(first: Report, second: Report) -> list[tuple[str, str, str]]:
    """Return the items whose status differs: the item, its first status, its second status."""
    before = {(row["stage"], row["item"]): row["status"] for row in first["rows"]}
    after = {(row["stage"], row["item"]): row["status"] for row in second["rows"]}
    return [
        (f"{stage}: {item}", status, after[stage, item])
        for (stage, item), status in before.items()
        if (stage, item) in after and after[stage, item] != status
    ]
