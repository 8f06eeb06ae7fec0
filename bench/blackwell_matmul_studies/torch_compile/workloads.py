"""The workloads: linear layers of real models, an MLP block, attention, and the matmuls of other types.

`Workload` is plain data, for the trial; `kinds` makes tensors and functions of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from blackwell_matmul.harness.bench.suites import LAYERS, Layer


@dataclass(frozen=True)
class Workload:
    """kind: a function of `kinds`, which takes the sizes and the element type."""

    name: str
    kind: str
    sizes: Mapping[str, int]
    dtype: str


_MODELS = (
    Layer("Llama 2 7B", "gate+up", 22016, 4096),
    Layer("Llama 2 7B", "down", 4096, 11008),
    *(layer for layer in LAYERS if layer.model == "Llama 3 8B" and layer.name != "o"),
    Layer("GPT-2", "up", 3072, 768),
    Layer("GPT-2", "head", 50257, 768),
    Layer("GPT-J 6B", "up", 16384, 4096),
    Layer("GPT-NeoX 20B", "qkv", 18432, 6144),
    Layer("T5 11B", "wi", 65536, 1024),
    Layer("T5 11B", "wo", 1024, 65536),
    Layer("BERT large", "up", 4096, 1024),
)
"""Sizes as in the models' published configurations. The head of GPT-2 has an odd N, so that TMA cannot store its
output; wo of T5 is all K."""

ROWS_OF_A = (1, 16, 256, 2048, 8192)
"""One token, a batch of them, and prompts."""

_MLP = {"hidden": 4096, "intermediate": 14336}
_ATTENTION = {"batch": 2, "length": 2048, "heads": 32, "width": 128}


def _linear(layers: Iterable[Layer], ms: Iterable[int], dtype: str, kind: str = "linear") -> Iterator[Workload]:
    for layer in layers:
        for m in ms:
            name = f"{layer.model} {layer.name} m={m} {dtype}"
            yield Workload(name, kind, {"m": m, "n": layer.n, "k": layer.k}, dtype)


def _blocks(dtype: str) -> Iterator[Workload]:
    for m in (1, 256, 4096):
        yield Workload(f"Llama 3 8B MLP m={m} {dtype}", "mlp", {"m": m, **_MLP}, dtype)
    yield Workload(f"Llama 2 7B attention 2x2048 {dtype}", "attention", _ATTENTION, dtype)


_LLAMA = tuple(layer for layer in _MODELS if layer.model == "Llama 3 8B")
_QUICK = (
    *_linear(_LLAMA[1:2], (2048,), "bf16"),
    *_linear(_LLAMA[:1], (16,), "bf16"),
    *_linear([layer for layer in _MODELS if layer.model == "GPT-2"][:1], (8192,), "bf16"),
)
FEW_WORKLOADS = _QUICK
"""Of --quick: a large matmul, one that is all weights, and one of a small model."""

ALL_WORKLOADS = (
    *FEW_WORKLOADS,
    *(each for each in _linear(_MODELS, ROWS_OF_A, "bf16") if each not in FEW_WORKLOADS),
    *_blocks("bf16"),
    *_linear(_MODELS, (2048,), "fp16"),
    *_blocks("fp16"),
    *_linear(_LLAMA, (16, 256, 2048, 8192), "fp8", "scaled"),
)
LONELY = (
    *_linear(_LLAMA[1:2], (2048,), "int8", "integer"),
    Workload("FlexAttention causal 2x2048 bf16", "flex", _ATTENTION, "bf16"),
)
"""With one configuration each."""
