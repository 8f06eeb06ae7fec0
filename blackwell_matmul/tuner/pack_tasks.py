"""Task of a worker: compiles one kernel of a pack as the first call of an operation would compile it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.frontend import import_tilus
from blackwell_matmul.hardware.gpus import gpu_named
from blackwell_matmul.ops.finished import NO_TENSORS, EpilogueTensors
from blackwell_matmul.ops.launching import planned
from blackwell_matmul.ops.operand_checks import DEFAULTS, How
from blackwell_matmul.problem.problem import TORCH_NAMES
from blackwell_matmul.runtime.script_calls import compiled_ahead

import_tilus()  # at import, as children are forked after this module is imported


class ProductOperands(NamedTuple):
    """Operands of a product, as `ops` multiplies them: a[m, k], b[k, n]."""

    a: Tensor
    b: Tensor
    tensors: EpilogueTensors = NO_TENSORS
    how: How = DEFAULTS


def _scaled(x: Tensor, w: Tensor, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> ProductOperands:
    scales = EpilogueTensors(scale_a=torch.empty(of_a), scale_b=torch.empty(of_b))
    return ProductOperands(x, w.T, scales, How(out_dtype=torch.bfloat16))


OPERATIONS: Mapping[str, Callable[[Tensor, Tensor, Tensor], ProductOperands]] = {
    "matmul": lambda x, w, dy: ProductOperands(x, w.T),
    "linear with bias": lambda x, w, dy: ProductOperands(x, w.T, EpilogueTensors(bias=w.new_empty(w.shape[0]))),
    "gradient of x": lambda x, w, dy: ProductOperands(dy, w),
    "gradient of w": lambda x, w, dy: ProductOperands(dy.T, x),
    "scaled_mm": lambda x, w, dy: _scaled(x, w, (), ()),
    "scaled_mm of rows": lambda x, w, dy: _scaled(x, w, (x.shape[0], 1), (1, w.shape[0])),
}
"""Functions that return the operands of a layer's products, by name: y[m, n] = x[m, k] @ w[n, k].T, with dy the
gradient of y."""


def compile_product(
    step: Callable[[str], None], gpu: str, operation: str, m: int, n: int, k: int, dtype: str
) -> dict[str, Any]:
    """Compile a layer's product into the cache. Return the key of each compiled bundle, by its record's name."""
    step(f"compile {operation} {dtype} {m}x{n}x{k}")
    kind, found = getattr(torch, TORCH_NAMES[dtype]), gpu_named(gpu)
    x, w, dy = (torch.empty(shape, dtype=kind) for shape in ((m, k), (n, k), (m, n)))  # no memory is written
    a, b, tensors, how = OPERATIONS[operation](x, w, dy)
    plan = planned(a, b, tensors, found, how.out_dtype or kind, how)
    assert plan is not None  # no size is 0
    made = [compiled_ahead(*call, found) for call in plan.calls(a, b, tensors)]
    if any(record is None or not record.is_file() for record, _ in made):
        raise CompileError("The cache did not keep the kernel.")
    return {record.name: bundle.key for record, bundle in made if record is not None}
