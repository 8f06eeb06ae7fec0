"""`check_matmul`: compares C with the product of A and B, and locates errors.

A fixed tolerance hides real faults: 1e-2 is twenty units in the last place of a small fp16 element, and less than one
of a large element. So an error is measured in units of the unavoidable error. Element C[i, j] has

    half_ulp    half a unit in the last place of C's type at the exact value: the error of one rounding
    noise       2**-24 * |A[i, :]| * |B[j, :]| (Euclidean norms): the error of accumulating in fp32. On a GPU
                times max(1, sqrt(K) / 16): tensor cores round the sum towards zero at each step of 16 products
                (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores", 2021)

and its error is `max(0, |C[i, j] - exact| - noise) / (half_ulp + noise)`: at most 1 for a correctly rounded result,
and 2 for a whole unit in the last place. C's largest error may be twice the reference's largest error. The reference
is torch's product in the same types, or the exact product rounded once, whichever has the larger error. If both are
exact (small integers, tiny k), C must be exact as well, up to the noise. The reference of an fp32 C of 16-bit operands
is torch's fp32 product. For an fp32 C of 16-bit or block-scaled operands, at least 3 units are allowed, the error of
another order of sums.

With an epilogue, exact and reference are results of the epilogue in float64 and in fp32, and the noise passes through
the activation (`finished_values.py`). The verdict on several batches is that on the worst batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.one_line import OneLine
from blackwell_matmul.base.validation import has_memory, shown
from blackwell_matmul.harness.calls.scaled_operands import dequantised, typed
from blackwell_matmul.harness.finished_values import Finishing
from blackwell_matmul.harness.reference import scaled_blocks, torch_product
from blackwell_matmul.harness.scale_mistakes import likely_mistake
from blackwell_matmul.ops.block_scaled.formats import FORMATS
from blackwell_matmul.ops.finished import EpilogueTensors
from blackwell_matmul.problem.form import BLOCK_SCALES
from blackwell_matmul.problem.problem import Problem, positive
from blackwell_matmul.scheduling.tile_config import MMA_K_BYTES

ALLOWED_RATIO = 2.0
ANY_ORDER_ERROR = 1.5
"""Expected error of fp32 sums in another order than torch's, in the module's units."""
BLOCK_ELEMENTS = 2**21
"""Number of elements of C that are compared at a time."""
BLOCK_ELEMENT_BYTES = 150
"""Approximate number of bytes for each compared element."""

Range = tuple[int, int]
"""First and last index, both included."""


@dataclass(frozen=True, repr=False)
class Verdict(OneLine):
    """Result of `check_matmul`.

    max_abs_error: largest |C - exact|; inf for unexpected NaN or infinity in C. reference_error: largest
    |reference - exact| of torch's product. ratio: C's largest error divided by the reference's, in the module's units;
    0 if C has no error. wrong: number of elements of C beyond the limit. unwritten: number of wrong elements that are
    NaN or infinite. bad_tiles: (row, column) of each tile of tile_m x tile_n elements with a wrong element. bad_rows,
    bad_columns: ranges (first, last) of rows and columns with a wrong element. worst: index of the element with the
    largest error. batch: index of the worst batch, if there are several. likely: sentence about a mistake that explains
    a wrong block-scaled product.
    """

    ok: bool
    m: int
    n: int
    max_abs_error: float
    reference_error: float
    ratio: float
    tile_m: int
    tile_n: int
    worst: tuple[int, int] = (0, 0)
    wrong: int = 0
    unwritten: int = 0
    bad_tiles: tuple[tuple[int, int], ...] = ()
    bad_rows: tuple[Range, ...] = ()
    bad_columns: tuple[Range, ...] = ()
    batch: int | None = None
    likely: str = ""

    @property
    def message(self) -> str:
        """Return the verdict as one sentence."""
        if self.ok:
            return f"correct: {self._size()}."
        likely = f"; C is what comes out if {self.likely}" if self.likely else ""
        return f"wrong: {self._place()}; {self._size()}{likely}."

    def __str__(self) -> str:
        return self.message

    def _facts(self) -> Mapping[str, object]:
        known = {"C": f"{self.m} x {self.n}", "largest error": f"{self.max_abs_error:.3g}"}
        known |= {"torch's own": f"{self.reference_error:.3g}", "ratio": f"{self.ratio:.2f}"}
        return {**known, "wrong elements": self.wrong, "never written": self.unwritten}

    def _size(self) -> str:
        if self.max_abs_error == 0:
            return "exact"
        if not math.isfinite(self.max_abs_error):
            which = "it is" if self.wrong == 1 else f"{self.unwritten} of them are"
            return f"{which} NaN or infinite, as if never written"
        size = f"largest error {self.max_abs_error:.3g}"
        where = "" if self.ok else f" at C[{self.worst[0]}, {self.worst[1]}]"
        if not math.isfinite(self.ratio):
            return f"{size}{where}, where torch's own product is exact"
        return f"{size}{where}, {self.ratio:.{2 if self.ratio < 10 else 0}f}x torch's own"

    def _place(self) -> str:
        tiles = -(-self.m // self.tile_m) * -(-self.n // self.tile_n)
        bad = f"{len(self.bad_tiles)} of {tiles} tiles of {self.tile_m}x{self.tile_n}"
        if len(self.bad_tiles) < tiles:
            bad += f" ({'tile' if len(self.bad_tiles) == 1 else 'the first is'} {self.bad_tiles[0]})"
        where = f"rows {_spell(self.bad_rows)} and columns {_spell(self.bad_columns)}"
        whose = "" if self.batch is None else f" of batch {self.batch}"
        return f"{self.wrong} of {self.m * self.n} elements{whose} in {bad}, {where}"


def check_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    *,
    tile_m: int = 128,
    tile_n: int = 128,
    finishing: Finishing | None = None,
) -> Verdict:
    """Compare C[m, n] with A[m, k] @ B[n, k].T by the rule of this module.

    a, b, c: torch tensors of floating types on one device. tile_m, tile_n: size in elements of the tiles by which
    errors are located. finishing: epilogue of the product. NaN and infinity in C are wrong unless the exact product,
    rounded to C's type, or torch's product has the same value. The check takes 8 bytes for each element of B, for a
    short time 16, and about 300 MB.

    Raises InputError if shapes, types or devices do not fit.
    """
    if finishing is not None and not isinstance(finishing, Finishing):
        raise InputError(f"finishing is {shown(finishing)}; it must be a Finishing, or None.")
    return _judged(a, b, c, positive("tile_m", tile_m), positive("tile_n", tile_n), finishing)


def _judged(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    tile_m: int,
    tile_n: int,
    finishing: Finishing | None = None,
    bits: int = 0,
) -> Verdict:
    """Compare as `check_matmul` does. bits: bits of a block-scaled element, if A and B are dequantised; else 0."""
    _require_matching(a, b, c, 1 if finishing is None else finishing.epilogue.columns_of_c)
    a, b, c = a.detach(), b.detach(), c.detach()
    total = _Largest()
    for block in _compare(a, b, c, finishing, bits):
        total.add(block)
    verdict = _verdict(total, c, tile_m, tile_n)
    return verdict if verdict.ok else _locate(verdict, total.limit, _compare(a, b, c, finishing, bits))


def check_product(problem: Problem, operands: Sequence[Any], *, tile_m: int = 128, tile_n: int = 128) -> Verdict:
    """Compare C as `check_matmul` does, for a problem of any form.

    operands: a, b, c, bias, residual, scale_a, scale_b and the batches, or only a, b and c. For a block-scaled problem:
    a, b, scale_a, scale_b and c; C is compared with the product of the dequantised operands.
    """
    if problem.format:
        return _block_scaled(problem, operands, tile_m, tile_n)
    a, b, c, *rest = operands
    if problem.is_plain:
        return check_matmul(a, b, c, tile_m=tile_m, tile_n=tile_n)
    bias, residual, *scales = (each if isinstance(each, torch.Tensor) else None for each in rest[:4])
    if problem.form.epilogue.scale in BLOCK_SCALES:
        a, b = (
            scaled_blocks(each, scale, rows)
            for each, scale, rows in zip((a, b), rest[2:4], BLOCK_SCALES[problem.form.epilogue.scale])
        )
        scales = [None, None]
    tile_n = max(1, tile_n // problem.form.epilogue.columns_of_c)

    def judged(batch: int) -> Verdict:
        kept = None if residual is None else residual.reshape(problem.batches, problem.m, problem.n)[batch]
        finishing = Finishing(problem.form.epilogue, EpilogueTensors(bias, kept, *scales))
        matrices = (_matrix(each, batch) for each in (a, b, c))
        return check_matmul(*matrices, tile_m=tile_m, tile_n=tile_n, finishing=finishing)

    verdicts = [judged(batch) for batch in range(problem.batches)]
    worst = max(range(problem.batches), key=lambda batch: (not verdicts[batch].ok, verdicts[batch].ratio))
    return verdicts[worst] if problem.batches == 1 else replace(verdicts[worst], batch=worst)


def _block_scaled(problem: Problem, operands: Sequence[Any], tile_m: int, tile_n: int) -> Verdict:
    """Compare C with the product of the dequantised operands. If C is wrong, the verdict has the likely mistake."""
    a, b, scale_a, scale_b, c = operands
    wide = dequantised(problem, a, scale_a), dequantised(problem, b, scale_b)
    verdict = _judged(*wide, c, tile_m, tile_n, bits=problem.element_bits)
    if verdict.ok:
        return verdict
    form = FORMATS[problem.dtype]
    left, right = typed(a, form), typed(b, form)
    rows, columns = (
        torch.cat([torch.arange(first, last + 1) for first, last in ranges])
        for ranges in (verdict.bad_rows, verdict.bad_columns)
    )
    found = likely_mistake(
        left, right, scale_a, scale_b, c, block=form.block, scale=form.scale, rows=rows, columns=columns
    )
    return replace(verdict, likely=found)


def _matrix(tensor: torch.Tensor, batch: int) -> torch.Tensor:
    """Return the matrix of a batch, or the matrix that all batches share."""
    return tensor if tensor.dim() == 2 else tensor[batch if tensor.shape[0] > 1 else 0]


@dataclass(frozen=True, eq=False)
class _Block:
    """Errors of some rows of C. first_row: index of the first row. error: errors of all elements, in the module's
    units."""

    first_row: int
    error: torch.Tensor
    reference_error: float
    max_abs_error: float
    max_abs_reference_error: float
    finite: torch.Tensor


@dataclass
class _Largest:
    """Largest errors of all blocks that were added."""

    error: float = 0.0
    reference_error: float = 0.0
    max_abs_error: float = 0.0
    max_abs_reference_error: float = 0.0
    worst: tuple[int, int] = (0, 0)

    def add(self, block: _Block) -> None:
        index = int(block.error.argmax())
        error = float(block.error.flatten()[index])
        if error > self.error:
            row, column = divmod(index, block.error.shape[1])
            self.error, self.worst = error, (block.first_row + row, column)
        self.reference_error = max(self.reference_error, block.reference_error)
        self.max_abs_error = max(self.max_abs_error, block.max_abs_error)
        self.max_abs_reference_error = max(self.max_abs_reference_error, block.max_abs_reference_error)

    @property
    def limit(self) -> float:
        return ALLOWED_RATIO * self.reference_error

    @property
    def ratio(self) -> float:
        if self.error == 0:
            return 0.0
        return self.error / self.reference_error if self.reference_error else math.inf


def _compare(
    a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, finishing: Finishing | None, bits: int
) -> Iterator[_Block]:
    """Yield the errors of C in blocks of rows, which limit the memory of the comparison."""
    b_exact, b_norm = b.double(), _norms(b)
    rows, least = max(1, BLOCK_ELEMENTS // c.shape[1]), ANY_ORDER_ERROR if bits and c.dtype == torch.float32 else 0.0
    for first in range(0, c.shape[0], rows):
        a_rows, c_rows = a[first : first + rows], c[first : first + rows]
        exact = a_rows.double() @ b_exact.T
        noise = torch.outer(_norms(a_rows) * _accumulation_unit(a, bits), b_norm)
        if finishing is None:
            by_torch = torch_product(a_rows, b)
            in_fp32 = a_rows.float() @ b.float().T if c.dtype == torch.float32 and a.element_size() == 2 else None
        else:
            finish = finishing.of_rows(first, len(c_rows))
            in_fp32, by_torch = None, finish(a_rows.float() @ b.float().T)
            exact, noise = finish(exact), finish.noise(exact, noise)
        yield _compare_rows(first, c_rows, exact, by_torch.to(c.dtype), noise, in_fp32, least)


def _accumulation_unit(a: torch.Tensor, bits: int) -> float:
    """Return the noise of an element whose rows of A and of B have norm 1.

    Simulator and emulator also round block-scaled sums towards zero, at each step of 32 bytes of k.
    """
    steps_of = bits / 8 if bits else a.element_size()
    one_sided = math.sqrt(a.shape[1]) * steps_of / MMA_K_BYTES if a.is_cuda or bits else 1.0
    return 2.0**-24 * max(1.0, one_sided)


def _compare_rows(
    first: int,
    c: torch.Tensor,
    exact: torch.Tensor,
    by_torch: torch.Tensor,
    noise: torch.Tensor,
    in_fp32: torch.Tensor | None = None,
    least: float = 0.0,
) -> _Block:
    rounded = exact.to(c.dtype)
    unit = _half_ulp(exact, c.dtype).add_(noise)

    def compare(x: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return each element's error in the module's units, and the largest |x - exact|.

        A non-finite element has the error 0 if a reference has the same value, else inf.
        """
        apart = (x.double() - exact).abs_()
        error = (apart - noise).clamp_(min=0).div_(unit)
        odd = ~apart.isfinite()
        if odd.any():
            same = (x == rounded) | (x == by_torch) | (x.isnan() & (rounded.isnan() | by_torch.isnan()))
            apart[odd] = error[odd] = torch.where(same[odd], 0.0, math.inf).double()
        return error, float(apart.max())

    (error, apart), (error_torch, apart_torch), (error_rounded, _) = map(compare, (c, by_torch, rounded))
    reference_error = max(float(error_torch.max()), float(error_rounded.max()), least)
    if in_fp32 is not None:
        error_fp32, apart_torch = compare(in_fp32)
        reference_error = min(reference_error, max(float(error_fp32.max()), ANY_ORDER_ERROR))
    return _Block(first, error, reference_error, apart, apart_torch, c.double().isfinite())


def _half_ulp(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return half a unit in the last place of `dtype` at each exact value, which is the largest rounding error."""
    info = torch.finfo(dtype)
    power_of_two = (exact.contiguous().view(torch.int64) & (0x7FF << 52)).view(torch.float64)
    return power_of_two.clamp_(min=info.smallest_normal).mul_(info.eps / 2)


def _norms(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows.float() if rows.element_size() == 1 else rows, dim=1, dtype=torch.float64)


def _verdict(total: _Largest, c: torch.Tensor, tile_m: int, tile_n: int) -> Verdict:
    return Verdict(
        ok=total.error <= total.limit,
        m=c.shape[0],
        n=c.shape[1],
        max_abs_error=total.max_abs_error,
        reference_error=total.max_abs_reference_error,
        ratio=total.ratio,
        tile_m=tile_m,
        tile_n=tile_n,
        worst=total.worst,
    )


def _locate(verdict: Verdict, limit: float, blocks: Iterator[_Block]) -> Verdict:
    """Return the verdict on a wrong C with its wrong elements counted and located. blocks: errors of C, again."""
    wrong = unwritten = 0
    tiles = torch.zeros(
        -(-verdict.m // verdict.tile_m), -(-verdict.n // verdict.tile_n), dtype=torch.bool, device="cpu"
    )
    rows, columns = (torch.zeros(extent, dtype=torch.bool, device="cpu") for extent in (verdict.m, verdict.n))
    for block in blocks:
        bad = block.error > limit
        wrong += int(bad.sum())
        unwritten += int((bad & ~block.finite).sum())
        bad = bad.cpu()
        columns |= bad.any(dim=0)
        rows[block.first_row : block.first_row + len(bad)] = bad.any(dim=1)
        i, j = bad.nonzero(as_tuple=True)
        tiles[(i + block.first_row) // verdict.tile_m, j // verdict.tile_n] = True
    return replace(
        verdict,
        wrong=wrong,
        unwritten=unwritten,
        bad_tiles=tuple((row, column) for row, column in tiles.nonzero().tolist()),
        bad_rows=_ranges(rows),
        bad_columns=_ranges(columns),
    )


def _ranges(flags: torch.Tensor) -> tuple[Range, ...]:
    """Return the ranges of consecutive True in a vector."""
    edges = torch.diff(torch.nn.functional.pad(flags.int(), (1, 1))).tolist()
    starts = [index for index, edge in enumerate(edges) if edge == 1]
    ends = [index - 1 for index, edge in enumerate(edges) if edge == -1]
    return tuple(zip(starts, ends))


def _spell(ranges: tuple[Range, ...], shown: int = 3) -> str:
    words = [f"{first}" if first == last else f"{first}..{last}" for first, last in ranges[:shown]]
    more = f" and {len(ranges) - shown} more ranges" if len(ranges) > shown else ""
    return ", ".join(words) + more


def _require_matching(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, columns_of_c: int) -> None:
    tensors = {"A": a, "B": b, "C": c}
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise InputError(f"{name} is {shown(tensor)}; check_matmul compares torch tensors.")
        if tensor.layout is not torch.strided:
            raise InputError(f"{name} has layout {tensor.layout}; it must be a dense tensor (its to_dense() is one).")
        if not has_memory(tensor):
            raise InputError(f"{name} is {shown(tensor)} without memory of its own; it must be a dense tensor.")
        if tensor.ndim != 2 or 0 in tensor.shape:
            raise InputError(f"{name} has shape {tuple(tensor.shape)}; it must have two dimensions of at least 1.")
        if not tensor.is_floating_point() or str(tensor.dtype).endswith("_x2"):  # _x2: two numbers in an element
            raise InputError(f"{name} is {tensor.dtype}; check_matmul compares floating-point matrices.")
        if tensor.device != a.device or tensor.is_meta:
            raise InputError(f"{name} is on {tensor.device} and A on {a.device}; all three must be on one CPU or GPU.")
    (m, k), (n, k_of_b) = a.shape, b.shape
    if k != k_of_b or tuple(c.shape) != (m, n // columns_of_c):
        shapes = ", ".join(f"{name}{list(tensor.shape)}" for name, tensor in tensors.items())
        raise InputError(f"the shapes are {shapes}; they must be A[m, k], B[n, k] and C[m, n].")
    if a.dtype != b.dtype:
        raise InputError(f"A is {a.dtype} and B is {b.dtype}; they must have one type.")
