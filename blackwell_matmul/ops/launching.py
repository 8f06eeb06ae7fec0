"""Choice of a product's kernel, and its launch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.frontend.bind import DEFAULT_TARGET
from blackwell_matmul.hardware.gpus import Gpu, gpu_for_target
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES
from blackwell_matmul.ops.finished import EpilogueTensors
from blackwell_matmul.ops.operand_checks import How
from blackwell_matmul.ops.placing import copying, every_rung_reads, packed, padded, with_zeros
from blackwell_matmul.problem.form import PLAIN, Epilogue, Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, Problem
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.load import Loaded
from blackwell_matmul.runtime.recent import Recent
from blackwell_matmul.runtime.script_calls import ScriptCalls

Copy = Callable[[Tensor], Tensor]


KEPT_KERNELS = 512
"""Maximum kernels; each has one alpha and beta, which may change in each training step."""

KEPT_LAUNCHES = 8192
_launches: Recent[tuple[object, ...], Prepared] = Recent(KEPT_LAUNCHES)
"""Launches of all plans."""


class Launches:
    """Launches of one kernel on tensors of one kind, with new addresses and a new C; equal addresses reuse a packed
    launch. device: a GPU's index; below 0 the kernel is simulated.
    """

    def __init__(self, kernel: Any, device: int) -> None:
        self._kernel, self._device = kernel, device
        self._calls = ScriptCalls(kernel) if device >= 0 else None
        self._code: tuple[Loaded, tuple[int, ...]] | None = None

    def __call__(self, tensors: Iterable[Tensor], arguments: Callable[[], Sequence[object]]) -> None:
        """Launch the kernel. arguments: makes the call's arguments, for a launch that is not packed yet."""
        if self._calls is None:
            self._kernel(*arguments())
            return
        stream = torch_cuda.current_stream(self._device)
        key = (self, stream, *[each.data_ptr() for each in tensors])
        found = _launches.get(key)
        if found is None:
            found = self._packed(self._calls, arguments(), stream)
            _launches.put(key, found)
        found()

    def _packed(self, calls: ScriptCalls, arguments: Sequence[object], stream: int) -> Prepared:
        if self._code is None:
            self._code = calls.code(arguments, self._device)
        loaded, places = self._code
        return loaded.prepare([arguments[place] for place in places], self._device, stream)


@dataclass(frozen=True, eq=False)
class ProductPlan:
    """Plan of one product, for all operands of these shapes and strides: copies, kernel, and C.

    sizes: m, n, k, and the batches if the kernel takes any form. shape: of C as written; the first `columns` of its
    rows are the product's.
    """

    launches: Launches
    sizes: tuple[int, ...]
    copy_a: Copy | None
    copy_b: Copy | None
    shape: tuple[int, ...]
    columns: int
    out: torch.dtype

    def __call__(self, a: Tensor, b: Tensor, tensors: EpilogueTensors, into: Tensor | None = None) -> Tensor:
        """Return C, in `into` if the kernel can write there."""
        left = a if self.copy_a is None else self.copy_a(a)
        right = b if self.copy_b is None else self.copy_b(b.mT).mT
        c = whole = a.new_empty(self.shape, dtype=self.out) if into is None or not self._writes(into) else into
        if self.shape[-1] != self.columns:
            c = whole[..., : self.columns]
        extras = [_readable(each) for each in tensors if each is not None]
        self.launches((left, right, c, *extras), lambda: self._arguments(left, right.mT, c, tensors, iter(extras)))
        return c if whole is c else packed(c)

    def _writes(self, into: Tensor) -> bool:
        """Return true if `into` has the layout of a new C."""
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


def _readable(x: Tensor) -> Tensor:
    """Return a tensor aligned for vector loads of an epilogue; rows of a larger tensor may not be."""
    x = x.contiguous()
    return x.clone() if x.data_ptr() % ALIGNMENT_BYTES and x.numel() > 1 else x


def kind_of(x: Tensor) -> tuple[Any, ...]:
    """Return a plan's inputs of a tensor: TMA reads from multiples of 16 bytes."""
    return x.shape, x.stride(), x.dtype, x.device, x.data_ptr() % ALIGNMENT_BYTES


def planned(a: Tensor, b: Tensor, tensors: EpilogueTensors, gpu: Gpu, out: torch.dtype, how: How) -> ProductPlan | None:
    """Return the plan of a[.., m, k] @ b[.., k, n] with its epilogue; None without elements or products."""
    left, right, form = a, b.mT, _form(how)
    batch = () if a.dim() == b.dim() == 2 else (max(x.shape[0] for x in (a, b) if x.dim() == 3),)
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    shape = (*batch, m, n // form.epilogue.columns_of_c)
    if 0 in (*shape, k):
        return None
    name, alone = _of_forms(gpu), form == PLAIN and all(each is None for each in tensors)
    plain = every_rung_reads(left) and every_rung_reads(right) and n == padded(n, out.itemsize)
    if alone and not batch and out == a.dtype and (name is None or plain):
        plain_a, plain_b = (None if every_rung_reads(x) else with_zeros for x in (left, right))
        k = padded(k, a.element_size())
        best = best_rung(gpu, m, n, k, a.dtype)
        batches = (1,) if "forms" in rung(best).features else ()
        launches = Launches(_kernel(best, PLAIN), a.get_device())
        return ProductPlan(launches, (m, n, k, *batches), plain_a, plain_b, shape, n, out)
    if name is None:
        raise UnsupportedError(
            f"There is no kernel for {gpu} yet that computes batches or epilogues; torch does, and matmul of matrices "
            "runs here."
        )
    copy_a, copy_b = copying(left, right), copying(right, left)
    sizes = (m, n, k, batch[0] if batch else 1)
    launches, columns = Launches(_kernel(name, form), a.get_device()), shape[-1]
    whole = (*shape[:-1], padded(columns, out.itemsize))
    return ProductPlan(launches, sizes, copy_a, copy_b, whole, columns, out)


@functools.lru_cache(KEPT_KERNELS)
def _form(how: How) -> Form:
    epilogue = Epilogue(activation=how.activation, alpha=how.alpha, beta=how.beta)
    made = Form(epilogue=epilogue, fast_accum=how.fast_accum)
    return PLAIN if made == PLAIN else made


def gpu_of(x: Tensor, simulate: bool, operation: str, *operands: str) -> Gpu:
    """Return the GPU that runs an operation on x, or that is simulated; operands: names for messages."""
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
    """Return the first rung of the GPU's row in `LADDERS` with a schedule for the shape, or the last rung.

    A CTA pair's tile has twice the rows. Few rows use the product for few rows, or the first rung without pairs, if the
    cost model predicts far less time.
    """
    problem = Problem(m, n, k, DTYPE_OF_TORCH[str(dtype)])
    *better, last = _ladder(gpu)
    found = next((name for name in better if _takes(name, problem, gpu)), last)
    if m > ROWS_OF_ONE_CTA or "pairs" not in rung(found).features:
        return found
    singles = (name for name in ("few", *better) if "pairs" not in rung(name).features)
    alone = next((name for name in singles if _takes(name, problem, gpu)), found)
    return alone if _cycles(alone, problem, gpu) < FAR_LESS * _cycles(found, problem, gpu) else found


ROWS_OF_ONE_CTA = 128
"""Rows of one CTA's tile; a pair's has 256 (tcgen05.mma, PTX ISA, "Data Path Layout Organization")."""

FAR_LESS = 0.9
"""Maximum ratio of predicted cycles for taking another rung than the first (`bench/choice.py`)."""


def _cycles(name: str, problem: Problem, gpu: Gpu) -> int:
    from blackwell_matmul.scheduling import cost_model, space
    from blackwell_matmul.scheduling.mma import tile_config

    return cost_model.predicted_cycles(tile_config(space.choose(rung(name), problem, gpu), problem, gpu))


def _takes(name: str, problem: Problem, gpu: Gpu) -> bool:
    from blackwell_matmul.scheduling import rules, space

    return any(rules.can_run(schedule, problem, gpu) for schedule in space.projection(rung(name)))


@functools.cache
def _of_forms(gpu: Gpu) -> str | None:
    """Return the GPU's rung that takes any form; None if there is none."""
    return next((name for name in _ladder(gpu) if "forms" in rung(name).features), None)


@functools.lru_cache(KEPT_KERNELS)
def _kernel(name: str, form: Form) -> Any:
    """Return one kernel object for each rung and epilogue, which keeps its compiled and packed code."""
    return rung(name)() if form == PLAIN else rung(name)(form=form)


def _ladder(gpu: Gpu) -> tuple[str, ...]:
    if gpu.arch in LADDERS:
        return LADDERS[gpu.arch]
    raise UnsupportedError(
        f"matmul has no kernel for {gpu} yet; it has some for {', '.join(LADDERS)}, and torch.matmul runs here."
    )
