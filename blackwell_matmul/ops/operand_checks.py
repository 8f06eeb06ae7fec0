"""Checks of operands; each error is one sentence."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import number, plain_text, shown
from blackwell_matmul.kernels.host.forms import OUTPUTS
from blackwell_matmul.kernels.host.grouped import check_types
from blackwell_matmul.kernels.host.matmul import BYTES, HALVES, MOST
from blackwell_matmul.ops.direct import in_forward_mode
from blackwell_matmul.problem.form import ACTIVATIONS, check_flag
from blackwell_matmul.problem.problem import INT32_MAX


class Said(NamedTuple):
    """Names of the called operation and its operands, for messages."""

    operation: str = "matmul"
    a: str = "a"
    b: str = "b"
    residual: str = "residual"


AS_OURS = Said()
"""Names in `torch.ops.blackwell_matmul.matmul`."""

GROUPED = Said("grouped_matmul", "mat_a", "mat_b")


def check_tensors(**tensors: object) -> None:
    for name, value in tensors.items():
        _check_tensor(name, value)


def check_optional(**tensors: object) -> None:
    """Check optional tensors; None is absent."""
    for name, value in tensors.items():
        if value is not None:
            _check_tensor(name, value)


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise InputError(f"{name} is {shown(value)}; it must be a tensor.")
    if not torch.compiler.is_compiling():  # its tracer lets nobody ask, where it traces the way back of a Function
        check_dense(name, value)


def check_dense(name: str, x: Tensor) -> None:
    if x.layout is not torch.strided or x.is_nested:
        kind = "is nested" if x.is_nested else f"has layout {x.layout}"
        raise InputError(f"{name} {kind}; it must be a dense tensor.")


def check_operands(a: Tensor, b: Tensor, scaled: bool = False, said: Said = AS_OURS) -> None:
    """a[.., m, k] and b[.., k, n], of two or three dimensions; scaled: with scales, of 8 bits, also of two types."""
    for name, x, shape in ((said.a, a, "(m, k)"), (said.b, b, "(k, n)")):
        if x.dim() not in (2, 3):
            raise InputError(f"{name} has shape {tuple(x.shape)}; it must be a matrix {shape}, or a batch of them.")
        able = BYTES if scaled else HALVES
        if x.dtype not in able:
            other = "matmul" if scaled else "scaled_mm"
            elsewhere = f"; {other} takes it" if x.dtype in (*BYTES, *HALVES) else ""
            raise InputError(f"{name} is {x.dtype}; it must be {' or '.join(map(str, able))}{elsewhere}.")
    check_inner(a, b, said)
    if a.dim() == b.dim() == 3 and broadcast(a.shape[:1], b.shape[:1]) is None:
        raise InputError(
            f"{said.a} has {a.shape[0]} batches and {said.b} {b.shape[0]}; both must have as many, or one of them one."
        )
    if (a.dtype != b.dtype and not scaled) or a.device != b.device:
        raise InputError(
            f"{said.a} is {a.dtype} on {a.device} and {said.b} is {b.dtype} on {b.device}; both must be alike."
        )


def check_sizes(a: Tensor, b: Tensor, residual: Tensor | None, said: Said = AS_OURS) -> None:
    """Check the sizes of a[.., m, k], b[.., k, n] and the residual, which kernels count in 32 bits."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    for count, told in (
        (m, f"the result has {m} rows"), (n, f"the result has {n} columns"), (k, f"{said.a} has {k} columns"),
    ):  # fmt: skip
        if count > MOST:
            raise InputError(f"{told}, and {said.operation} counts up to {MOST} in 32 bits; multiply parts of it.")
    if residual is not None and residual.numel() > INT32_MAX:
        raise InputError(
            f"{said.residual} has {residual.numel()} elements, and {said.operation} counts up to {INT32_MAX} of it in "
            "32 bits; multiply parts of it, or add it to the result."
        )


def check_inner(a: Tensor, b: Tensor, said: Said = AS_OURS) -> None:
    """Refuse a[.., m, k] and b[.., k, n], or vectors [k], of any other k."""
    if unequal(a.shape[-1], b.shape[-2:][0]):
        raise InputError(
            f"{said.a} has shape {tuple(a.shape)} and {said.b} {tuple(b.shape)}; {said.a} must have as many columns as "
            f"{said.b} has rows."
        )


def grouped_shape(x: Tensor, w: Tensor, offs: Tensor) -> tuple[int, ...]:
    """Return the shape of `grouped_matmul`'s result; InputError for operands that do not fit."""
    if x.dim() != 2 or w.dim() not in (2, 3) or offs.dim() != 1:
        raise InputError(
            f"{_shapes_of_groups(x, w, offs)}; they must be (m, k), (groups, k, n) and (groups,), or (k, m), (m, n) "
            "and (groups,), or (groups, m, k), (k, n) and (groups,); bmm takes batches."
        )
    check_inner(x, w, GROUPED)
    if w.dim() == 3 and known(w.shape[0] != offs.shape[0]):
        raise InputError(f"mat_b has {w.shape[0]} groups and offs {offs.shape[0]} ends; each group has one.")
    if not x.device == w.device == offs.device:
        raise InputError(
            f"mat_a is on {x.device}, mat_b on {w.device} and offs on {offs.device}; all must be on one device."
        )
    check_grouped_types(x, w, offs)
    outer = (x.shape[0],) if w.dim() == 3 else (offs.shape[0], x.shape[0])
    return *outer, w.shape[-1]


def check_columns(x: Tensor, w: Tensor, offs: Tensor) -> None:
    """Check x[groups, m, k] and w[k, n] with grouped columns; the rest is checked after transposing."""
    if offs.dim() != 1 or unequal(x.shape[2], w.shape[0]) or known(x.shape[0] != offs.shape[0]):
        raise InputError(f"{_shapes_of_groups(x, w, offs)}; they must be (groups, m, k), (k, n) and (groups,).")
    check_grouped_types(x, w, offs)


def check_grouped_types(x: Tensor, w: Tensor, offs: Tensor) -> None:
    if x.dtype == torch.float32:
        raise InputError(
            "mat_a is torch.float32; it must be torch.float16 or torch.bfloat16, as mat_a.to(torch.bfloat16) is, also "
            "under torch.autocast, which casts no operand of grouped_matmul."
        )
    check_types(x, w, offs, "mat_a", "mat_b")


def _shapes_of_groups(x: Tensor, w: Tensor, offs: Tensor) -> str:
    return f"mat_a, mat_b and offs have shapes {tuple(x.shape)}, {tuple(w.shape)} and {tuple(offs.shape)}"


def known(fact: bool | torch.SymBool) -> bool:
    """Return true if a fact holds for known sizes; sizes symbolic in torch.compile give false."""
    if not torch.compiler.is_compiling() and not isinstance(fact, torch.SymBool):  # to a tracer any fact is a bool
        return bool(fact)
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(fact)


def unequal(size: int, other: int) -> bool:
    """Return true if two sizes differ; torch.compile assumes unknown ones equal and checks at run time."""
    if known(size != other):
        return True
    if torch.compiler.is_compiling():
        torch._check(size == other)
    return False


def differ(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) != len(wanted) or any(known(size != other) for size, other in zip(shape, wanted, strict=True))


def broadcast(shape: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the broadcast shape as torch does, or None; an unknown size is not taken for 1."""
    made = []
    for one, two in itertools.zip_longest(reversed(shape), reversed(other), fillvalue=1):
        if not known(one == 1) and not known(two == 1) and unequal(one, two):
            return None
        made.append(two if known(one == 1) else one)
    return tuple(reversed(made))


def check_extras(
    of_c: tuple[int, ...],
    out: torch.dtype,
    device: torch.device,
    tensors: Mapping[str, Tensor | None],
    activation: str,
    said: Said = AS_OURS,
) -> None:
    """Check the further tensors. of_c: shape of the product, before the activation."""
    given = {name: x for name, x in tensors.items() if x is not None}
    wanted = {"bias": of_c[-1:], "residual": of_c}
    for key, x in given.items():
        name, scale = (said.residual if key == "residual" else key), key.startswith("scale")
        if x.device != device:
            raise InputError(f"{name} is on {x.device} and {said.a} on {device}; both must be on one.")
        if x.dtype != (torch.float32 if scale else out):
            raise InputError(f"{name} is {x.dtype}; it must be {torch.float32 if scale else out}.")
        if not scale and differ(x.shape, wanted[key]):
            raise InputError(f"{name} has shape {tuple(x.shape)}; it must be {wanted[key]}.")
    _check_scales(given, of_c)
    check_activation(activation, of_c[-1])


def _check_scales(given: Mapping[str, Tensor], of_c: tuple[int, ...]) -> None:
    shapes = [tuple(given[name].shape) for name in ("scale_a", "scale_b") if name in given]
    m, n = of_c[-2:]
    one = [(), (1,), (1, 1)]
    able = [(one, one), ([(m, 1), (m,)], [(1, n), (n,)])]
    if shapes and not (len(shapes) == 2 and any(all(map(_is_one_of, shapes, each)) for each in able)):
        raise InputError(
            f"the scales have shapes {' and '.join(map(str, shapes))}; they must be one number each, of shape (), "
            f"(1,) or (1, 1), or (m, 1) and (1, n) = {(m, 1)} and {(1, n)}, also as {(m,)} and {(n,)}."
        )


def _is_one_of(shape: Sequence[int], able: Iterable[Sequence[int]]) -> bool:
    return not all(differ(shape, each) for each in able)


def check_activation(activation: object, columns: int) -> None:
    if type(activation) is str and activation == "none":
        return
    if plain_text(activation) not in ACTIVATIONS:
        raise InputError(f"activation is {shown(activation)}; it must be one of {', '.join(ACTIVATIONS)}.")
    if activation == "swiglu" and columns % 2:
        raise InputError(f"n is {columns}; swiglu makes one column of two, so that n must be even.")


def check_out(dtype: object) -> None:
    if not isinstance(dtype, torch.dtype) or dtype not in OUTPUTS:
        raise InputError(f"out_dtype is {shown(dtype)}; it must be one of {', '.join(map(str, OUTPUTS))}.")


def check_fakes(tensors: Iterable[Tensor | None]) -> None:
    """Refuse a mixture of fake and real tensors outside of tracing, for which torch has no message."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return
    if len({type(each).__name__ == "FakeTensor" for each in tensors if each is not None}) > 1:
        raise InputError("Some of the tensors are FakeTensors and some are not; pass all of one kind.")


def check_derivatives(operation: str, tensors: Iterable[Tensor | None]) -> None:
    """Refuse derivatives that torch would drop silently."""
    compiling = torch.compiler.is_compiling()
    if not (compiling or in_forward_mode() or torch._C._functorch.peek_interpreter_stack() is not None):
        return
    from blackwell_matmul.ops.following import followed, followed_in_a_graph

    asked = followed_in_a_graph if compiling else followed
    if any(asked(each) for each in tensors if each is not None):
        raise UnsupportedError(
            f"{operation} has no derivatives by torch.func or in forward mode; .backward() and torch.autograd.grad "
            "have them."
        )


def check_simulate(value: object) -> None:
    check_flag("simulate", value)


def plain_number(name: str, value: object) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or (isinstance(value, Tensor) and value.dim() == 0):
        return float(value)
    found = number(value)
    if found is None:
        raise InputError(f"{name} is {shown(value)}; it must be a number.")
    return float(found)
