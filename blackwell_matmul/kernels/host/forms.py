"""For kernels that take any `Form`: the form and the checks of a call's tensors, and why TMA cannot read a tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.kernels.host.matmul import (
    ALIGNMENT_BYTES,
    HALVES,
    check_device,
    check_dtype,
    check_is_tensor,
    check_memory_of_c,
    check_same,
    size,
)
from blackwell_matmul.problem.form import BLOCK_SCALES, PLAIN, Epilogue, Form, block_scale_shapes
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, SIXTEEN_BITS, Problem, c_dtype

ABSENT = 0
"""Argument in place of a tensor that the epilogue lacks: a null pointer."""

OUTPUTS = {**dict(zip(HALVES, SIXTEEN_BITS)), torch.float32: "fp32"}


@dataclass(frozen=True)
class Lines:
    """Layout of a matrix, or of a batch of matrices, in memory. A line is a contiguous row or column.

    k_major: True if lines are along k. stride: elements from a line to the next; 0: packed. batched: True for several
    matrices. batch_stride: elements from a matrix to the next; 0: packed.
    """

    k_major: bool
    stride: int
    batched: bool
    batch_stride: int


def lines_of(tensor: Any) -> Lines:
    """Return the layout of A[m, k] or B[n, k], or of a batch of them, for a tensor that TMA can read."""
    rows, k = tensor.shape[-2:]
    by_row, along_k = tensor.stride()[-2:]
    k_major = along_k == 1 or (k == 1 and by_row != 1)
    line, length, count = (by_row, k, rows) if k_major else (along_k, rows, k)
    stride = _stride(line, length, count, tensor.element_size())
    batched = tensor.dim() == 3 and tensor.shape[0] > 1
    between = tensor.stride()[0] if batched else 0
    packed = between == (stride or length) * count
    return Lines(k_major, stride, batched, 0 if packed else between)


def _stride(line: int, length: int, count: int, item_bytes: int) -> int:
    """Return the stride from a line to the next; 0 if lines are packed. A single line gets a stride that TMA allows."""
    step = ALIGNMENT_BYTES // item_bytes
    found = -(-length // step) * step if count == 1 else line
    return 0 if found == length else found


def why_unreadable(tensor: Any) -> str:
    """Return the reason why TMA cannot read a tensor A or B in place; "" if it can."""
    item, shape, strides = tensor.element_size(), tensor.shape, tensor.stride()
    inner = [dim for dim in (-1, -2) if strides[dim] == 1 or shape[dim] == 1]
    if not inner:
        return f"neither of its last two dimensions is contiguous (strides {tuple(strides)})"
    found = lines_of(tensor)
    if item != 2 and not found.k_major:
        return "with 8 bits it has to be contiguous along k"
    line, count = (strides[-2], shape[-2]) if found.k_major else (strides[-1], shape[-1])
    if line == 0 and count > 1:
        return "its lines are all the same"
    outer = [found.stride or shape[-1 if found.k_major else -2]] + ([found.batch_stride] if found.batch_stride else [])
    for stride in outer:
        if stride * item % ALIGNMENT_BYTES or stride <= 0:
            return f"its lines are {stride * item} bytes apart, which is no multiple of {ALIGNMENT_BYTES}"
    if found.batched and strides[0] == 0:
        return "its batches are all the same"
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        return f"it does not start at a multiple of {ALIGNMENT_BYTES} bytes"
    return ""


def problem_of(form: Form, args: tuple[Any, ...]) -> Problem:
    """Return the problem of a call.

    form: the pinned form, which has activation, alpha, beta, scales of blocks, fast_accum and divides_k. All other
    fields follow from the tensors.
    """
    m, n, k, a, b, c, bias, residual, scale_a, scale_b, batches = args
    left, right = lines_of(a), lines_of(b)
    pinned, out = form.epilogue, OUTPUTS[c.dtype]
    scale = "none" if scale_a is ABSENT else "tensor" if scale_a.numel() == scale_b.numel() == 1 else "rowwise"
    scale = pinned.scale if pinned.scale in BLOCK_SCALES else scale
    epilogue = replace(pinned, bias=bias is not ABSENT, residual=residual is not ABSENT, scale=scale)
    dtype = DTYPE_OF_TORCH[str(a.dtype)]
    found = Form(
        a_major="k" if left.k_major else "m",
        b_major="k" if right.k_major else "n",
        a_stride=left.stride,
        b_stride=right.stride,
        a_batched=left.batched or batches == 1,
        b_batched=right.batched or batches == 1,
        a_batch_stride=left.batch_stride,
        b_batch_stride=right.batch_stride,
        c_stride=_stride(c.stride()[-2], c.shape[-1], c.shape[-2] * int(batches), c.element_size()),
        out="" if out == c_dtype(dtype) else out,
        fast_accum=form.fast_accum and a.element_size() == 1,
        divides_k=form.divides_k,
        epilogue=epilogue,
    )
    _check_agrees(form, found, n, c)
    _check_scales(scale, m, n, k, scale_a, scale_b)
    return Problem(int(m), int(n), int(k), dtype, PLAIN if found == PLAIN else found, int(batches))


def _check_agrees(form: Form, found: Form, n: int, c: Any) -> None:
    """Raise InputError if the tensors' form `found` contradicts the pinned form, or C has other columns."""
    for name in ("bias", "residual"):
        if getattr(form.epilogue, name) and not getattr(found.epilogue, name):
            raise InputError(f"The epilogue has a {name} and the call has none; pass {name}=.")
    columns = n // found.epilogue.columns_of_c
    if c.shape[-1] != columns:
        raise InputError(f"c has {c.shape[-1]} columns; with {found.epilogue.activation} it must have {columns}.")
    if found.epilogue.columns_of_c > 1 and found.epilogue.residual:
        raise InputError("swiglu takes no residual: it would have two columns for each of C; add it afterwards.")


def check_call(
    m: Any, n: Any, k: Any, a: Any, b: Any, c: Any, bias: Any, residual: Any, scale_a: Any, scale_b: Any, batches: Any
) -> None:
    """Raise InputError for arguments that no schedule can run."""
    sizes = {name: size(name, value) for name, value in (("m", m), ("n", n), ("k", k), ("batches", batches))}
    extra = {"bias": bias, "residual": residual, "scale_a": scale_a, "scale_b": scale_b}
    given = {name: value for name, value in extra.items() if value is not ABSENT}
    tensors = {"a": a, "b": b, "c": c, **given}
    for name, tensor in tensors.items():
        check_is_tensor(name, tensor)
    for name in ("a", "b"):
        check_dtype(name, tensors[name])
    check_same("type", {"a": str(a.dtype), "b": str(b.dtype)})
    check_device(tensors)
    for name, dims in (("a", "mk"), ("b", "nk")):
        _check_shape(name, tensors[name], tuple(sizes[dim] for dim in dims), sizes["batches"], one_for_all=True)
        reason = why_unreadable(tensors[name])
        if reason:
            raise InputError(f"{name} cannot be read where it is: {reason}; {name}.contiguous() can, with padded rows.")
    _check_c(c, sizes)
    check_extra(given, c, sizes)
    check_memory_of_c(c, {name: tensor for name, tensor in tensors.items() if name != "c"})


def _check_shape(name: str, tensor: Any, matrix: tuple[int, ...], batches: int, one_for_all: bool = False) -> None:
    able = (
        [(batches, *matrix)]
        + ([(1, *matrix)] if one_for_all else [])
        + ([matrix] if batches == 1 or one_for_all else [])
    )
    if tuple(tensor.shape) not in able:
        raise InputError(
            f"{name} has shape {tuple(tensor.shape)}; it must be {' or '.join(map(str, dict.fromkeys(able)))}."
        )


def _check_c(c: Any, sizes: dict[str, int]) -> None:
    if c.dtype not in OUTPUTS:
        raise InputError(f"c is {c.dtype}; it must be {', '.join(map(str, OUTPUTS))}.")
    m, n, batches = sizes["m"], sizes["n"], sizes["batches"]
    able = [shape for columns in dict.fromkeys((n, n // 2)) for shape in ((batches, m, columns), (m, columns))]
    if tuple(c.shape) not in able[:: 1 if batches == 1 else 2]:
        raise InputError(f"c has shape {tuple(c.shape)}; it must be {able[0 if batches > 1 else 1]}.")
    line = c.stride()[-2]
    packed = c.dim() == 2 or batches == 1 or c.stride()[0] == m * line
    if c.is_contiguous() and not c.data_ptr() % ALIGNMENT_BYTES:
        return
    if (
        c.stride()[-1] != 1
        or line < c.shape[-1]
        or not packed
        or (line * c.element_size() | c.data_ptr()) % ALIGNMENT_BYTES
    ):
        raise InputError(
            f"c has shape {tuple(c.shape)} and strides {tuple(c.stride())}; its rows must be contiguous, and begin at "
            "multiples of 16 bytes."
        )


def check_extra(given: dict[str, Any], c: Any, sizes: dict[str, int]) -> None:
    """Raise InputError for a wrong type, shape, stride or address of the epilogue's tensors."""
    m, n, batches = sizes["m"], sizes["n"], sizes["batches"]
    if ("scale_a" in given) != ("scale_b" in given):
        raise InputError("scale_a and scale_b go together; one of them is missing.")
    wanted = {"bias": (n,), "residual": (m, n)}
    for name, tensor in given.items():
        kind = torch.float32 if name.startswith("scale") else c.dtype
        if tensor.dtype != kind:
            raise InputError(f"{name} is {tensor.dtype}; it must be {kind}.")
        if name in wanted:
            _check_count(name, tensor, wanted[name], batches if name == "residual" else 1)
        if tensor.numel() > 1 and tensor.data_ptr() % ALIGNMENT_BYTES:  # kernels load several elements at a time
            raise InputError(f"{name} does not start at a multiple of {ALIGNMENT_BYTES} bytes; copy it.")


def _check_scales(scale: str, m: int, n: int, k: int, scale_a: Any, scale_b: Any) -> None:
    """Raise InputError for missing scales, a wrong number of scales, or scales that are not contiguous."""
    if scale_a is ABSENT:
        if scale != "none":
            raise InputError(f"The epilogue has {scale} scales and the call has none; pass scale_a= and scale_b=.")
        return
    one = scale == "tensor"
    wanted = block_scale_shapes(scale, m, n, k) if scale in BLOCK_SCALES else ((), ()) if one else ((m,), (n,))
    for name, tensor, shape in zip(("scale_a", "scale_b"), (scale_a, scale_b), wanted):
        _check_count(name, tensor, shape, 1)


def _check_count(name: str, tensor: Any, wanted: tuple[int, ...], times: int) -> None:
    count = torch.Size(wanted).numel() * times
    if tensor.numel() != count or not tensor.is_contiguous():
        what = f"has shape {tuple(tensor.shape)} and strides {tuple(tensor.stride())}"
        raise InputError(f"{name} {what}; it must be contiguous and have {count} elements, {wanted}.")


def pinned_form(value: object) -> Form:
    """Return the form of a `Form` or an `Epilogue`; raise InputError for any other value."""
    if isinstance(value, Epilogue):
        return replace(PLAIN, epilogue=value)
    if not isinstance(value, Form):
        raise InputError(f"form is {shown(value)}; it must be a Form or an Epilogue.")
    return value
