"""Options of a product, and all checks of its operands and options."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import number, plain_text, shown
from blackwell_matmul.kernels.host.forms import OUTPUTS
from blackwell_matmul.kernels.host.grouped import check_types
from blackwell_matmul.kernels.host.matmul import BYTES, HALVES, MOST
from blackwell_matmul.ops.direct import in_forward_mode, recorded
from blackwell_matmul.ops.finished import EpilogueTensors
from blackwell_matmul.problem.form import ACTIVATIONS, check_flag
from blackwell_matmul.problem.problem import INT32_MAX


class Said(NamedTuple):
    """Names of the called operation and of its operands, for messages."""

    operation: str = "matmul"
    a: str = "a"
    b: str = "b"
    residual: str = "residual"


AS_OURS = Said()
"""Names in `torch.ops.blackwell_matmul.matmul`."""

GROUPED = Said("grouped_matmul", "mat_a", "mat_b")


class How(NamedTuple):
    """Options of a product.

    activation, alpha, beta: those of `Epilogue`. out_dtype: type of C; None: it follows from the operands. simulate:
    True runs CPU tensors in the simulator. fast_accum: True allows fp8 sums of fewer bits. batch_invariant: True adds
    in one order for any number of rows. alone: True if the product has all SMs, even on a shared GPU.
    """

    activation: str = "none"
    alpha: float = 1.0
    beta: float = 1.0
    out_dtype: torch.dtype | None = None
    simulate: bool = False
    fast_accum: bool = False
    batch_invariant: bool = False
    alone: bool = False


DEFAULTS = How()
NONE: Mapping[str, Any] = MappingProxyType({})


def taken(
    operation: Callable[..., Tensor], needed: Mapping[str, Any], optional: Mapping[str, Any] = NONE, **rest: Any
) -> Tensor | None:
    """Return the node that torch.fx.symbolic_trace records for the call, if a tensor is a proxy; else None.

    Raises InputError unless needed arguments are tensors, and optional arguments tensors or None.
    """
    node = None if torch.compiler.is_compiling() else recorded(operation, **needed, **optional, **rest)
    if node is None:
        check_tensors(**needed)
        check_optional(**optional)
    return node


def check_tensors(**tensors: object) -> None:
    """Raise InputError unless each value is a dense tensor."""
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            raise InputError(f"{name} is {shown(value)}; it must be a tensor.")
        if not torch.compiler.is_compiling():  # torch.compile cannot trace these checks in a Function's backward
            check_dense(name, value)


def check_optional(**tensors: object) -> None:
    """Raise InputError unless each value is a dense tensor or None."""
    check_tensors(**{name: value for name, value in tensors.items() if value is not None})


def check_dense(name: str, x: Tensor) -> None:
    if x.layout is not torch.strided or x.is_nested:
        kind = "is nested" if x.is_nested else f"has layout {x.layout}"
        raise InputError(f"{name} {kind}; it must be a dense tensor.")


def check_operands(a: Tensor, b: Tensor, scaled: bool = False, said: Said = AS_OURS) -> None:
    """Raise InputError unless a[.., m, k] and b[.., k, n], of two or three dimensions, can be multiplied.

    scaled: True for 8-bit operands with scales, whose types may differ.
    """
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


def shape_of(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Return the product's shape before the activation."""
    if a.dim() == b.dim() == 2:
        return a.shape[0], b.shape[1]
    batches = broadcast(a.shape[:-2], b.shape[:-2]) or ()
    return *batches, a.shape[-2], b.shape[-1]


def checked(
    a: Tensor, b: Tensor, tensors: EpilogueTensors, how: How = DEFAULTS, said: Said = AS_OURS
) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the product's shape before the activation, and C's type; raise InputError for operands that do not fit."""
    check_operands(a, b, scaled=tensors.scale_a is not None, said=said)
    out = how.out_dtype or (a.dtype if a.element_size() > 1 else torch.bfloat16)
    check_out(out)
    of_c = shape_of(a, b)
    check_extras(of_c, out, a.device, tensors, said)
    check_activation(how.activation, of_c[-1])
    _check_sizes(a, b, tensors.residual, said)
    return of_c, out


def check_vectors(input: Tensor, other: Tensor, said: Said) -> None:
    """Check the operands of `matmul` if one or both are vectors."""
    if not min(input.dim(), other.dim()):
        raise InputError(
            f"input has shape {tuple(input.shape)} and other {tuple(other.shape)}; both must have one dimension or "
            "more."
        )
    check_inner(input, other, said)


def check_linear(input: Tensor, weight: Tensor) -> None:
    if weight.dim() not in (1, 2) or input.dim() < 1 or unequal(input.shape[-1], weight.shape[-1]):
        raise InputError(
            f"input has shape {tuple(input.shape)} and weight {tuple(weight.shape)}; they must be (.., k) and (n, k) "
            "or (k,)."
        )


def check_bias_of_a_number(bias: Tensor | None) -> None:
    """Check the bias of `linear` for a weight of one dimension: the bias has no dimension."""
    if bias is not None and bias.dim():
        raise InputError(f"bias has shape {tuple(bias.shape)}; it must be () with a weight of one dimension.")


def spread_bias(
    bias: Tensor, residual: Tensor | None, beta: float, of_c: tuple[int, ...], said: Said
) -> tuple[Tensor | None, Tensor | None, float, Said]:
    """Return bias, residual, beta and names for a bias of another shape than [n], which is broadcast to [n] or of_c.

    A bias of the shape of_c becomes the residual. Raises InputError if the bias does not broadcast.
    """
    try:
        if bias.shape[:-1].numel() == 1:
            return bias.reshape(-1).expand(of_c[-1]), residual, beta, said
        if residual is None:
            return None, bias.expand(of_c), 1.0, said._replace(residual="bias")
    except RuntimeError:
        pass
    also = "" if residual is not None else f", or broadcast to {of_c}"
    raise InputError(f"bias has shape {tuple(bias.shape)}; it must be {of_c[-1:]}{also}.")


def expanded(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the input broadcast to a shape; raise InputError if the input does not broadcast."""
    try:
        return input.expand(shape)
    except RuntimeError:
        raise InputError(f"input has shape {tuple(input.shape)}; it must broadcast to {shape}.") from None


def check_scaled(scale_result: object, out_dtype: object, use_fast_accum: object, name: str = "out_dtype") -> None:
    """Check the options of `scaled_mm`. name: name of the argument out_dtype, for messages."""
    if scale_result is not None:
        raise UnsupportedError("scale_result is given, and no result has 8 bits; multiply what scaled_mm returns.")
    if out_dtype is not None:
        check_out(out_dtype, name)
    check_flag("use_fast_accum", use_fast_accum)


def check_matrices(a: Tensor, b: Tensor, said: Said) -> None:
    """Check the operands of `scaled_mm`, which takes no batches."""
    for name, x, shape in ((said.a, a, "(m, k)"), (said.b, b, "(k, n)")):
        if x.dim() != 2:
            raise InputError(f"{name} has shape {tuple(x.shape)}; it must be a matrix {shape}.")


def check_residual(residual: Tensor, of_c: tuple[int, ...]) -> None:
    if differ(residual.shape, of_c):
        raise InputError(f"residual has shape {tuple(residual.shape)}; it must be {of_c}.")


def check_batches(a: Tensor, b: Tensor, said: Said) -> None:
    """Check the operands of `bmm` and `baddbmm`."""
    if a.dim() != 3 or b.dim() != 3 or unequal(a.shape[0], b.shape[0]) or unequal(a.shape[2], b.shape[1]):
        raise InputError(
            f"{said.a} has shape {tuple(a.shape)} and {said.b} {tuple(b.shape)}; {said.operation} takes (batch, m, k) "
            "and (batch, k, n)."
        )


def _check_sizes(a: Tensor, b: Tensor, residual: Tensor | None, said: Said) -> None:
    """Check that the sizes of a[.., m, k], b[.., k, n] and the residual fit 32 bits, as kernels count in 32 bits."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    for count, size in (
        (m, f"the result has {m} rows"), (n, f"the result has {n} columns"), (k, f"{said.a} has {k} columns"),
    ):  # fmt: skip
        if known(count > MOST):
            raise InputError(f"{size}, and {said.operation} counts up to {MOST} in 32 bits; multiply parts of it.")
    if residual is not None and known(residual.numel() > INT32_MAX):
        raise InputError(
            f"{said.residual} has {residual.numel()} elements, and {said.operation} counts up to {INT32_MAX} of it in "
            "32 bits; multiply parts of it, or add it to the result."
        )


def check_inner(a: Tensor, b: Tensor, said: Said = AS_OURS) -> None:
    """Raise InputError unless a[.., m, k] and b[.., k, n], or vectors [k], have the same k."""
    if unequal(a.shape[-1], b.shape[-2:][0]):
        raise InputError(
            f"{said.a} has shape {tuple(a.shape)} and {said.b} {tuple(b.shape)}; {said.a} must have as many columns as "
            f"{said.b} has rows."
        )


def grouped_shape(x: Tensor, w: Tensor, offs: Tensor) -> tuple[int, ...]:
    """Return the shape of `grouped_matmul`'s result; raise InputError for operands that do not fit."""
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


def check_grouped_options(bias: object, out_dtype: object, mat_a: Tensor) -> None:
    """Refuse options that torch's grouped kernels refuse too."""
    if bias is not None:
        raise UnsupportedError("bias is given, and no grouped product adds one; add it to what grouped_matmul returns.")
    if out_dtype is not None and out_dtype != mat_a.dtype:
        raise UnsupportedError(f"out_dtype is {shown(out_dtype)}; it must be mat_a's, {mat_a.dtype}.")


def check_without_offs(mat_a: Tensor, mat_b: Tensor) -> None:
    if not mat_a.dim() == mat_b.dim() == 3:
        raise InputError(
            f"mat_a has shape {tuple(mat_a.shape)} and mat_b {tuple(mat_b.shape)}, without offs; both must have three "
            "dimensions, or offs says where each group ends."
        )


def check_ends(offs: Tensor, rows: int, what: str = "rows") -> None:
    """Check that the ends of groups ascend, up to `rows`. The host waits if offs is on a GPU."""
    ends = [0, *offs.tolist(), rows]
    if any(end < before for before, end in itertools.pairwise(ends)):
        raise InputError(f"offs is {offs.tolist()} for {rows} {what}; the ends ascend from 0 to {rows} at most.")


def check_columns(x: Tensor, w: Tensor, offs: Tensor) -> None:
    """Check x[groups, m, k] and w[k, n] with grouped columns. Further checks follow for the transposed product."""
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
    """Return True if a fact about sizes is known to hold; False if it depends on symbolic sizes of torch.compile."""
    if not torch.compiler.is_compiling() and not isinstance(fact, torch.SymBool):  # while tracing, a SymBool is a bool
        return bool(fact)
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return guard_or_false(fact)


def unequal(size: int, other: int) -> bool:
    """Return True if two sizes differ. torch.compile assumes that unknown sizes are equal, and checks at run time."""
    if known(size != other):
        return True
    if torch.compiler.is_compiling():
        torch._check(size == other)
    return False


def differ(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(shape) != len(wanted) or any(known(size != other) for size, other in zip(shape, wanted, strict=True))


def broadcast(shape: Sequence[int], other: Sequence[int]) -> tuple[int, ...] | None:
    """Return the broadcast shape by torch's rules; None if the shapes differ. An unknown size never counts as 1."""
    made = []
    for one, two in itertools.zip_longest(reversed(shape), reversed(other), fillvalue=1):
        if not known(one == 1) and not known(two == 1) and unequal(one, two):
            return None
        made.append(two if known(one == 1) else one)
    return tuple(reversed(made))


def batches_of(a: Tensor, b: Tensor, said: Said) -> tuple[int, ...]:
    """Return the batch dimensions of the product of a[.., m, k] and b[.., k, n]; raise InputError if they differ."""
    batch = a.shape[:-2] if b.dim() == 2 else broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        raise InputError(f"{said.a} has shape {tuple(a.shape)} and {said.b} {tuple(b.shape)}; their batches differ.")
    return batch


def check_extras(
    of_c: tuple[int, ...], out: torch.dtype, device: torch.device, tensors: EpilogueTensors, said: Said
) -> None:
    """Check the tensors of an epilogue. of_c: shape of the product, before the activation."""
    wanted = {"bias": of_c[-1:], "residual": of_c}
    for key, x in zip(tensors._fields, tensors):
        if x is None:
            continue
        name, scale = (said.residual if key == "residual" else key), key.startswith("scale")
        if x.device != device:
            raise InputError(f"{name} is on {x.device} and {said.a} on {device}; both must be on one.")
        if x.dtype != (torch.float32 if scale else out):
            raise InputError(f"{name} is {x.dtype}; it must be {torch.float32 if scale else out}.")
        if not scale and differ(x.shape, wanted[key]):
            raise InputError(f"{name} has shape {tuple(x.shape)}; it must be {wanted[key]}.")
    _check_scales(tensors, of_c)


def _check_scales(tensors: EpilogueTensors, of_c: tuple[int, ...]) -> None:
    shapes = [tuple(each.shape) for each in (tensors.scale_a, tensors.scale_b) if each is not None]
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


def check_out(dtype: object, name: str = "out_dtype") -> None:
    if not isinstance(dtype, torch.dtype) or dtype not in OUTPUTS:
        raise InputError(f"{name} is {shown(dtype)}; it must be one of {', '.join(map(str, OUTPUTS))}.")


def check_dispatched(tensors: Sequence[Tensor | None], said: Said) -> None:
    """Refuse mixtures of fake and real tensors, and derivatives that torch's dispatch would drop silently."""
    _check_fakes(tensors)
    _check_derivatives(said.operation, tensors)


def _check_fakes(tensors: Iterable[Tensor | None]) -> None:
    """Refuse a mixture of fake and real tensors outside of tracing, for which torch has no message."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return
    if len({type(each).__name__ == "FakeTensor" for each in tensors if each is not None}) > 1:
        raise InputError("Some of the tensors are FakeTensors and some are not; pass all of one kind.")


def _check_derivatives(operation: str, tensors: Iterable[Tensor | None]) -> None:
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


def plain_number(name: str, value: object) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or (isinstance(value, Tensor) and value.dim() == 0):
        return float(value)
    found = number(value)
    if found is None:
        raise InputError(f"{name} is {shown(value)}; it must be a number.")
    return float(found)
