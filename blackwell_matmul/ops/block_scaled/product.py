"""Products of operands with scales of blocks. On Blackwell a kernel with block-scaled MMAs runs, on Hopper one with
wgmma.

With a second scale or a bias, the kernel returns C in fp32. torch then scales C, adds the bias and rounds once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.host.forms import why_unreadable
from blackwell_matmul.ops.block_scaled.block_operands import OF_BLOCKS, BlockOptions, Operands, checked
from blackwell_matmul.ops.block_scaled.formats import FORMATS
from blackwell_matmul.ops.block_scaled.swizzling import cleared, swizzle
from blackwell_matmul.ops.counting import tell_counters
from blackwell_matmul.ops.direct import bypasses_dispatch, wants_gradient
from blackwell_matmul.ops.finished import EpilogueTensors, finished
from blackwell_matmul.ops.gradients import ProductOfTwo
from blackwell_matmul.ops.launching import best_scaled_rung, gpu_of, kind_of, readable
from blackwell_matmul.ops.operand_checks import DEFAULTS, check_dense, check_dispatched
from blackwell_matmul.ops.placing import k_major
from blackwell_matmul.ops.two_levels import define
from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS
from blackwell_matmul.problem.form import BLOCK_SCALES
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, Problem
from blackwell_matmul.runtime.launches import Launches
from blackwell_matmul.runtime.recent import Recent


def block_scaled_product(given: Operands, how: BlockOptions) -> Tensor:
    """Return factor * (a @ b) + bias, scaled by blocks, in how.out_dtype. The result has no gradient."""
    plain = bypasses_dispatch((given.a, given.b, given.scale_a, given.scale_b), (given.bias, given.factor))
    if plain and not wants_gradient(given):
        return run(given, how)
    check_dispatched(given, OF_BLOCKS)
    tell_counters()
    made: Tensor = torch.ops.blackwell_matmul.block_scaled_mm.default(*given, **how._asdict())
    return made


Plan = Callable[..., Tensor]
KEPT_BLOCK_PLANS = 1024
_plans: Recent[tuple[Any, ...], Plan] = Recent(KEPT_BLOCK_PLANS)


def run(given: Operands, how: BlockOptions) -> Tensor:
    """Return the product without gradients. Calls with equal shapes, strides, types and options share a plan."""
    key = (*[None if each is None else kind_of(each) for each in given], how)
    plan = _plans.made(key, _planned, given, how)
    return plan(*[None if each is None else each.detach() for each in given])


def _planned(given: Operands, how: BlockOptions) -> Plan:
    of_c, gpu = checked(given, how), gpu_of(given.a, how.simulate, *OF_BLOCKS[:3])
    if how.recipe in BLOCK_SCALES:
        return without_products(of_c, how) if 0 in (*of_c, given.a.shape[1]) else _on_hopper(how, gpu)
    able = (*rung("s2").targets, *rung("g1").targets)
    if gpu.arch not in able:
        raise UnsupportedError(
            f"scaled_mm of {how.recipe} runs on {', '.join(able)}, and {gpu} is {gpu.arch}; matmul of what dequantize "
            "returns runs here."
        )
    sizes = (*of_c, given.a.shape[1] * FORMATS[how.recipe].per_byte)
    if 0 in sizes:
        return without_products(of_c, how)
    name = best_scaled_rung(gpu, Problem(*sizes, how.recipe))
    launches = Launches(_kernel(name, how.recipe, pinned_types(given)), given.a.get_device())
    return BlockScaledPlan(launches, sizes, how)


@functools.cache
def _kernel(name: str, recipe: str, types: str) -> Any:
    """Return the kernel object of this name. The object caches its compiled code and packed arguments.

    types: types of A and B, such as "e4m3 e5m2"; "": the format's.
    """
    return rung(name)(dtype=recipe, **({"types": types} if types else {}))


def pinned_types(given: Operands) -> str:
    """Return the types of A and B, such as "e4m3 e5m2"; "" if they are the format's.

    A kernel takes operands as bytes, so that their types are an argument of its own.
    """
    types = " ".join(DTYPE_OF_TORCH.get(str(x.dtype), "") for x in (given.a, given.b))
    return types if "e5m2" in types else ""


def _on_hopper(how: BlockOptions, gpu: Gpu) -> Plan:
    if not how.simulate and "wgmma" not in gpu.features:
        raise UnsupportedError(
            f"scaled_mm with fp32 scales of blocks runs on Hopper, and {gpu} is {gpu.arch}; operands of quantize run "
            f"on {', '.join(rung('s2').targets)}."
        )
    from blackwell_matmul.kernels.products.hopper_block_scaled import hopper_block_scaled_mm

    def multiply(*tensors: Tensor) -> Tensor:
        each = Operands(*tensors)
        a, b = (k_major(x) if why_unreadable(x) else x for x in (each.a, each.b.mT))
        return hopper_block_scaled_mm(a, b.mT, each.scale_a, each.scale_b, how.recipe, each.bias, how.out_dtype)

    return multiply


def without_products(of_c: tuple[int, int], how: BlockOptions) -> Plan:
    def multiply(*tensors: Tensor) -> Tensor:
        each = Operands(*tensors)
        return _rounded(torch.zeros(of_c, device=each.a.device), each.bias, each.factor, how.out_dtype)

    return multiply


def _rounded(c: Tensor, bias: Tensor | None, factor: Tensor | None, out: torch.dtype) -> Tensor:
    """Return factor * c + bias, rounded once."""
    return finished(c if factor is None else c * factor, EpilogueTensors(bias)).to(out)


@dataclass(frozen=True, eq=False)
class BlockScaledPlan:
    """Function that computes a product of operands with fixed shapes and strides. sizes: m, n, k."""

    launches: Launches
    sizes: tuple[int, int, int]
    how: BlockOptions

    def __call__(self, *tensors: Tensor) -> Tensor:
        a, _, bias, factor, *_ = tensors
        alone, (m, n, _), how = bias is None and factor is None, self.sizes, self.how
        read = as_read(Operands(*tensors), self.sizes, how)
        c = torch.empty((m, n), dtype=how.out_dtype if alone else torch.float32, device=a.device)
        self.launches((*read, c), lambda: (*self.sizes, *read, c))
        return c if alone else _rounded(c, bias, factor, how.out_dtype)


def as_read(given: Operands, sizes: tuple[int, int, int], how: BlockOptions) -> list[Tensor]:
    """Return a, b and both scales as tensors of bytes that a kernel can read. sizes: m, n, k."""
    m, n, k = sizes
    blocks = k // FORMATS[how.recipe].block
    scales = (
        _atoms(given.scale_a, m, blocks, how.swizzled_a),
        _atoms(given.scale_b, n, blocks, how.swizzled_b),
    )
    return [readable(each.view(torch.uint8)) for each in (given.a, given.b.mT, *scales)]  # torch cannot copy fp4


def _atoms(scales: Tensor, rows: int, blocks: int, swizzled: bool) -> Tensor:
    """Return the scales in whole atoms. Scales of padded blocks are 0: their elements are 0, and 0 * NaN is NaN."""
    if not swizzled:
        return swizzle(scales)
    return cleared(scales, rows, blocks) if blocks % ATOM_BLOCKS else scales


# --- torch's operation


def _computed(*tensors: Tensor | None, **how: Any) -> Tensor:
    return run(Operands(*tensors), BlockOptions(**how))  # type: ignore[arg-type]


def _followed(lower: Callable[..., Tensor], upper: object, rest: dict[str, Any], *tensors: Tensor | None) -> Tensor:
    made: Tensor = ProductOfTwo.apply(functools.partial(lower, **rest), upper, DEFAULTS, *tensors)
    return made


def _fake(*tensors: Tensor | None, **how: Any) -> Tensor:
    given = Operands(*tensors)  # type: ignore[arg-type]
    for name, each in given._asdict().items():
        if each is not None:
            check_dense(name, each)
    return given.a.new_empty(checked(given, BlockOptions(**how)), dtype=how["out_dtype"])


SCHEMA = (
    "Tensor a, Tensor b, Tensor? bias, Tensor? factor, Tensor scale_a, Tensor scale_b, *, str recipe, "
    "ScalarType out_dtype, bool swizzled_a=True, bool swizzled_b=True, bool simulate=False"
)
_library = torch.library.Library("blackwell_matmul", "FRAGMENT")
define(_library, "block_scaled_mm", SCHEMA, _computed, _fake, _followed)
