"""Products of groups of rows, outside of the device code: what fits, how x and w lie in memory, and a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from blackwell_matmul.errors import InputError
from blackwell_matmul.form import PLAIN, Form
from blackwell_matmul.gpus import Gpu
from blackwell_matmul.kernels.forms import lines_of, why_unreadable
from blackwell_matmul.kernels.matmul import check_device, check_is_tensor, check_memory_of_c, check_same
from blackwell_matmul.problem import positive
from blackwell_matmul.validation import integer, shown

HALVES = (torch.float16, torch.bfloat16)
MOST_SMS = 2**16

Sizes = Mapping[str, tuple[int, ...]]
"""What a schedule can be made of, by knob, smallest first; shared memory holds the largest of all."""

def why_no_x(x: Any) -> str:
    """Why TMA cannot read the rows of groups where they are; "" if it can."""
    if not why_unreadable(x) and not lines_of(x).k_major:
        return "it is not contiguous along its rows, and a group may begin at any of them"
    return why_unreadable(x)


def form_of(x: Any, w: Any) -> Form:
    """How x[m, k] and w[groups, k, n] lie in memory."""
    left, right = lines_of(x), lines_of(w.mT)
    major = "k" if right.k_major else "n"
    return replace(
        PLAIN, a_stride=left.stride, b_major=major, b_stride=right.stride, b_batch_stride=right.batch_stride
    )


def check_knobs(sizes: Sizes, pins: Mapping[str, object]) -> None:
    for name, value in pins.items():
        if name in sizes and value not in sizes[name]:
            raise InputError(f"{name} is {shown(value)}; it must be {' or '.join(map(str, sizes[name]))}.")
    if "sm_count" in pins and integer(pins["sm_count"], 1, MOST_SMS) is None:
        raise InputError(f"sm_count is {shown(pins['sm_count'])}; it must be an integer from 1 to {MOST_SMS}.")


def chosen(sizes: Sizes, gpu: Gpu, rows: int, columns: int) -> dict[str, int]:
    """The largest tiles, or smaller ones that hold a group's rows, in the mean, or all columns."""
    largest = {name: values[-1] for name, values in sizes.items()}
    extents = {"block_m": rows, "block_n": columns}
    fit = {name: min((size for size in sizes[name] if size >= extents[name]), default=largest[name]) for name in extents}
    return {**largest, **fit, "sm_count": gpu.sm_count}


def check_call(m: Any, n: Any, k: Any, groups: Any, x: Any, w: Any, offs: Any, c: Any) -> None:
    """Raise InputError, one sentence, for arguments that no schedule could run."""
    m, n, k, groups = (positive(*each) for each in (("m", m), ("n", n), ("k", k), ("groups", groups)))
    tensors = {"x": x, "w": w, "offs": offs, "c": c}
    wanted = {"x": (m, k), "w": (groups, k, n), "offs": (groups,), "c": (m, n)}
    for name, tensor in tensors.items():
        check_is_tensor(name, tensor)
        if tuple(tensor.shape) != wanted[name]:
            raise InputError(f"{name} has shape {tuple(tensor.shape)}; it must be {wanted[name]}.")
    check_device(tensors)
    check_types(x, w, offs)
    check_same("type", {"x": str(x.dtype), "c": str(c.dtype)})
    for name, reason in (("x", why_no_x(x)), ("w", why_unreadable(w.mT))):
        if reason:
            raise InputError(f"{name} cannot be read where it is: {reason}; grouped_matmul copies it first.")
    for name in ("offs", "c"):
        if not tensors[name].is_contiguous():
            raise InputError(f"{name} has strides {tuple(tensors[name].stride())}; {name}.contiguous() works.")
    check_memory_of_c(x, w, c)


def check_types(x: Any, w: Any, offs: Any) -> None:
    """Of the operands, and of the ends of the groups."""
    if x.dtype not in HALVES:
        raise InputError(f"x is {x.dtype}; it must be {' or '.join(map(str, HALVES))}.")
    check_same("type", {"x": str(x.dtype), "w": str(w.dtype)})
    if offs.dtype != torch.int32:
        raise InputError(f"offs is {offs.dtype}; it must be torch.int32, as offs.int() is.")
