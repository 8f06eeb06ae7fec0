"""Base class of the block-scaled kernels. It checks the tensors of a call and finds their format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, same, shown
from blackwell_matmul.kernels.host.forms import OUTPUTS
from blackwell_matmul.kernels.host.matmul import (
    MatmulScript,
    check_device,
    check_is_tensor,
    check_layout,
    check_memory_of_c,
    check_shape,
    size,
)
from blackwell_matmul.lang import BlockScaled
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED, BlockFormat
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, Problem, c_dtype

Formats = Mapping[str, BlockFormat]


class ScaledMatmulScript(MatmulScript):
    """C[m, n] = (A[m, k] scales) @ (B[n, k] scales).T, called with (m, n, k, a, b, scale_a, scale_b, c).

    a, b: row-major, of the types in `problem.block_scaled`, or their bytes in uint8. For mxfp8, each is e4m3 or e5m2.
    scale_a, scale_b: one scale for each block, in atoms of 128 rows and 4 blocks (torch's `SWIZZLE_32_4_4`), of any
    shape. The padding must have no NaN. c: bf16, fp16 or fp32. dtype: the format; must be pinned if the tensors are
    bytes of several possible formats. types: types of A and B, likewise.
    """

    tcgen05 = BlockScaled()

    @classmethod
    def problem_of(cls, knobs: dict[str, object], *args: Any) -> tuple[Problem, dict[str, object]]:
        """Return the problem of a call, and further arguments of `__init__`; remove their pins from `knobs`."""
        m, n, k, *tensors = args
        dtype = the_one(formats_of(int(m), int(n), int(k), *tensors), knobs.pop("dtype", None))
        out = OUTPUTS[tensors[-1].dtype]
        of_c, pinned = cls.type_of(out), knobs.pop("c_dtype", None)
        if pinned is not None and not same(pinned, of_c) and not same(pinned, of_c.name):
            raise InputError(
                f"c_dtype is pinned to {getattr(pinned, 'name', shown(pinned))} and c is {tensors[-1].dtype}; leave "
                "c_dtype out."
            )
        form = PLAIN if out == c_dtype(dtype) else Form(out=out)
        types = types_of(dtype, tensors[0], tensors[1], knobs.pop("types", None))
        return Problem(int(m), int(n), int(k), dtype, form), {"c_dtype": of_c, **({"types": types} if types else {})}

    @staticmethod
    def type_named(name: str) -> Any:
        """Return the name of a format unchanged: `__init__` takes a name in place of a type."""
        return name

    type_of = staticmethod(MatmulScript.type_named)

    @classmethod
    def check_arguments(  # type: ignore[override]
        cls, m: Any, n: Any, k: Any, a: Any, b: Any, scale_a: Any, scale_b: Any, c: Any
    ) -> None:
        """Raise InputError for arguments that no schedule can run."""
        m, n, k = (size(name, value) for name, value in (("m", m), ("n", n), ("k", k)))
        tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "c": c}
        for name, tensor in tensors.items():
            check_is_tensor(name, tensor)
        check_device(tensors)
        formats_of(m, n, k, *tensors.values())
        if c.dtype not in OUTPUTS:
            raise InputError(f"c is {c.dtype}; it must be {', '.join(map(str, OUTPUTS))}.")
        check_shape("c", c, "mn", {"m": m, "n": n})
        for name, tensor in tensors.items():
            check_layout(name, tensor)
        check_memory_of_c(c, {name: tensor for name, tensor in tensors.items() if name != "c"})


def check_number(name: str, tensor: Any) -> None:
    """Raise InputError unless a tensor has one number of type fp32."""
    if tuple(tensor.shape) != (1,) or tensor.dtype != torch.float32:
        raise InputError(
            f"{name} has shape {tuple(tensor.shape)} and type {tensor.dtype}; it must be one number, of shape (1,) and "
            "type torch.float32."
        )


def formats_of(m: int, n: int, k: int, a: Any, b: Any, scale_a: Any, scale_b: Any, c: Any) -> Formats:
    """Return the formats that these tensors can have, by name; raise InputError if there is none."""
    known = _of_types(BLOCK_SCALED, lambda form: form.elements, a=a, b=b)
    known = _of_types(known, lambda form: (form.scale,), scale_a=scale_a, scale_b=scale_b)
    for name, tensor, extent, rows in (("a", a, "m", m), ("b", b, "n", n)):
        known = _of_shape(known, name, tensor, extent, rows, k)
    for name, tensor, rows in (("scale_a", scale_a, m), ("scale_b", scale_b, n)):
        known = _of_count(known, name, tensor, rows, k)
    return known


def _of_types(known: Formats, types: Callable[[BlockFormat], tuple[str, ...]], **tensors: Any) -> Formats:
    """Return the formats that allow the types of these tensors. types: function that returns the types of a format."""
    kept = known
    for tensor in tensors.values():
        named = str(tensor.dtype).removeprefix("torch.")
        kept = {name: each for name, each in kept.items() if named in ("uint8", *types(each))}
    if kept:
        return kept
    found = " and ".join(f"{name} is {tensor.dtype}" for name, tensor in tensors.items())
    takes = ", ".join(f"{' or '.join(types(each))} for {name}" for name, each in known.items())
    raise InputError(f"{found}; they must be {takes}, or uint8 with their bytes.")


def types_of(dtype: str, a: Any, b: Any, pinned: object) -> str:
    """Return the types of A and B, such as "e4m3 e5m2"; "" for the format's types. pinned: the types, if the tensors
    are bytes."""
    able = [
        DTYPE_OF_TORCH[name] for each in BLOCK_SCALED[dtype].elements if (name := f"torch.{each}") in DTYPE_OF_TORCH
    ]
    named = [DTYPE_OF_TORCH.get(str(each.dtype)) for each in (a, b)]
    types = " ".join(each or able[0] for each in named) if any(named) else plain_text(pinned) or ""
    pairs = [f"{one} {other}" for one in able for other in able]
    if pinned is not None and (types != plain_text(pinned) or types not in pairs):
        raise InputError(
            f"types is pinned to {shown(pinned)}, and a is {a.dtype} and b {b.dtype}; pin two of e4m3 and e5m2, as "
            "types='e4m3 e5m2', for bytes of mxfp8 alone."
        )
    return "" if types == " ".join(able[:1] * 2) else types


def _of_shape(known: Formats, name: str, tensor: Any, extent: str, rows: int, k: int) -> Formats:
    wanted = {each: (rows, k * form.bits // 8) for each, form in known.items() if k % form.per_byte == 0}
    kept = {each: known[each] for each, shape in wanted.items() if shape == tuple(tensor.shape)}
    if kept:
        return kept
    if not wanted:
        raise InputError(f"k is {k}; two elements of 4 bits are in one byte, so k must be even.")
    takes = " or ".join(f"({extent}, {_k_of(known[each])}) = {shape} for {each}" for each, shape in wanted.items())
    raise InputError(f"{name} has shape {tuple(tensor.shape)}; it must be {takes}.")


def _k_of(form: BlockFormat) -> str:
    return "k" if form.per_byte == 1 else f"k / {form.per_byte}"


def _of_count(known: Formats, name: str, scales: Any, rows: int, k: int) -> Formats:
    kept = {each: form for each, form in known.items() if form.scales(rows, k) == scales.numel()}
    if kept:
        return kept
    counts = " or ".join(f"{form.scales(rows, k)} for {each}" for each, form in known.items())
    raise InputError(
        f"{name} has {scales.numel()} scales; {rows} rows of k = {k}, padded to 128 rows and 4 blocks, have {counts}."
    )


def the_one(known: Formats, pinned: object) -> str:
    """Return the name of the only format, or the pinned name of several; raise InputError for any other pin."""
    name = plain_text(pinned)
    if pinned is None and len(known) == 1:
        return next(iter(known))
    if name in known:
        return str(name)
    fits = " or ".join(known)
    if pinned is None:
        raise InputError(f"these bytes can be {fits}; pin one of them, as dtype={next(iter(known))!r}.")
    raise InputError(f"dtype is pinned to {shown(pinned)} and the tensors are {fits}; leave dtype out.")
