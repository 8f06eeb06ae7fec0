"""Host code of the grouped GEMM: checks of arguments, forms of the tensors, and the choice of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import integer, shown
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.kernels.host.forms import lines_of, why_unreadable
from blackwell_matmul.kernels.host.matmul import (
    ALIGNMENT_BYTES,
    HALVES,
    check_device,
    check_is_tensor,
    check_memory_of_c,
    check_same,
)
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.problem.problem import INT32_MAX, positive

MOST_SMS = 2**16

Sizes = Mapping[str, tuple[int, ...]]
"""Values of each knob, ascending. Shared memory suffices for the largest values of all knobs together."""


# --- checks


def check_product(m: Any, n: Any, k: Any, groups: Any, x: Any, w: Any, offs: Any, c: Any) -> None:
    """Raise InputError for arguments of the grouped GEMM that no schedule can run."""
    m, n, k, groups = _sizes(m, n, k, groups)
    if m * n > INT32_MAX:
        raise InputError(f"c has {m} x {n} elements, counted in 32 bits; multiply at most {INT32_MAX // n} rows.")
    tensors = {"x": x, "w": w, "offs": offs, "c": c}
    _check_alike(tensors, {"x": (m, k), "w": (groups, k, n), "offs": (groups,), "c": (m, n)})
    _check_read("x", why_no_rows(x))
    _check_read("w", why_unreadable(w.mT))
    if not c.is_contiguous():
        raise InputError(f"c has strides {tuple(c.stride())}; its rows must follow each other.")
    if n * c.element_size() % ALIGNMENT_BYTES == 0 and c.data_ptr() % ALIGNMENT_BYTES:
        raise InputError(f"c does not start at a multiple of {ALIGNMENT_BYTES} bytes; c.clone() does.")


def check_sums(m: Any, n: Any, k: Any, groups: Any, x: Any, y: Any, offs: Any, c: Any) -> None:
    """Raise InputError for arguments of the gradient that no schedule can run."""
    m, n, k, groups = _sizes(m, n, k, groups)
    tensors = {"x": x, "y": y, "offs": offs, "c": c}
    _check_alike(tensors, {"x": (m, k), "y": (m, n), "offs": (groups,), "c": (groups, k, n)})
    _check_read("x", why_no_rows(x))
    _check_read("y", why_no_rows(y))
    of_c, line, step = c.stride()
    if step != 1 or of_c != k * line or (line * c.element_size() | c.data_ptr()) % ALIGNMENT_BYTES:
        raise InputError(f"c has strides {tuple(c.stride())}; its rows must begin at multiples of 16 bytes.")


def why_no_rows(x: Any) -> str:
    """Return the reason why TMA cannot read groups of x's rows in place; "" if it can."""
    if not why_unreadable(x) and not lines_of(x).k_major:
        return "it is not contiguous along its rows, and a group may begin at any of them"
    return why_unreadable(x)


def check_types(x: Any, other: Any, offs: Any, first: str = "x", second: str = "w") -> None:
    """Raise InputError for a wrong type of the operands or of offs. first, second: names of the operands."""
    if x.dtype not in HALVES:
        raise InputError(f"{first} is {x.dtype}; it must be {' or '.join(map(str, HALVES))}.")
    check_same("type", {first: str(x.dtype), second: str(other.dtype)})
    if offs.dtype != torch.int32:
        raise InputError(f"offs is {offs.dtype}; it must be torch.int32, as offs.int() is.")


def _sizes(*sizes: Any) -> list[int]:
    return [positive(name, size) for name, size in zip(("m", "n", "k", "groups"), sizes, strict=True)]


def _check_alike(tensors: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InputError for a wrong shape, type or device of a tensor."""
    for name, tensor in tensors.items():
        check_is_tensor(name, tensor)
        if tuple(tensor.shape) != shapes[name]:
            raise InputError(f"{name} has shape {tuple(tensor.shape)}; it must be {shapes[name]}.")
    check_device(tensors)
    first, second, offs, c = tensors.values()
    check_types(first, second, offs, *list(tensors)[:2])
    check_same("type", {"x": str(first.dtype), "c": str(c.dtype)})
    if not offs.is_contiguous():
        raise InputError(f"offs has strides {tuple(offs.stride())}; offs.contiguous() works.")
    check_memory_of_c(c, {name: tensor for name, tensor in tensors.items() if name != "c"})


def _check_read(name: str, reason: str) -> None:
    if reason:
        raise InputError(f"{name} cannot be read where it is: {reason}; grouped_matmul makes a copy that can.")


# --- forms and schedules


def form_of_product(x: Any, w: Any) -> Form:
    """Return the form of x[m, k] and w[groups, k, n]."""
    left, right = lines_of(x), lines_of(w.mT)
    major = "k" if right.k_major else "n"
    return replace(PLAIN, a_stride=left.stride, b_major=major, b_stride=right.stride, b_batch_stride=right.batch_stride)


def form_of_sums(x: Any, y: Any, c: Any) -> Form:
    """Return the form of x[m, k], y[m, n] and c[groups, k, n]."""
    return replace(PLAIN, a_stride=lines_of(x).stride, b_stride=lines_of(y).stride, c_stride=c.stride()[-2])


def check_knobs(sizes: Sizes, pins: Mapping[str, object]) -> None:
    for name, value in pins.items():
        if name in sizes and value not in sizes[name]:
            raise InputError(f"{name} is {shown(value)}; it must be {' or '.join(map(str, sizes[name]))}.")
    if "sm_count" in pins and integer(pins["sm_count"], 1, MOST_SMS) is None:
        raise InputError(f"sm_count is {shown(pins['sm_count'])}; it must be an integer from 1 to {MOST_SMS}.")


def chosen(sizes: Sizes, gpu: Gpu, rows: int, columns: int) -> dict[str, int]:
    """Return the largest value of each knob, but the smallest tile that has `rows` rows and `columns` columns."""
    largest = {name: values[-1] for name, values in sizes.items()}
    extents = {"block_m": rows, "block_n": columns}
    fit = {
        name: min((size for size in sizes[name] if size >= extents[name]), default=largest[name]) for name in extents
    }
    return {**largest, **fit, "sm_count": gpu.sm_count}
