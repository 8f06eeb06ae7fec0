"""`matmul`, `linear`, `bmm`, `baddbmm`: torch's functions of the same names, each one launch of a kernel.

CUDA tensors run on their GPU. CPU tensors are refused, unless `simulate` is True: then the simulator runs the kernel as
on a B200. All functions support autograd, torch.compile and CUDA graphs. Operands that TMA can read are not copied
(`placing.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling

from blackwell_matmul.ops.direct import bypasses_dispatch, wants_gradient
from blackwell_matmul.ops.finished import ACTIVATED, NO_TENSORS, EpilogueTensors
from blackwell_matmul.ops.gradients import Graded
from blackwell_matmul.ops.library import product
from blackwell_matmul.ops.operand_checks import (
    DEFAULTS,
    How,
    Said,
    batches_of,
    check_activation,
    check_batches,
    check_bias_of_a_number,
    check_dispatched,
    check_linear,
    check_residual,
    check_vectors,
    expanded,
    plain_number,
    spread_bias,
    taken,
    unequal,
)
from blackwell_matmul.ops.placing import as_matrices, flattened, rows_of
from blackwell_matmul.ops.ready import Call, launched
from blackwell_matmul.ops.two_levels import compose

MATMUL = Said("matmul", "input", "other")
LINEAR = Said("linear", "input", "weight")
BMM = Said("bmm", "input", "mat2")
BADDBMM = Said("baddbmm", "batch1", "batch2", "input")


def matmul(input: Tensor, other: Tensor, *, batch_invariant: bool = False, simulate: bool = False) -> Tensor:
    """Return input[.., m, k] @ other[.., k, n] of float16 or bfloat16, accumulated in float32. Vectors [k] and batches
    are treated as in torch.matmul.

    batch_invariant: True gives a row of the result the same bits for every number of rows. Products are then added in
    the same order for every m, and K is never divided among CTAs.

    Raises InputError for operands that do not fit, UnsupportedError if no kernel runs.
    """
    if is_dynamo_compiling() and type(batch_invariant) is type(simulate) is bool:
        return _in_a_graph(MATMUL_CALL, MATMUL, input, other, batch_invariant=batch_invariant, simulate=simulate)
    made, call = launched("matmul", (input, other), (batch_invariant, simulate))
    if made is not None:
        return made
    if call is not None and call.graded and _broadcasts_none(input, other):
        multiply = _matmul(batch_invariant, simulate)
        return Graded(True, 1.0, (batch_invariant, simulate), multiply, multiply).first(call, input, other)
    return _checked_matmul(input, other, call, batch_invariant=batch_invariant, simulate=simulate)


def _checked_matmul(input: Tensor, other: Tensor, call: Call | None = None, **options: Any) -> Tensor:
    """Check all arguments, and return the product."""
    plain = bypasses_dispatch((input, other))
    if not plain and (node := taken(matmul, {"input": input, "other": other}, **options)) is not None:
        return node
    if input.dim() < 2 or other.dim() < 2:
        return _of_vectors(input, other, options)
    how = How(**options)
    if input.dim() == other.dim() == 2:
        return product(input, other, NO_TENSORS, how, MATMUL, plain, call)
    shape = (*batches_of(input, other, MATMUL), input.shape[-2], other.shape[-1])
    return product(*flattened(input, other, MATMUL), NO_TENSORS, how, MATMUL, plain, call, shape)


def _broadcasts_none(input: Tensor, other: Tensor) -> bool:
    """Return True if no batch is broadcast: for rows times a matrix, and for batches of equal shapes."""
    return input.dim() >= 2 and other.dim() >= 2 and other.shape[:-2] in ((), input.shape[:-2])


def _matmul(batch_invariant: bool, simulate: bool) -> Callable[..., Tensor]:
    """Return `matmul` with these options bound."""
    if batch_invariant is simulate is False:
        return matmul
    return functools.partial(matmul, batch_invariant=batch_invariant, simulate=simulate)


def _of_vectors(input: Tensor, other: Tensor, options: Mapping[str, Any]) -> Tensor:
    """Return the product if one or both operands are vectors [k]. The result lacks the dimension of a vector."""
    check_vectors(input, other, MATMUL)
    made = matmul(*as_matrices(input, other), **options)
    made = made.squeeze(-1) if other.dim() == 1 else made
    return made.squeeze(made.dim() - min(other.dim(), 2)) if input.dim() == 1 else made


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = "none",
    *,
    residual: Tensor | None = None,
    beta: float = 1.0,
    batch_invariant: bool = False,
    simulate: bool = False,
) -> Tensor:
    """Return activation(input[.., k] @ weight[n, k].T + beta * residual[.., n] + bias[n]), from one kernel.

    activation: "none" or None, "relu", "gelu", "gelu_tanh", "silu", or "swiglu". With swiglu, column j is silu(column
    2j) * (column 2j + 1), and the result has n / 2 columns. A second kernel, of torch, applies the activation if a
    tensor needs a gradient, or for swiglu with a residual. A bias of another shape is broadcast, as in
    torch.nn.functional.linear, and read as a residual. batch_invariant: as in `matmul`.

    Raises InputError for operands that do not fit, UnsupportedError if no kernel runs.
    """
    if activation is None:
        activation = "none"
    given, typed = (input, weight, bias, residual), type(activation) is str and type(beta) is float
    if is_dynamo_compiling() and typed and type(batch_invariant) is type(simulate) is bool:
        return _in_a_graph(
            LINEAR_CALL, LINEAR, *given, activation=activation, beta=beta, batch_invariant=batch_invariant,
            simulate=simulate,
        )  # fmt: skip
    call = None
    if typed:
        made, call = launched("linear", given, (batch_invariant, simulate), activation, beta)
        if made is not None:
            return made
    options: dict[str, Any] = {"batch_invariant": batch_invariant, "simulate": simulate}
    if call is not None and call.graded and weight.dim() == 2 <= input.dim() and _is_added_to_rows(bias, weight):
        if activation != "none":
            check_activation(activation, weight.shape[0])
            return ACTIVATED[activation](linear(input, weight, bias, residual=residual, beta=beta, **options))
        flags = batch_invariant, simulate
        return Graded(False, beta, flags, _linear(beta, **options), _matmul(*flags)).first(call, *given)
    return _checked_linear(*given, call, activation=activation, beta=beta, **options)


def _checked_linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    call: Call | None = None,
    *,
    activation: str = "none",
    beta: float = 1.0,
    **options: Any,
) -> Tensor:
    """Check all arguments, and return the result of `linear`."""
    plain = bypasses_dispatch((input, weight), (bias, residual))
    if not plain:
        needed, optional = {"input": input, "weight": weight}, {"bias": bias, "residual": residual}
        rest = {"activation": activation, "beta": beta, **options}
        if (node := taken(linear, needed, optional, **rest)) is not None:
            return node
    check_linear(input, weight)
    if weight.dim() == 1:
        return _linear_of_one_output(input, weight, bias, activation, residual, beta=beta, **options)
    check_activation(activation, weight.shape[0])
    outer, n, said, factor = input.shape[:-1], weight.shape[0], LINEAR, plain_number("beta", beta)
    if residual is not None:
        check_residual(residual, (*outer, n))
    if bias is not None and (bias.dim() != 1 or unequal(bias.shape[0], n)):
        bias, residual, factor, said = spread_bias(bias, residual, factor, (*outer, n), LINEAR)
    if activation != "none" and (
        wants_gradient((input, weight, bias, residual)) or (activation == "swiglu" and residual is not None)
    ):
        made = linear(input, weight, bias, residual=residual, beta=factor, **options)
        return ACTIVATED[activation](made)
    tensors = EpilogueTensors(bias, None if residual is None else rows_of(residual))
    how = How(activation, 1.0, factor, **options)
    shape = None if input.dim() == 2 else (*outer, n // 2 if activation == "swiglu" else n)
    return product(rows_of(input), weight.T, tensors, how, said, plain, call, shape)


def _linear_of_one_output(
    input: Tensor, weight: Tensor, bias: Tensor | None, activation: str, residual: Tensor | None, **options: Any
) -> Tensor:
    """Return the result of `linear` for weight[k], of the shape of `input` without its last dimension."""
    check_bias_of_a_number(bias)
    column = None if residual is None else residual.unsqueeze(-1)
    return linear(input, weight[None], bias, activation, residual=column, **options).squeeze(-1)


def _linear(beta: float, **options: Any) -> Callable[..., Tensor]:
    """Return `linear` as a function of tensors alone, with these options bound."""
    return lambda x, w, bias, residual: linear(x, w, bias, residual=residual, beta=beta, **options)


def _is_added_to_rows(bias: Tensor | None, weight: Tensor) -> bool:
    return bias is None or bias.shape == weight.shape[:1]


def bmm(input: Tensor, mat2: Tensor, *, simulate: bool = False) -> Tensor:
    """Return input[batch, m, k] @ mat2[batch, k, n], as torch.bmm."""
    if is_dynamo_compiling() and type(simulate) is bool:
        return _in_a_graph(BMM_CALL, BMM, input, mat2, simulate=simulate)
    made, call = launched("bmm", (input, mat2), (simulate,))
    if made is not None:
        return made
    if call is not None and call.graded and input.dim() == mat2.dim() == 3:
        flags, multiply = (False, simulate), functools.partial(bmm, simulate=simulate)
        return Graded(True, 1.0, flags, multiply, _matmul(*flags)).first(call, input, mat2)
    return _checked_bmm(input, mat2, call, simulate=simulate)


def _checked_bmm(input: Tensor, mat2: Tensor, call: Call | None = None, *, simulate: bool = False) -> Tensor:
    """Check all arguments, and return the product."""
    plain = bypasses_dispatch((input, mat2))
    if not plain and (node := taken(bmm, {"input": input, "mat2": mat2}, simulate=simulate)) is not None:
        return node
    check_batches(input, mat2, BMM)
    how = DEFAULTS if simulate is False else How(simulate=simulate)
    return product(input, mat2, NO_TENSORS, how, BMM, plain, call)


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, simulate: bool = False
) -> Tensor:
    """Return beta * input + alpha * (batch1[batch, m, k] @ batch2[batch, k, n]), as torch.baddbmm."""
    plain = bypasses_dispatch((input, batch1, batch2))
    if not plain:
        needed = {"input": input, "batch1": batch1, "batch2": batch2}
        if (node := taken(baddbmm, needed, beta=beta, alpha=alpha, simulate=simulate)) is not None:
            return node
    check_batches(batch1, batch2, BADDBMM)
    whole = expanded(input, (batch1.shape[0], batch1.shape[1], batch2.shape[2]))
    how = How("none", plain_number("alpha", alpha), plain_number("beta", beta), None, simulate)
    return product(batch1, batch2, EpilogueTensors(residual=whole), how, BADDBMM, plain)


def _in_a_graph(operation: Callable[..., Tensor], said: Said, *tensors: Tensor | None, **options: Any) -> Tensor:
    """Return the result of the call, one node of torch.compile's graph.

    torch.compile guards all Python state that is read here, and checks the guards before each call.
    """
    from blackwell_matmul.ops.following import derives

    if forward_ad._current_level >= 0 or derives():
        check_dispatched(tensors, said)
    return operation(*tensors, **options)


_OPTIONS = "bool batch_invariant=False, bool simulate=False"
_library = torch.library.Library("blackwell_matmul", "FRAGMENT")
MATMUL_CALL = compose(_library, "matmul", f"Tensor input, Tensor other, *, {_OPTIONS}", _checked_matmul)
LINEAR_CALL = compose(
    _library, "linear", "Tensor input, Tensor weight, Tensor? bias=None, Tensor? residual=None, *, "
    f"str activation='none', float beta=1.0, {_OPTIONS}", _checked_linear,
)  # fmt: skip
BMM_CALL = compose(_library, "bmm", "Tensor input, Tensor mat2, *, bool simulate=False", _checked_bmm)
