"""The rows of a study in one JSON file, which a second run goes on with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from blackwell_matmul.harness.bench.results import Machine, ResultFile

Status = Literal["done", "refused", "failed", "hung"]


@dataclass(frozen=True)
class TrialRow:
    """How a trial ended. result: of one that is done; reason: why another is not, and at, the step it was at."""

    trial: str
    status: Status
    result: Mapping[str, Any] | None = None
    reason: str = ""
    at: str = ""


class StudyResults(ResultFile):
    """`<folder>/<study>.json`. InputError if it is another GPU's, or no such file of this version."""

    def __init__(self, folder: Path, study: str, machine: Machine) -> None:
        self.study = study
        super().__init__(folder / f"{study}.json", "rows", machine)

    def read_parts(self) -> None:
        self._rows = {row["trial"]: TrialRow(**row) for row in self.content.get("rows", ())}

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
        self.save()

    def forget(self) -> None:
        self._rows.clear()

    def parts(self) -> dict[str, Any]:
        return {"study": self.study, "rows": [asdict(row) for row in self]}
