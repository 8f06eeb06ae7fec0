"""`Contender`: a participant of a benchmark as plain data, from which a child process makes a callable.

A kernel is compiled before the GPU is needed, and loaded from its bundle (`bundles`). A function comes from a file:
`make()` of the file returns `call(a, b, c)`, which writes c or returns a new output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import shown, spelled
from blackwell_matmul.harness import studies_part
from blackwell_matmul.harness.calls.user_kernel import check_name, load_module
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import BLOCK_SCALES, SCALED_K
from blackwell_matmul.problem.problem import Problem, Schedule

if TYPE_CHECKING:
    import torch

    from blackwell_matmul.harness.bench.devices import Call

CUBLAS = "cublas"


@dataclass(frozen=True)
class Contender:
    """A participant of a benchmark.

    name: name in the table. source: a kernel's name, "file.py:Script" or "file.py:make". pins: pinned knobs of a
    kernel, as text for `Schedule.parse`. only: the single problem of the participant, as text; "": any problem.
    """

    name: str
    kind: Literal["cublas", "kernel", "function"]
    source: str = ""
    pins: str = ""
    only: str = ""

    def takes(self, problem: Problem) -> bool:
        return self.only in ("", str(problem))


def cublas() -> Contender:
    return Contender(CUBLAS, "cublas")


def kernel(source: str, pins: Schedule | None = None) -> Contender:
    """Return the contender of a kernel. source: a kernel's name, or "file.py:Script"."""
    name = source.rpartition(":")[2]
    return Contender(f"{name} {pins}" if pins else name, "kernel", source, str(pins or ""))


def function(name: str, source: str) -> Contender:
    return Contender(name, "function", source)


BASELINE_FILES = {"triton": "triton_matmul.py", "torch.compile": "torch_compile.py"}
"""Files of the baselines: Triton's persistent TMA matmul, and torch.compile with max-autotune."""


def baselines() -> tuple[Contender, ...]:
    return tuple(baseline(name) for name in BASELINE_FILES)


def baseline(name: str) -> Contender:
    return function(name, f"{studies_part.folder('baselines are') / 'baselines' / BASELINE_FILES[name]}:make")


def named(name: str) -> Contender:
    """Return the contender of a kernel, script or baseline; raise InputError for an unknown name."""
    if name in BASELINE_FILES:
        return baseline(name)
    check_name(name)
    return kernel(name)


def make_call(contender: Contender, problem: Problem, bundle: Mapping[str, Any] | None) -> Call:
    """Return the callable of a contender for this problem's operands. bundle: index entry of a kernel's bundle."""
    if contender.kind == "cublas":
        if problem.format:
            return torch_block_scaled(problem.dtype)
        wide = problem.element_bytes > 1  # torch.mm refuses 8-bit operands
        return _cublas if problem.is_plain and wide else _finished_by_torch(problem)
    if contender.kind == "function":
        return _function(contender.source)
    if bundle is None:
        raise InputError(f"{contender.name} was not compiled for {problem}.")
    return _loaded(bundle, problem)


def _function(source: str) -> Call:
    path, _, name = source.rpartition(":")
    make = getattr(load_module(path), name, None)
    if not callable(make):
        raise InputError(f"{shown(source)} names no function; it must be file.py:make, where make() returns a call.")
    made: Call = make()
    return made


def _loaded(bundle: Mapping[str, Any], problem: Problem) -> Call:
    from blackwell_matmul.runtime import load

    kernel, places = load(bundle["folder"]), bundle["places"]
    sizes = problem.m, problem.n, problem.k

    def call(*operands: Any) -> None:
        arguments = (*sizes, *operands)  # trailing arguments may be omitted
        kernel(*[arguments[place] for place in places if place < len(arguments)])

    return call


def _cublas(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    import torch

    torch.mm(a, b.T, out=c)


def _finished_by_torch(problem: Problem) -> Call:
    """Return a call of torch for a product with an epilogue. cuBLAS applies scales, bias or residual where torch allows
    it; torch's own kernels do the rest."""
    import torch
    from torch.nn.functional import linear

    from blackwell_matmul.ops.finished import EpilogueTensors, finished

    how = problem.form.epilogue
    at_once = problem.element_bytes > 1 and not problem.form.out and how.scale == "none"
    with_bias = at_once and how.bias and not how.residual and how.alpha == 1 and problem.batches == 1
    with_residual = torch.addmm if problem.batches == 1 else torch.baddbmm

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, *rest: Any) -> torch.Tensor:
        given = (None if isinstance(each, int) else each for each in (*rest, 0, 0, 0, 0)[:4])
        bias, residual, *scales = given
        alpha = how.alpha
        if with_bias:
            z, bias = linear(a, b, bias), None
        elif at_once and residual is not None:
            z, residual, alpha = with_residual(residual, a, b.mT, beta=how.beta, alpha=alpha), None, 1.0
        elif a.element_size() == 1:
            z, scales = _scaled(a, b, scales, how.scale, c.dtype), [None, None]
        else:
            z = a @ b.mT
        return finished(z, EpilogueTensors(bias, residual, *scales), how.activation, alpha, how.beta).to(c.dtype)

    return call


def _scaled(a: torch.Tensor, b: torch.Tensor, scales: Sequence[Any], kind: str, out: torch.dtype) -> torch.Tensor:
    """Return torch's product of 8-bit operands with scales. kind: as `Epilogue.scale`."""
    import torch

    if kind in BLOCK_SCALES:
        left, right = torch_block_scales(kind, a, b, *scales)
    else:
        shapes = ((), ()) if scales[0] is None or scales[0].numel() == 1 else ((-1, 1), (1, -1))
        given = (a.new_ones((), dtype=torch.float32) if each is None else each for each in scales)
        left, right = (each.reshape(shape) for each, shape in zip(given, shapes, strict=True))
    return torch._scaled_mm(a, b.mT, left, right, out_dtype=out)


def torch_block_scaled(name: str) -> Call:
    """Return a call of torch's scaled_mm for block-scaled operands, with scales in atoms of 128x4. name: the format.

    The call raises UnsupportedError if torch cannot compute the product.
    """
    from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

    from blackwell_matmul.ops.block_scaled.block_operands import RECIPES

    recipe, swizzle = getattr(ScalingType, RECIPES[BLOCK_SCALED[name].block]), SwizzleType.SWIZZLE_32_4_4

    def call(
        a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, c: torch.Tensor
    ) -> torch.Tensor:
        given = a, b.T, scale_a, recipe, scale_b, recipe, swizzle, swizzle
        try:
            return scaled_mm(*given, output_dtype=c.dtype)
        except (RuntimeError, ValueError) as error:
            raise UnsupportedError(f"torch's scaled_mm of {name}: {spelled(error)}.") from None

    return call


def torch_block_scales(
    kind: str, a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor
) -> list[torch.Tensor]:
    """Return scales of a[m, k] and b[n, k] in the layouts of torch._scaled_mm, from those of a kernel
    (`block_scale_shapes`)."""
    blocks_k = -(-a.shape[1] // SCALED_K)
    of_rows = [
        scales[:, : x.shape[0]].contiguous().mT if rows == 1 else scales[:, :blocks_k]
        for x, scales, rows in zip((a, b), (scale_a, scale_b), BLOCK_SCALES[kind])
    ]
    return [of_rows[0], of_rows[1].mT]
