"""What is said of what threads do, above all of an epilogue: that other warps could do it meanwhile, or do."""

from __future__ import annotations

from blackwell_matmul.simulator.timing.explain_launch import Gain
from blackwell_matmul.simulator.timing.thread_watches import BesideWatch
from blackwell_matmul.simulator.timing.what_if import PathPart, PredictedRun


def told_of_threads(run: PredictedRun, part: PathPart, name: str, gain: float) -> Gain:
    """gain: if it took no time; done meanwhile, it still takes as long as it does."""
    watch = BesideWatch({(cause.name, cause.location) for cause in part.causes})
    run.watch(watch)
    meanwhile = min(gain, 1 - gain)
    if not watch.beside:
        return gain, f"{name}: {_by_others(gain, meanwhile)}."
    if len(watch.given_back) == 1:
        (place,) = watch.given_back
        meanwhile *= 1 - 1 / watch.times(place)  # nothing is left to multiply during the last one
        return meanwhile, (
            f"{name}: other warps do this, but the tensor core waits for {place}, the one place that they give back;"
            f" with a second one it multiplies meanwhile: {meanwhile:.0%} fewer cycles."
        )
    return gain, (
        f"{name}: other warps do this while the tensor core multiplies, and take longer; fewer, larger pieces take"
        f" less, and if it took no time: {gain:.0%} fewer cycles."
    )


def _by_others(gain: float, meanwhile: float) -> str:
    if meanwhile == gain:
        return f"if this took no time, or other warps did it while the tensor core multiplies: {gain:.0%} fewer cycles"
    return (
        f"if this took no time, {gain:.0%} fewer cycles; if other warps did it while the tensor core multiplies,"
        f" {meanwhile:.0%}"
    )
