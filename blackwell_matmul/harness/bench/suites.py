"""Suites: named lists of problems, in bands with a mean each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.problem.problem import BITS, Problem


@dataclass(frozen=True)
class BenchCase:
    """A problem and its band."""

    problem: Problem
    band: str = ""


@dataclass(frozen=True)
class Layer:
    """A linear layer of a language model: y[m, n] = x[m, k] @ w[n, k].T, whole, on one GPU."""

    model: str
    name: str
    n: int
    k: int


def _layers(model: str, hidden: int, intermediate: int, key_value: int) -> tuple[Layer, ...]:
    """Return attention's input and output, and the halves of a gated MLP. key_value: columns of K and V together."""
    return (
        Layer(model, "qkv", hidden + key_value, hidden),
        Layer(model, "o", hidden, hidden),
        Layer(model, "gate+up", 2 * intermediate, hidden),
        Layer(model, "down", hidden, intermediate),
    )


LAYERS: tuple[Layer, ...] = (
    *_layers("Llama 3 8B", 4096, 14336, 2048),
    *_layers("Llama 3 70B", 8192, 28672, 2048),
    *_layers("Qwen2.5 7B", 3584, 18944, 1024),
    *_layers("Qwen2.5 32B", 5120, 27648, 2048),
)
"""Layers with the sizes of the models' published configurations."""


def layers_of(problem: Problem) -> str:
    """Return the layers with these weights: "Llama 3 8B qkv"."""
    found = [f"{layer.model} {layer.name}" for layer in LAYERS if (layer.n, layer.k) == (problem.n, problem.k)]
    return ", ".join(found)


SMALL_M = (1, 16, 64)
LARGE_M = (128, 512, 2048, 8192)
SQUARES = (1024, 2048, 4096, 8192)
ODD_M = (1, 63, 129, 333, 896, 1000, 1792, 2432)
"""Odd M. 896, 1792 and 2432 leave the last group of tile rows incomplete, which a wrong division would skip."""

ODD_NK = ((4096, 4096), (1032, 1096), (72, 40))
STRESSED = ((4096, 4096, 4096), (1792, 4096, 4096), (2432, 4096, 1024), (1000, 1032, 1096), (129, 8192, 1024))


def _sizes(suite: str) -> list[tuple[str, tuple[int, int, int]]]:
    """Return the problems of a suite: the band, and m, n, k."""
    if suite == "llm":
        shapes = dict.fromkeys((layer.n, layer.k) for layer in LAYERS)
        bands = {"large M": LARGE_M, "small M": SMALL_M}
        return [(band, (m, n, k)) for band, ms in bands.items() for n, k in shapes for m in ms]
    if suite == "odd":
        return [(suite, (m, n, k)) for n, k in ODD_NK for m in ODD_M]
    return (
        [("squares", (size, size, size)) for size in SQUARES] if suite == "ladder" else [(suite, s) for s in STRESSED]
    )


SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"ladder": ("fp16", "bf16"), "llm": ("bf16",), "odd": ("fp16", "bf16"), "stress": ("fp16", "bf16")}
)
"""Suites and their default types."""

OF_SIZE = "size"
"""Suite name for problems of --size."""


def cases(
    suite: str,
    dtypes: Sequence[str] = (),
    size: tuple[int, int, int] | None = None,
    form: Form = PLAIN,
    batches: int = 1,
) -> tuple[BenchCase, ...]:
    """Return a suite's problems, or one size in each type; InputError for an unknown suite or type."""
    if suite not in SUITES and suite != OF_SIZE:
        raise InputError(f"suite is {shown(suite)}; the suites are {', '.join(SUITES)}.")
    for dtype in dtypes:
        if dtype not in BITS:
            raise InputError(f"dtype is {shown(dtype)}; it must be one of {', '.join(BITS)}.")
    if size is not None:
        made = [BenchCase(Problem(*size, dtype)) for dtype in dtypes or ("fp16",)]
    else:
        sizes = _sizes(suite)
        made = [BenchCase(Problem(*mnk, dtype), band) for dtype in dtypes or SUITES[suite] for band, mnk in sizes]
    return tuple(_formed(case, form, batches) for case in made)


def _formed(case: BenchCase, form: Form, batches: int) -> BenchCase:
    """Return the case with a form and batches. A form other than the plain one gets a band of its own in the chart."""
    problem = replace(case.problem, form=form, batches=batches)
    said = [f"{batches} batches"] * (batches > 1) + [str(form)] * (form != PLAIN)
    return BenchCase(problem, ", ".join([case.band] * bool(case.band) + said))
