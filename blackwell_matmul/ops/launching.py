"""Plan of a product: its copies, the choice of its kernel, and the launch."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.frontend.bind import DEFAULT_TARGET
from blackwell_matmul.hardware.gpus import WITH_TCGEN05, Gpu, gpu_for_target
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.kernels.host.forms import ABSENT, lines_of
from blackwell_matmul.kernels.host.gemv import gemv_pays, why_no_gemv
from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES, row_major_strides
from blackwell_matmul.ops.distributed.shared_gpu import queue_pays
from blackwell_matmul.ops.finished import EpilogueTensors
from blackwell_matmul.ops.operand_checks import How
from blackwell_matmul.ops.placing import (
    CopiedLines,
    OperandCopies,
    every_rung_reads,
    lines_of_copy,
    packed,
    padded,
    with_zeros,
)
from blackwell_matmul.problem.form import PLAIN, Epilogue, Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, INT32_MAX, Problem, Schedule
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.launches import Launches
from blackwell_matmul.scheduling.parts_of_k import best_division, divided

KEPT_KERNELS = 512
"""Maximum number of cached kernels. alpha and beta are constants of a kernel, and may change in each training step."""


class LaunchesOfParts:
    """Two launches for a product whose K is divided, called as `Launches`.

    product: kernel of the sums over the parts of K. total: kernel that adds the parts. shape: shape of these sums in
    memory, [parts, m, line]. line is n, rounded up to multiples of 16 bytes.
    """

    def __init__(self, product: Any, total: Any, shape: tuple[int, int, int], device: int) -> None:
        self._product, self._total = Launches(product, device), Launches(total, device)
        self.kernel, self.device = product, self._product.device
        self._shape, self._strides = shape, row_major_strides(shape)

    def __call__(self, tensors: Iterable[Tensor], arguments: Callable[[], Sequence[object]]) -> None:
        for launches, given in zip((self._product, self._total), self._arguments(arguments())):
            launches([each for each in given if isinstance(each, Tensor)], functools.partial(tuple, given))

    def calls(self, arguments: Sequence[object]) -> list[tuple[Any, Sequence[object]]]:
        return list(zip((self._product.kernel, self._total.kernel), self._arguments(arguments)))

    def _arguments(self, arguments: Sequence[Any]) -> tuple[Sequence[object], Sequence[object]]:
        """Return the arguments of both launches."""
        m, n, k, a, b, c, bias, residual, *scales, _ = arguments
        parts, _, line = self._shape
        sums = a.new_empty(self._shape, dtype=torch.float32)
        of_sum = parts, m, n, line, sums, c, bias, residual
        return (m, n, k, a, b, sums[..., :n], ABSENT, ABSENT, *scales, parts), of_sum

    def at(self, addresses: Sequence[int]) -> bool:
        a, b, c, *extras = addresses
        sums = torch_cuda.allocated(self._shape, self._strides, torch.float32, self.device)  # until both are queued
        return self._product.at([a, b, sums.data_ptr()]) and self._total.at([sums.data_ptr(), c, *extras])


class Ready:
    """Function that computes calls of one kind without checks: it allocates C, and launches the kernel at the tensors'
    addresses.

    shape: shape of the result. place: index of C's address among the others. copies: copies of operands; None: no
    copies. graded: function that returns the result with gradients, from addresses and tensors; None before the first
    such call.
    """

    __slots__ = ("_copies", "_launches", "_out", "_place", "_shape", "_strides", "graded")

    def __init__(
        self,
        launches: Launches | LaunchesOfParts,
        shape: Sequence[int],
        out: torch.dtype,
        place: int,
        copies: CopiedLines | None = None,
    ) -> None:
        self._launches, self._shape, self._out, self._place = launches, tuple(shape), out, place
        self._copies = copies
        self._strides = row_major_strides(self._shape)
        self.graded: Callable[..., Tensor] | None = None

    def __call__(self, addresses: list[int]) -> Tensor | None:
        """Return the result; None if a launch is not packed yet. addresses: C's and those of copies are put in."""
        if self._copies is not None:
            copied = self._copies.at(addresses)  # memory that lasts until the product is queued
            if copied is None:
                return None
        c = torch_cuda.allocated(self._shape, self._strides, self._out, self._launches.device)
        addresses.insert(self._place, c.data_ptr())
        return c if self._launches.at(addresses) else None

    def turned(self) -> Ready:
        """Return a copy whose result has the last two dimensions exchanged."""
        made = copy.copy(self)
        made._shape, made._strides = ((*each[:-2], each[-1], each[-2]) for each in (self._shape, self._strides))
        made.graded = None
        return made


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """Function that computes a product of operands with fixed shapes and strides.

    sizes: m, n, k, and the batches if the kernel takes any form. copies: copies of operands. shape: shape of C in
    memory; the first `columns` columns are the result. out: type of C.
    """

    launches: Launches | LaunchesOfParts
    sizes: tuple[int, ...]
    copies: OperandCopies
    shape: tuple[int, ...]
    columns: int
    out: torch.dtype

    def __call__(self, a: Tensor, b: Tensor, tensors: EpilogueTensors, into: Tensor | None = None) -> Tensor:
        """Return C. If the kernel can write `into`, C is `into`."""
        left, right = self.copies(a, b.mT)
        c = whole = a.new_empty(self.shape, dtype=self.out) if into is None or not self._writes(into) else into
        if self.shape[-1] != self.columns:
            c = whole[..., : self.columns]
        extras = [readable(each) for each in tensors if each is not None]
        self.launches((left, right, c, *extras), lambda: self._arguments(left, right, c, tensors, iter(extras)))
        return c if whole is c else packed(c)

    def ready(self, tensors: Sequence[Tensor | None], addresses: Sequence[int], shape: Sequence[int]) -> Ready | None:
        """Return the function for later calls of a call's kind; None if torch copies an operand or C.

        tensors: the operands and the epilogue's tensors. addresses: addresses of the call's tensors. shape: shape of
        the call's result.
        """
        if any(self.copies.by_torch) or self.shape[-1] != self.columns or self.launches.device < 0:
            return None
        a, b, *extras = (each for each in tensors if each is not None)
        read, place = [each.data_ptr() for each in (a, b, *map(readable, extras))], len((a, b))
        return Ready(self.launches, shape, self.out, place, self.copies.by_kernel) if read == list(addresses) else None

    def calls(self, a: Tensor, b: Tensor, tensors: EpilogueTensors) -> list[tuple[Any, Sequence[object]]]:
        """Return the launches, as pairs of kernel and arguments, with a new C. The operands must need no copy."""
        c = a.new_empty(self.shape, dtype=self.out)
        extras = (each for each in tensors if each is not None)
        return self.launches.calls(self._arguments(a, b.mT, c, tensors, extras))

    def _writes(self, into: Tensor) -> bool:
        """Return True if `into` has the layout of a new C."""
        return (
            into.shape == self.shape
            and into.dtype == self.out
            and into.is_contiguous()
            and not into.data_ptr() % ALIGNMENT_BYTES
        )

    def _arguments(
        self, left: Tensor, right: Tensor, c: Tensor, tensors: EpilogueTensors, extras: Iterator[Tensor]
    ) -> tuple[object, ...]:
        m, n, k, *batches = self.sizes
        return m, n, k, left, right, c, *[0 if each is None else next(extras) for each in tensors if batches], *batches


def readable(x: Tensor) -> Tensor:
    """Return x, or a copy if x is not contiguous or not aligned for vector loads."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() % ALIGNMENT_BYTES and x.numel() > 1 else x


def kind_of(x: Tensor) -> tuple[Any, ...]:
    """Return the properties of a tensor on which a plan depends. TMA needs addresses that are multiples of 16 bytes."""
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNMENT_BYTES


def planned(a: Tensor, b: Tensor, tensors: EpilogueTensors, gpu: Gpu, out: torch.dtype, how: How) -> ProductPlan | None:
    """Return the plan of a[.., m, k] @ b[.., k, n] with its epilogue; None if C has no elements, or k is 0."""
    left, right, form = a, b.mT, _form(how)
    batch = () if a.dim() == b.dim() == 2 else (max(x.shape[0] for x in (a, b) if x.dim() == 3),)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    shape = (*batch, m, n // form.epilogue.columns_of_c)
    if 0 in (*shape, k):
        return None
    name, alone = _of_forms(gpu), form == PLAIN and all(each is None for each in tensors)
    plain = every_rung_reads(left) and every_rung_reads(right) and n == padded(n, out.itemsize)
    copies = OperandCopies.of(left, right)
    measured = not gpu.arch.startswith(WITH_TCGEN05)  # on a B200, tcgen05 kernels are predicted to be as fast as Gemv
    by_gemv = measured and not any(copies.copied) and not how.batch_invariant and gemv_pays(left, right, gpu)
    if by_gemv and not why_no_gemv(left, right, form):
        launches = Launches(_gemv(form), a.get_device())
        return ProductPlan(launches, (m, n, k, batch[0] if batch else 1), copies, shape, shape[-1], out)
    if not batch and (found := _in_parts(name, left, right, copies, tensors, out, gpu, how)) is not None:
        return found
    queue = not how.alone and queue_pays(gpu, math.prod((*batch, m, n)), k)
    if alone and not batch and out == a.dtype and (name is None or (plain and not how.batch_invariant)):
        padded_a, padded_b = (None if every_rung_reads(x) else with_zeros for x in (left, right))
        k = padded(k, a.element_size())
        best = best_rung(gpu, m, n, k, a.dtype)
        batches = (1,) if "forms" in rung(best).features else ()
        launches = Launches(_kernel(best, PLAIN, False, queue), a.get_device())
        return ProductPlan(launches, (m, n, k, *batches), OperandCopies((padded_a, padded_b)), shape, n, out)
    if name is None:
        raise UnsupportedError(
            f"There is no kernel for {gpu} yet that computes batches or epilogues; torch does, and matmul of matrices "
            "runs here."
        )
    sizes = (m, n, k, batch[0] if batch else 1)
    kernel = _kernel(name, form, how.batch_invariant, queue)
    launches, columns = Launches(kernel, a.get_device()), shape[-1]
    counted = math.prod(shape) <= INT32_MAX  # so many elements can be stored one by one
    whole = shape if counted else (*shape[:-1], padded(columns, out.itemsize))
    return ProductPlan(launches, sizes, copies, whole, columns, out)


def _in_parts(
    name: str | None,
    left: Tensor,
    right: Tensor,
    copies: OperandCopies,
    tensors: EpilogueTensors,
    out: torch.dtype,
    gpu: Gpu,
    how: How,
) -> ProductPlan | None:
    """Return the plan of left[m, k] @ right[n, k].T with K divided among CTAs without clusters; None if not faster."""
    form, scaled = _form(how), tensors.scale_a is not None
    if name is None or rung(name).mma != "wgmma" or how.batch_invariant or scaled or form.epilogue.columns_of_c > 1:
        return None
    (m, k), n = left.shape, right.shape[0]
    a, b = (lines_of_copy(x) if copied else lines_of(x) for x, copied in zip((left, right), copies.copied))
    majors = "k" if a.k_major else "m", "k" if b.k_major else "n"
    problem = Problem(m, n, k, DTYPE_OF_TORCH[str(left.dtype)], Form(*majors, a.stride, b.stride))
    kernel: Any = rung(name)
    found = best_division(problem, gpu, kernel)
    if found is None:
        return None
    shape = found.parts, m, divided(problem, found.parts).c_line
    launches = LaunchesOfParts(*_kernels_of_parts(name, found.schedule, form), shape, left.get_device())
    return ProductPlan(launches, (m, n, k, 1), copies, (m, n), n, out)


@functools.lru_cache(KEPT_KERNELS)
def _kernels_of_parts(name: str, schedule: Schedule, form: Form) -> tuple[Any, Any]:
    """Return two kernels: for the sums over the parts of K, and for the sum of the parts."""
    from blackwell_matmul.kernels.products.sum_of_parts import SumOfParts

    total: Any = SumOfParts  # for mypy: the class is called with its pinned knobs only
    return rung(name)(form=Form(divides_k=True), **schedule.as_dict()), total(form=form)


@functools.lru_cache(KEPT_KERNELS)
def _form(how: How) -> Form:
    epilogue = Epilogue(activation=how.activation, alpha=how.alpha, beta=how.beta)
    made = Form(epilogue=epilogue, fast_accum=how.fast_accum)
    return PLAIN if made == PLAIN else made


def gpu_of(x: Tensor, simulate: bool, operation: str, *operands: str) -> Gpu:
    """Return the GPU that runs an operation on x, or the simulated GPU. operands: their names, for messages."""
    if simulate and x.device.type != "cpu":
        names, are = " and ".join(operands), "are" if len(operands) > 1 else "is"
        raise InputError(f"{names} {are} on {x.device}; simulate=True takes CPU tensors, such as {operands[0]}.cpu().")
    if not simulate and not x.is_cuda:
        raise UnsupportedError(
            f"{operation} got tensors on {x.device}; it runs CUDA tensors, and simulates CPU tensors with "
            "simulate=True."
        )
    return gpu_for_target(DEFAULT_TARGET) if simulate else gpu_at(x.get_device())


@functools.lru_cache(maxsize=4096)
def best_rung(gpu: Gpu, m: int, n: int, k: int, dtype: torch.dtype) -> str:
    """Return the name of the kernel for a shape: the first in the GPU's row of `LADDERS` that has a schedule for it.

    A CTA pair's tile has 256 rows. For fewer rows than that, return a kernel without pairs if the cost model predicts
    far less time (`FAR_LESS`).
    """
    problem = Problem(m, n, k, DTYPE_OF_TORCH[str(dtype)])
    *better, last = _ladder(gpu)
    found = next((name for name in better if _takes(name, problem, gpu)), last)
    if m > ROWS_OF_ONE_CTA or "pairs" not in rung(found).features:
        return found
    singles = (name for name in ("few", *better) if "pairs" not in rung(name).features)
    alone = next((name for name in singles if _takes(name, problem, gpu)), found)
    return alone if _cycles(alone, problem, gpu) < FAR_LESS * _cycles(found, problem, gpu) else found


ONE_ORDER_OF_SUMS: Mapping[str, int] = MappingProxyType({"split_k": 1, "swap_ab": 0})
"""Knob values with which the order of additions for an element of C is fixed: along K, one MMA after another. All other
knobs change only the division of C among CTAs, and the time."""

A_CTA_FOR_EACH_TILE = {"sm_count": 1 << 24}
"""Pins of a grid with a CTA for each tile. A CTA of `HopperMatmul` with several tiles goes backwards along K in every
second tile."""


@functools.lru_cache(maxsize=4096)
def best_scaled_rung(gpu: Gpu, problem: Problem) -> str:
    """Return the name of the kernel for block-scaled operands: "g1" on GeForce Blackwell and GB10, else "s2".

    For few rows return "s1", which has no CTA pairs, if its predicted time is far less.
    """
    if gpu.arch in rung("g1").targets:
        return "g1"
    few = problem.m <= ROWS_OF_ONE_CTA
    return "s1" if few and _cycles("s1", problem, gpu) < FAR_LESS * _cycles("s2", problem, gpu) else "s2"


ROWS_OF_ONE_CTA = 128
"""Rows of the tile of one CTA. The tile of a pair has 256 (tcgen05.mma, PTX ISA, "Data Path Layout Organization")."""

FAR_LESS = 0.9
"""Ratio of predicted cycles below which a kernel without CTA pairs replaces the first choice (`bench/choice.py`)."""


def _cycles(name: str, problem: Problem, gpu: Gpu) -> int:
    from blackwell_matmul.scheduling import cost_model, space
    from blackwell_matmul.scheduling.mma import tile_config

    return cost_model.predicted_cycles(tile_config(space.choose(rung(name), problem, gpu), problem, gpu))


def _takes(name: str, problem: Problem, gpu: Gpu) -> bool:
    from blackwell_matmul.scheduling import rules, space

    return any(rules.can_run(schedule, problem, gpu) for schedule in space.projection(rung(name)))


@functools.cache
def _of_forms(gpu: Gpu) -> str | None:
    """Return the name of the GPU's kernel that accepts any form; None if there is none."""
    return next((name for name in _ladder(gpu) if "forms" in rung(name).features), None)


@functools.lru_cache(KEPT_KERNELS)
def _kernel(name: str, form: Form, batch_invariant: bool = False, queue: bool = False) -> Any:
    """Return the kernel object of a name and form. The object caches its compiled code and packed arguments.

    batch_invariant: True pins the knobs of `ONE_ORDER_OF_SUMS`, and gives each CTA one tile. queue: True lets CTAs take
    tiles as they come, where a kernel has such a queue.
    """
    pins: dict[str, Any] = {} if form == PLAIN else {"form": form}
    if queue and not batch_invariant and "queue" in rung(name).features:
        pins["queue"] = 1
    if batch_invariant:
        pins |= {knob: value for knob, value in ONE_ORDER_OF_SUMS.items() if knob in rung(name).knobs}
        pins |= A_CTA_FOR_EACH_TILE if "persistent" in rung(name).features else {}
    return rung(name)(**pins)


@functools.lru_cache(KEPT_KERNELS)
def _gemv(form: Form) -> Any:
    """Return one kernel object for each epilogue, for products with few rows of A or of B."""
    from blackwell_matmul.kernels.products.gemv import Gemv

    script: Any = Gemv  # for mypy: the class is called with its pinned knobs only
    return script() if form == PLAIN else script(form=form)


def _ladder(gpu: Gpu) -> tuple[str, ...]:
    if gpu.arch in LADDERS:
        return LADDERS[gpu.arch]
    raise UnsupportedError(
        f"matmul has no kernel for {gpu} yet; it has some for {', '.join(LADDERS)}, and torch.matmul runs here."
    )
