"""Results: a row for each contender and problem, in one JSON file that a later run continues.

Rows that were timed together share a session. A percentage of cuBLAS is computed within one session.
"""

from __future__ import annotations

import math
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.files import write_json
from blackwell_matmul.base.records import content_of, parsed
from blackwell_matmul.harness.bench.contenders import CUBLAS
from blackwell_matmul.harness.bench.protocol import Timing
from blackwell_matmul.problem.problem import Problem

FILE = "results.json"
RESULTS_FORMAT = 1

Status = Literal["correct", "wrong", "refused", "failed"]


@dataclass(frozen=True)
class BenchRow:
    """Results of one contender on one problem.

    status: result of the check. reason: message, if the status is not "correct". error, cublas_error: largest error of
    the contender and of cuBLAS, against float64. timing: None if the contender was not timed; untimed: the reason.
    cublas_us: cuBLAS's median in the same session. stress: result of the repetitions. code: from `bundles.code_of`.
    """

    contender: str
    problem: Problem
    band: str = ""
    status: Status = "correct"
    reason: str = ""
    schedule: Mapping[str, Any] = field(default_factory=dict)
    error: float | None = None
    cublas_error: float | None = None
    timing: Timing | None = None
    launched_by: str = ""
    untimed: str = ""
    session: str = ""
    cublas_us: float | None = None
    stress: Mapping[str, Any] | None = None
    code: str = ""

    @property
    def key(self) -> tuple[str, Problem]:
        return self.contender, self.problem

    @property
    def tflops(self) -> float | None:
        return None if self.timing is None else self.problem.flops / self.timing.median_us / 1e6

    @property
    def percent_of_cublas(self) -> float | None:
        if self.timing is None or self.cublas_us is None:
            return None
        return 100 * self.cublas_us / self.timing.median_us

    def percent_of_peak(self, peak_tflops: float | None) -> float | None:
        return None if self.tflops is None or peak_tflops is None else 100 * self.tflops / peak_tflops

    def as_dict(self, peak_tflops: float | None) -> dict[str, Any]:
        derived = {
            "tflops": self.tflops,
            "percent_of_cublas": self.percent_of_cublas,
            "percent_of_peak": self.percent_of_peak(peak_tflops),
        }
        return {**asdict(self), "problem": self.problem.as_dict(), **derived}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> BenchRow:
        known = {name: record[name] for name in cls.__dataclass_fields__ if name in record}
        timing = known.get("timing")
        known["timing"] = None if timing is None else Timing(**timing)
        known["problem"] = Problem.from_dict(known["problem"])
        return cls(**known)


@dataclass(frozen=True)
class Machine:
    """The machine of a measurement. identity: name and SM count of the GPU; times of another identity do not compare.
    about: other facts."""

    gpu: str
    arch: str
    sm_count: int
    peak_tflops: float | None
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, int]:
        return self.gpu, self.sm_count

    def __str__(self) -> str:
        return f"{self.gpu} ({self.arch}, {self.sm_count} SMs)"


class ResultFile(ABC):
    """A JSON file of one machine's results, which a later run continues.

    part: key that the file must have. content: content of the file; empty without a file. Raises InputError for a file
    of another machine or without this part.
    """

    def __init__(self, file: Path, part: str, machine: Machine) -> None:
        self.file, self.machine, self.content = file, machine, read_whole(file, "machine", part)
        with as_written(file):
            self.read_parts()
            was = Machine(**self.content["machine"]) if self.content else machine
        if machine.identity != was.identity:
            raise InputError(f"{file} has figures of {was} and this is {machine}; choose another folder with --out.")

    @abstractmethod
    def read_parts(self) -> None:
        """Set the fields from `content`."""

    @abstractmethod
    def parts(self) -> dict[str, Any]:
        """Return the content to save, without format and machine."""

    def as_dict(self) -> dict[str, Any]:
        return {"format": RESULTS_FORMAT, "machine": asdict(self.machine), **self.parts()}

    def save(self) -> None:
        """Save the file. A run saves after each step, so that an interrupt loses at most one step."""
        write_json(self.file, self.as_dict())


class SuiteResults(ResultFile):
    """Rows of one suite, by contender and problem. The file of a folder may have several suites."""

    def __init__(self, folder: Path, suite: str, machine: Machine) -> None:
        self.suite = suite
        super().__init__(folder / FILE, "suites", machine)

    def read_parts(self) -> None:
        mine = self.content["suites"].get(self.suite, {}) if self.content else {}
        self.sessions: dict[str, Any] = dict(mine.get("sessions", {}))
        self._rows = {row.key: row for row in map(BenchRow.from_dict, mine.get("rows", ()))}

    def __iter__(self) -> Iterator[BenchRow]:
        return iter(self._rows.values())

    def get(self, contender: str, problem: Problem) -> BenchRow | None:
        return self._rows.get((contender, problem))

    def row(self, contender: str, problem: Problem) -> BenchRow:
        """Return an existing row."""
        return self._rows[contender, problem]

    def put(self, row: BenchRow) -> None:
        self._rows[row.key] = row

    def forget(self, keys: Iterable[tuple[str, Problem]]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    def parts(self) -> dict[str, Any]:
        """Return the content of all suites, with the current rows of this suite."""
        rows = [row.as_dict(self.machine.peak_tflops) for row in self]
        return {"suites": {**self.content.get("suites", {}), self.suite: {"rows": rows, "sessions": self.sessions}}}


def read_whole(file: Path, *names: str) -> dict[str, Any]:
    """Return the content of a results file; an empty dict without a file.

    Raises InputError for a file of another format, or without the keys `names`.
    """
    if not file.exists():
        return {}
    try:
        found = parsed(content_of(file))
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != RESULTS_FORMAT or not found.keys() >= set(names):
        raise _no_result(file)
    return found


@contextmanager
def as_written(file: Path) -> Iterator[None]:
    """Turn errors inside the block into an InputError that says that the file is not readable."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _no_result(file) from error


def _no_result(file: Path) -> InputError:
    return InputError(f"{file} is no result of this version of bench; move it away, or choose another --out.")


def require_writable(folder: Path) -> None:
    """Make the folder, and raise InputError if files cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise InputError(f"cannot write to the folder {folder}: {why}; choose another with --out.") from error


def saved_results(folder: Path) -> list[SuiteResults]:
    """Return the results of each suite saved in a folder; raise InputError if there are none."""
    whole = read_whole(folder / FILE, "machine", "suites")
    if not whole:
        raise InputError(f"{folder} has no {FILE}; bench --out {folder} makes one.")
    with as_written(folder / FILE):
        machine, suites = Machine(**whole["machine"]), list(whole["suites"])
    return [SuiteResults(folder, suite, machine) for suite in suites]


@dataclass(frozen=True)
class Mean:
    """Geometric mean of a contender's percentages of cuBLAS in a band. problems: number of timed problems. of: number
    of all problems."""

    contender: str
    band: str
    percent: float
    problems: int
    of: int


def means(rows: Sequence[BenchRow]) -> list[Mean]:
    groups: dict[tuple[str, str], list[BenchRow]] = {}
    for row in rows:
        if row.contender != CUBLAS:
            groups.setdefault((row.contender, row.band), []).append(row)
    found = []
    for (contender, band), members in groups.items():
        percents = [row.percent_of_cublas for row in members if row.percent_of_cublas is not None]
        if percents:
            mean = math.exp(sum(map(math.log, percents)) / len(percents))
            found.append(Mean(contender, band, mean, len(percents), len(members)))
    return found
