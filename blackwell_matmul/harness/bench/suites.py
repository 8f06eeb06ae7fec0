"""Suites: named lists of problems, in bands. Each band has its own mean in the results."""

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
    """Sizes of a language model's linear layer on one GPU: y[m, n] = x[m, k] @ w[n, k].T."""

    model: str
    name: str
    n: int
    k: int


def _layers(model: str, hidden: int, intermediate: int, key_value: int) -> tuple[Layer, ...]:
    """Return the linear layers of attention and of a gated MLP. key_value: columns of K and V together."""
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
"""Linear layers, with the sizes of the models' published configurations."""


def layers_of(problem: Problem) -> str:
    """Return the names of the layers with these n and k, such as "Llama 3 8B qkv"; "" for other sizes."""
    found = [f"{layer.model} {layer.name}" for layer in LAYERS if (layer.n, layer.k) == (problem.n, problem.k)]
    return ", ".join(found)


SMALL_M = (1, 16, 64)
LARGE_M = (128, 512, 2048, 8192)
SQUARES = (1024, 2048, 4096, 8192)
ODD_M = (1, 63, 129, 333, 896, 1000, 1792, 2432)
"""Values of M that tiles do not divide. With 896, 1792 and 2432 the last group of tile rows is incomplete; a kernel
with a wrong division would skip this group."""

ODD_NK = ((4096, 4096), (1032, 1096), (72, 40))
STRESSED = ((4096, 4096, 4096), (1792, 4096, 4096), (2432, 4096, 1024), (1000, 1032, 1096), (129, 8192, 1024))


def _sizes(suite: str) -> list[tuple[str, tuple[int, int, int]]]:
    """Return the band and (m, n, k) of each problem of a suite."""
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
"""Default element types, by the name of the suite."""

OF_SIZE = "size"
"""Name of the suite of a problem given by --size."""


def cases(
    suite: str,
    dtypes: Sequence[str] = (),
    size: tuple[int, int, int] | None = None,
    form: Form = PLAIN,
    batches: int = 1,
) -> tuple[BenchCase, ...]:
    """Return the problems of a suite, or one size in each type; raise InputError for an unknown suite or type."""
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
    """Return the case with a form and batches. The band of the case names both, so that its mean is separate."""
    problem = replace(case.problem, form=form, batches=batches)
    said = [f"{batches} batches"] * (batches > 1) + [str(form)] * (form != PLAIN)
    return BenchCase(problem, ", ".join([case.band] * bool(case.band) + said))
