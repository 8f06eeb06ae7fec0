"""References of a product: scaled operands in float64, and torch's product in the same types."""

from __future__ import annotations

import torch

from blackwell_matmul.problem.form import SCALED_K
from blackwell_matmul.problem.problem import TORCH_NAMES, Problem, c_dtype

TORCH_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, called) for name, called in TORCH_NAMES.items()}
"""torch's element types, by the names in `problem.DTYPES`."""


SCALED_MM_MULTIPLE = 16
"""Divisor that `torch._scaled_mm` requires of n and k."""


def dtype_of_c(problem: Problem) -> torch.dtype:
    named = problem.form.out or c_dtype(problem.dtype)
    return torch.float32 if named == "fp32" else TORCH_DTYPES[named]


def dtype_name(dtype: torch.dtype) -> str:
    """Return this package's name of a type, such as `fp16` for torch.float16; torch's name for other types."""
    names = {value: name for name, value in TORCH_DTYPES.items()}
    return names.get(dtype, str(dtype).removeprefix("torch."))


def scaled_blocks(x: torch.Tensor, scales: torch.Tensor, rows_per_scale: int) -> torch.Tensor:
    """Return 8-bit x[.., rows, k] times its scales, in float64. scales: in the shape of `block_scale_shapes`."""
    rows, k = x.shape[-2:]
    by_rows = scales.T if rows_per_scale == 1 else scales.repeat_interleave(rows_per_scale, 0)
    return x.double() * by_rows[:rows].double().repeat_interleave(SCALED_K, 1)[:, :k]


def torch_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return A @ B.T by torch, in its operands' types: cuBLAS on a GPU, torch's BLAS on a CPU.

    8-bit floats are multiplied by `torch._scaled_mm`, if the GPU supports it and torch accepts the types: Hopper's
    tensor cores keep fewer bits of a sum than fp32. Otherwise their product is computed in fp32.
    """
    if a.element_size() == 1:
        if a.is_cuda and (found := _eight_bit_product(a, b)) is not None:
            return found
        a, b = a.float(), b.float()
    with torch.autocast(a.device.type, enabled=False):  # autocast would change the type
        return a @ b.T


def _eight_bit_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    """Return A @ B.T in fp32 by `torch._scaled_mm`; None if torch refuses. n and k are padded to multiples of 16."""
    n, k = b.shape
    rows, columns = -n % SCALED_MM_MULTIPLE, -k % SCALED_MM_MULTIPLE
    padded = [torch.nn.functional.pad(each.view(torch.uint8), (0, columns, 0, more)).view(each.dtype)
              for each, more in ((a, 0), (b, rows))]  # fmt: skip
    one = torch.ones((), device=a.device)
    try:
        return torch._scaled_mm(padded[0], padded[1].T, one, one, out_dtype=torch.float32)[:, :n]
    except RuntimeError:  # two operands of e5m2, or a GPU without 8-bit tensor cores
        return None
