"""The rows of a study in one JSON file, which a second run goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_json
from blackwell_matmul.harness.bench.results import RESULTS_FORMAT, Machine, as_written, read_whole, require_same

Status = Literal["done", "refused", "failed", "hung"]


@dataclass(frozen=True)
class TrialRow:
    """How a trial ended. result: of one that is done; reason: why another is not, and at, the step it was at."""

    trial: str
    status: Status
    result: Mapping[str, Any] | None = None
    reason: str = ""
    at: str = ""


class StudyResults:
    """`<folder>/<study>.json`. InputError if it is another GPU's, or no such file of this version."""

    def __init__(self, folder: Path, study: str, machine: Machine) -> None:
        self.file, self.study, self.machine = folder / f"{study}.json", study, machine
        found = read_whole(self.file, "machine", "rows")
        with as_written(self.file):
            self._rows = {row["trial"]: TrialRow(**row) for row in found.get("rows", ())}
            was = Machine(**found["machine"]) if found else machine
        require_same(machine, was, self.file)

    def __iter__(self) -> Iterator[TrialRow]:
        return iter(self._rows.values())

    def __contains__(self, trial: str) -> bool:
        return trial in self._rows

    def result(self, trial: str) -> Mapping[str, Any] | None:
        """Of a trial that is done; None for any other."""
        return self._rows[trial].result if trial in self._rows else None

    @property
    def ok(self) -> bool:
        """Nothing failed or hung."""
        return all(row.status in ("done", "refused") for row in self)

    def put(self, row: TrialRow) -> None:
        """Kept at once, whole or not at all."""
        self._rows[row.trial] = row
        write_json(self.file, self.as_dict())

    def forget(self) -> None:
        self._rows.clear()

    def as_dict(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self]
        return {"format": RESULTS_FORMAT, "study": self.study, "machine": asdict(self.machine), "rows": rows}


def saved(folder: Path, study: str) -> StudyResults:
    """As a run has left it; InputError where there is none."""
    file = folder / f"{study}.json"
    if not (found := read_whole(file, "machine", "rows")):
        raise InputError(f"{file} is not there; bench --suite {study} --out {folder} makes it.")
    with as_written(file):
        machine = Machine(**found["machine"])
    return StudyResults(folder, study, machine)
