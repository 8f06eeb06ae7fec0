"""Products of block-scaled operands with a block-scaled result: the kernel's epilogue quantises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.host.forms import ABSENT, OUTPUTS
from blackwell_matmul.ops.block_scaled.block_operands import OF_BLOCKS, BlockOptions, Operands, checked
from blackwell_matmul.ops.block_scaled.formats import FORMATS
from blackwell_matmul.ops.block_scaled.product import as_read, pinned_types, without_products
from blackwell_matmul.ops.block_scaled.quantizing import quantize
from blackwell_matmul.ops.direct import bypasses_dispatch
from blackwell_matmul.ops.launching import gpu_of, kind_of, readable
from blackwell_matmul.ops.operand_checks import check_dispatched, unequal
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED, STEP_K
from blackwell_matmul.runtime.launches import Launches
from blackwell_matmul.runtime.recent import Recent

Both = tuple[Tensor, Tensor]
Plan = Callable[..., Both]
KEPT_QUANTIZED_PLANS = 256
_plans: Recent[tuple[Any, ...], Plan] = Recent(KEPT_QUANTIZED_PLANS)


def quantized_product(given: Operands, global_scale: Tensor | None, out: str, how: BlockOptions) -> Both:
    """Return data and scales of factor * (a @ b) + bias, as `quantize` returns them. The result has no gradient.

    global_scale: fp32 without dimensions, the second scale of nvfp4. out: the result's format, a key of `FORMATS`.
    how.out_dtype: type of the bias.
    """
    if bypasses_dispatch((given.a, given.b, given.scale_a, given.scale_b), (given.bias, given.factor, global_scale)):
        return run(given, global_scale, out, how)
    check_dispatched(given, OF_BLOCKS)
    operation = torch.ops.blackwell_matmul.block_scaled_mm_quantized.default
    made: Both = operation(*given, global_scale, out=out, **how._asdict())
    return made


def run(given: Operands, global_scale: Tensor | None, out: str, how: BlockOptions) -> Both:
    """Multiply and quantise. Calls with equal shapes, strides, types and options share a plan."""
    tensors = (*given, global_scale)
    key = (*[None if each is None else kind_of(each) for each in tensors], out, how)
    plan = _plans.made(key, _planned, given, out, how)
    return plan(*[None if each is None else each.detach() for each in tensors])


def _planned(given: Operands, out: str, how: BlockOptions) -> Plan:
    m, n = _checked(given, out, how)
    gpu = gpu_of(given.a, how.simulate, *OF_BLOCKS[:3])
    if gpu.arch not in rung("s2").targets:
        raise UnsupportedError(
            f"scaled_mm to {out} runs on {', '.join(rung('s2').targets)}, and {gpu} is {gpu.arch}; quantize of what "
            "scaled_mm returns in torch.float32 runs where both do."
        )
    k = given.a.shape[1] * FORMATS[how.recipe].per_byte
    if 0 in (m, n, k):
        return _without_products((m, n), out, how)
    launches = Launches(_kernel(how.recipe, out, pinned_types(given)), given.a.get_device())
    return QuantizedPlan(launches, (m, n, k), out, how)


def _checked(given: Operands, out: str, how: BlockOptions) -> tuple[int, int]:
    """Return the shape (m, n) of the result; raise InputError for operands that do not fit together."""
    if how.recipe not in FORMATS:
        raise UnsupportedError(
            f"output_dtype is {out!r}, for operands of {', '.join(FORMATS)}; quantize of what scaled_mm returns in "
            "torch.float32 takes any."
        )
    if given.bias is not None and given.bias.dtype not in OUTPUTS:
        raise InputError(f"bias is {given.bias.dtype}; it must be one of {', '.join(map(str, OUTPUTS))}.")
    m, n = checked(given, how)
    if unequal(n % STEP_K, 0):
        raise InputError(
            f"n is {n}; with output_dtype={out!r} it must be a multiple of {STEP_K}, as k of a product is, and zeros "
            f"as padding make it {-(-n // STEP_K) * STEP_K}."
        )
    return m, n


@functools.cache
def _kernel(recipe: str, out: str, types: str) -> Any:
    """Return the kernel object for both formats and the types of A and B. The object caches its compiled code."""
    from blackwell_matmul.kernels.products.scaled_quantizer import BlackwellScaledQuantizer

    script: Any = BlackwellScaledQuantizer  # for mypy: the class is called with its pinned knobs only
    return script(dtype=recipe, out=out, **({"types": types} if types else {}))


def _without_products(of_c: tuple[int, int], out: str, how: BlockOptions) -> Plan:
    zeros = without_products(of_c, how._replace(out_dtype=torch.float32))

    def multiply(*tensors: Tensor) -> Both:
        *operands, global_scale = tensors
        return quantize(zeros(*operands), out, global_scale=global_scale)

    return multiply


@dataclass(frozen=True, eq=False)
class QuantizedPlan:
    """Function that computes a product of operands with fixed shapes and strides. sizes: m, n, k. out: the result's
    format."""

    launches: Launches
    sizes: tuple[int, int, int]
    out: str
    how: BlockOptions

    def __call__(self, *tensors: Tensor) -> Both:
        *operands, global_scale = tensors
        given, (m, n, _), form = Operands(*operands), self.sizes, FORMATS[self.out]
        read = as_read(given, self.sizes, self.how)
        data = torch.empty((m, n // form.per_byte), dtype=torch.uint8, device=given.a.device)
        # The last tile of C may end within an atom; the kernel does not write the atom's padding.
        make = torch.zeros if n % BLOCK_SCALED[self.out].atom_k else torch.empty
        scales = make(form.scales(m, n), dtype=torch.uint8, device=given.a.device)
        numbers = [None if each is None else each.reshape(1) for each in (given.factor, global_scale)]
        extras = [None if each is None else readable(each) for each in (*numbers, given.bias)]
        arguments = [ABSENT if each is None else each for each in extras]
        present = [each for each in extras if each is not None]
        self.launches((*read, data, scales, *present), lambda: (*self.sizes, *read, data, scales, *arguments))
        return data.view(form.element), scales.view(form.scale)


# --- torch's operation


def _computed(*tensors: Tensor | None, out: str, **how: Any) -> Both:
    *operands, global_scale = tensors
    return run(Operands(*operands), global_scale, out, BlockOptions(**how))  # type: ignore[arg-type]


def _fake(*tensors: Tensor | None, out: str, **how: Any) -> Both:
    *operands, _ = tensors
    given, form = Operands(*operands), FORMATS[out]  # type: ignore[arg-type]
    m, n = _checked(given, out, BlockOptions(**how))
    shape = m, n // form.per_byte
    return given.a.new_empty(shape, dtype=form.element), given.a.new_empty(form.scales(m, n), dtype=form.scale)


_library = torch.library.Library("blackwell_matmul", "FRAGMENT")
_library.define(
    "block_scaled_mm_quantized(Tensor a, Tensor b, Tensor? bias, Tensor? factor, Tensor scale_a, Tensor scale_b, "
    "Tensor? global_scale, *, str out, str recipe, ScalarType out_dtype, bool swizzled_a=True, bool swizzled_b=True, "
    "bool simulate=False) -> (Tensor, Tensor)",
    tags=[torch.Tag.pt2_compliant_tag],
)
_library.impl("block_scaled_mm_quantized", _computed, "CompositeExplicitAutograd")
torch.library.register_fake("blackwell_matmul::block_scaled_mm_quantized", _fake, lib=_library)
