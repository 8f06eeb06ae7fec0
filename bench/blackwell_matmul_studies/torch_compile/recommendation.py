"""From the rows of a study to what to switch on: means over the same workloads, and the cheapest of the best."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from blackwell_matmul_studies.study_results import TrialRow
from blackwell_matmul_studies.torch_compile import BETWEEN
from blackwell_matmul_studies.torch_compile.configurations import VARIABLES

What = Literal["kernels", "calls"]
"""The GPU's time for the kernels, or what plain calls take, Python and launches included."""

HELPS = 1.02
"""Less is noise: times of two processes differ by as much."""

TOLERATED = 2.0
"""Times eager's own error."""


@dataclass(frozen=True)
class Figure:
    """A row of the study. result: None for one that is not done."""

    configuration: str
    workload: str
    result: Mapping[str, Any] | None = None
    reason: str = ""

    def time_us(self, who: Literal["eager", "compiled"], what: What) -> float | None:
        timing = (self.result or {}).get("timings", {}).get(f"{who} {what}")
        return None if timing is None else float(timing["median_us"])

    def speed_up(self, what: What) -> float | None:
        eager, compiled = self.time_us("eager", what), self.time_us("compiled", what)
        return eager / compiled if eager and compiled else None

    @property
    def error_ratio(self) -> float | None:
        """Of its error to eager's; None where eager has none."""
        assert self.result is not None
        return self.result["error"] / self.result["eager_error"] if self.result["eager_error"] else None

    @property
    def problem(self) -> str:
        """Why it must not be recommended; empty: nothing."""
        if self.result is None:
            return self.reason
        if self.result["error"] > TOLERATED * self.result["eager_error"]:
            return f"its error is {self.result['error']:.3g} and eager's {self.result['eager_error']:.3g}"
        if self.result["dynamic"]:
            return "its sizes turned dynamic, and such kernels are slow"
        times = self.result["compiled_times"]
        return f"it was compiled {times} times, although no size changed" if times > 1 else ""


def figures(rows: Iterable[TrialRow]) -> list[Figure]:
    found = []
    for row in rows:
        configuration, between, workload = row.trial.partition(BETWEEN)
        if between:
            at = f" ({row.at})" if row.at else ""
            found.append(Figure(configuration, workload, row.result, f"{row.status}{at}: {row.reason}"))
    return found


@dataclass(frozen=True)
class ConfigurationMean:
    """Of a configuration: geometric means of its speed-ups, over `good` of the `of` workloads that all configurations
    have been tried on; the median of its compile times."""

    configuration: str
    options: Mapping[str, bool] = field(default_factory=dict)
    kernels: float | None = None
    calls: float | None = None
    good: int = 0
    of: int = 0
    compile_s: float = 0.0

    def speed_up(self, what: What) -> float | None:
        return self.kernels if what == "kernels" else self.calls


def means(found: Sequence[Figure]) -> list[ConfigurationMean]:
    field_ = _field(found)
    return [_mean(name, [each for each in field_ if each.configuration == name]) for name in _configurations(field_)]


def _field(found: Sequence[Figure]) -> list[Figure]:
    """The workloads that as many configurations were tried on as on any."""
    tried: dict[str, list[Figure]] = {}
    for each in found:
        tried.setdefault(each.workload, []).append(each)
    most = max(map(len, tried.values()), default=0)
    return [each for members in tried.values() if len(members) == most for each in members]


def _configurations(found: Iterable[Figure]) -> list[str]:
    return list(dict.fromkeys(each.configuration for each in found))


def _mean(name: str, members: Sequence[Figure]) -> ConfigurationMean:
    good = [each for each in members if not each.problem]
    results = [each.result for each in good if each.result is not None]
    if not results:
        return ConfigurationMean(name, of=len(members))
    kernels, calls = _geometric(good, "kernels"), _geometric(good, "calls")
    compile_s = statistics.median(result["compile_s"] for result in results)
    return ConfigurationMean(name, results[0]["options"], kernels, calls, len(good), len(members), compile_s)


def _geometric(members: Sequence[Figure], what: What) -> float | None:
    """None unless each has one: means over different workloads do not compare."""
    found = [each.speed_up(what) for each in members]
    known = [each for each in found if each is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known and len(known) == len(found) else None


def recommended(found: Sequence[ConfigurationMean], what: What) -> ConfigurationMean | None:
    """The one that compiles fastest of those that are as good as the best; None where nothing beats eager. One that
    failed or was wrong on any workload is none."""
    whole = [(each.speed_up(what) or 0.0, each) for each in found if each.good == each.of]
    best = max((value for value, _ in whole), default=0.0)
    if best < HELPS:
        return None
    return min((each for value, each in whole if value * HELPS >= best), key=lambda each: each.compile_s)


def snippet(mean: ConfigurationMean) -> str:
    """To paste into a program."""
    if not mean.options:
        return "model = torch.compile(model, dynamic=False)"
    options = [f'    "{name}": {value},' for name, value in mean.options.items()]
    return "\n".join(["model = torch.compile(model, dynamic=False, options={", *options, "})"])


def exports(mean: ConfigurationMean) -> str:
    """To paste into the shell that starts a program, for all that a variable sets."""
    return "\n".join(f"export {VARIABLES[name]}=1" for name in mean.options if name in VARIABLES)


def without_variable(mean: ConfigurationMean) -> list[str]:
    """The options that no environment variable sets."""
    return [name for name in mean.options if name not in VARIABLES]
