"""The rows of a study in one JSON file, which a second run goes on with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from blackwell_matmul.errors import InputError
from blackwell_matmul.harness.bench.results import Machine

FORMAT = 1
Status = Literal["done", "refused", "failed", "hung"]


@dataclass(frozen=True)
class Row:
    """How a trial ended. result: of one that is done; reason: why another is not, and at, the step it was at."""

    trial: str
    status: Status
    result: Mapping[str, Any] | None = None
    reason: str = ""
    at: str = ""


class Sheet:
    """`<folder>/<study>.json`. InputError if it is another GPU's, or no such file of this version."""

    def __init__(self, folder: Path, study: str, machine: Machine) -> None:
        self.file, self.study, self.machine = folder / f"{study}.json", study, machine
        found = _read(self.file)
        if found and Machine(**found["machine"]).identity != machine.identity:
            was = Machine(**found["machine"])
            raise InputError(
                f"{self.file} has figures of {was} and this is {machine}; choose another folder with --out."
            )
        self._rows = {row["trial"]: Row(**row) for row in found.get("rows", ())}

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows.values())

    def __contains__(self, trial: str) -> bool:
        return trial in self._rows

    def result(self, trial: str) -> Mapping[str, Any] | None:
        """Of a trial that is done; None for any other."""
        return self._rows[trial].result if trial in self._rows else None

    def put(self, row: Row) -> None:
        """Kept at once, whole or not at all."""
        self._rows[row.trial] = row
        self.file.parent.mkdir(parents=True, exist_ok=True)
        draft = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        draft.write_text(json.dumps(self.as_dict(), indent=1, allow_nan=False), encoding="utf-8")
        draft.replace(self.file)

    def forget(self) -> None:
        self._rows.clear()

    def as_dict(self) -> dict[str, Any]:
        rows = [asdict(row) for row in self]
        return {"format": FORMAT, "study": self.study, "machine": asdict(self.machine), "rows": rows}


def saved(folder: Path, study: str) -> Sheet:
    """As a run has left it; InputError where there is none."""
    file = folder / f"{study}.json"
    if not (found := _read(file)):
        raise InputError(f"{file} is not there; bench --suite {study} --out {folder} makes it.")
    return Sheet(folder, study, Machine(**found["machine"]))


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT or "rows" not in found:
        raise InputError(f"{file} is no result of this version of bench; move it away, or choose another --out.")
    return found
