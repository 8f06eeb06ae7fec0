"""Why results may differ: for each reason how far, which a case states beforehand, and what is known of rows.

A `Bound` judges element by element: is what the GPU computed allowed beside the simulated value? One for each reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

# --- bounds


@dataclass(frozen=True)
class Pairs:
    """The elements that differ. ours, theirs: their values, as float64. places: which elements of the tensor they are.
    dtype: of the tensor, `whole` the simulated one. arguments: of the launch, before it."""

    ours: torch.Tensor
    theirs: torch.Tensor
    places: torch.Tensor
    dtype: torch.dtype
    whole: torch.Tensor
    arguments: Sequence[Any] = ()

    def ulps(self, dtype: torch.dtype | None = None, scale: torch.Tensor | None = None) -> torch.Tensor:
        """Distances in units of the last place of the larger of both, or of a scale; NaN beside NaN is none."""
        a, b, dtype = self.ours, self.theirs, dtype or self.dtype
        if not dtype.is_floating_point:
            return torch.where(a == b, 0.0, float("inf"))
        info = torch.finfo(dtype)
        scale = torch.maximum(a.abs(), b.abs()) if scale is None else scale
        unit = torch.exp2(torch.floor(torch.log2(scale.clamp(min=info.tiny)))) * info.eps
        distance = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs() / unit)
        return torch.where(distance.isnan(), float("inf"), distance)


Within = Callable[[Pairs], torch.Tensor]


@dataclass(frozen=True)
class Bound:
    """why: the reason, with its bound in words. within: for each pair, whether it holds; None allows nothing.
    contracts: what differs may be a contraction of a * b + c, so the kernel without any is compared as well."""

    why: str = ""
    within: Within | None = None
    contracts: bool = False


EXACT = Bound()
CONTRACTED = Bound("fma contraction: compiled with --fmad=false its values are the simulated ones", contracts=True)


def _ulps(most: dict[torch.dtype, int]) -> Within:
    """So many units of the last place, by the type of the result; 1 where it is none of these."""
    return lambda pairs: pairs.ulps() <= most.get(pairs.dtype, 1)


def approximate(name: str) -> Bound:
    """PTX, ex2, lg2, sqrt, rsqrt: .approx. of float32; a narrower result is that of float32, rounded once."""
    within = _ulps({torch.float32: 4})
    return Bound(f"{name}.approx.f32 and a product with a constant, 4 ulp; 1 in other types", within)


def _exponential(pairs: Pairs) -> torch.Tensor:
    """exp(x) = ex2.approx(x * log2(e)): an error of the product is one of the exponent."""
    if pairs.dtype != torch.float32:
        return pairs.ulps() <= 1
    exponent = pairs.arguments[0].reshape(-1)[pairs.places].double().abs() * math.log2(math.e)
    scale = torch.maximum(pairs.ours.abs(), pairs.theirs.abs())
    return (pairs.ulps() <= 2) | ((pairs.ours - pairs.theirs).abs() <= scale * (2**-22 + exponent * 2**-24))


EXPONENTIAL = Bound("exp is ex2.approx of x * log2(e): 2 ulp and |x * log2(e)| * 2**-24, relative", _exponential)


def _exponentials(pairs: Pairs) -> torch.Tensor:
    scale = torch.maximum(pairs.ours.abs(), pairs.theirs.abs())
    return (pairs.ours - pairs.theirs).abs() <= scale * 2**-16


LARGE_EXPONENTIALS = Bound("exp of up to 88, whose product with log2(e) is rounded: 2**-16, relative", _exponentials)
DIVISION = Bound("div.full.f32 (--prec-div=false), 2 ulp", _ulps({torch.float32: 2, torch.float64: 0}))


def _scalar_division(pairs: Pairs) -> torch.Tensor:
    """Of a float32, which the tensor holds as a float64."""
    single = (pairs.theirs.float().double() == pairs.theirs) | pairs.theirs.isnan()
    return single & (pairs.ulps(torch.float32) <= 2)


SCALAR_DIVISION = Bound("div.full.f32 (--prec-div=false) of scalars, 2 ulp of float32", _scalar_division)


def _of_largest(pairs: Pairs) -> torch.Tensor:
    whole = pairs.whole.double()
    finite = whole[whole.isfinite()].abs()
    return finite.max() if len(finite) else torch.tensor(1.0, dtype=torch.float64)


def sums(ulps: int) -> Bound:
    why = f"sums of a tensor core, {ulps} ulp of the largest"
    return Bound(why, lambda pairs: pairs.ulps(scale=_of_largest(pairs)) <= ulps)


def _products_of_bytes(pairs: Pairs) -> torch.Tensor:
    a, b = (pairs.arguments[number].double().nan_to_num(0.0).abs() for number in (0, 1))
    return (pairs.ours - pairs.theirs).abs() <= 2**-12 * (a @ b.T).max()


BYTE_SUMS = Bound(
    "wgmma of 8-bit floats keeps some 13 bits of a sum: 2**-12 of the largest sum of |a * b|", _products_of_bytes
)
"""The products and the sum so far, 33 addends an instruction, are aligned to the largest, and what falls below some 13
bits of its fraction is cut off. Cut off are then up to 2**-13 of the largest addend each; of random operands the most
seen on an H200 is 2**-12.7 of the largest sum of |a * b| (float8_e4m3, 64x64x128, half of it cancelling)."""


# --- a * b + c, with one rounding or with two


def either(fused: Callable[[Pairs, int], tuple[Fraction, torch.dtype] | None]) -> Within:
    """The GPU's value is the one of a single rounding; that of two is the simulated one. fused: before it rounds, and
    the type in which it does, of the pair of a number; None where it is no finite one."""

    def within(pairs: Pairs) -> torch.Tensor:
        return torch.tensor([_is_fused(pairs, number, fused(pairs, number)) for number in range(len(pairs.places))])

    return within


def _is_fused(pairs: Pairs, number: int, exact: tuple[Fraction, torch.dtype] | None) -> bool:
    ours, theirs = float(pairs.ours[number]), float(pairs.theirs[number])
    if math.isnan(ours) and math.isnan(theirs):
        return True
    if exact is None:
        return False
    single = torch.tensor(rounded(*exact), dtype=torch.float64).to(exact[1])
    if not single.isfinite() and not pairs.dtype.is_floating_point:
        return False
    return float(single.to(pairs.dtype).double()) == theirs


def rounded(value: Fraction, dtype: torch.dtype) -> float:
    """To nearest, ties to even; float32 below the normal numbers is zero (--ftz=true)."""
    info, magnitude = torch.finfo(dtype), abs(value)
    if not magnitude or (dtype == torch.float32 and magnitude < Fraction(info.tiny)):
        return 0.0
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    quantum = max(Fraction(2) ** exponent, Fraction(info.tiny)) * Fraction(info.eps)
    nearest = round(value / quantum) * quantum
    return float(nearest) if abs(nearest) <= Fraction(info.max) else math.inf if value > 0 else -math.inf


def _square_and_itself(pairs: Pairs, number: int) -> tuple[Fraction, torch.dtype] | None:
    x = float(pairs.arguments[0].reshape(-1)[pairs.places[number]].double())
    return (Fraction(x) ** 2 + Fraction(x), pairs.dtype) if math.isfinite(x) else None


SQUARE_AND_ITSELF = Bound("fma contraction: x * x + x rounds once", either(_square_and_itself))


def index_times_scalar(columns: int) -> Bound:
    """Of i * s - j, where s is a float32."""

    def fused(pairs: Pairs, number: int) -> tuple[Fraction, torch.dtype] | None:
        row, column = divmod(int(pairs.places[number]), columns)
        s = pairs.arguments[0]
        if not math.isfinite(s):
            return None
        return row * Fraction(rounded(Fraction(s), torch.float32)) - column, torch.float32

    return Bound("fma contraction: i * s - j rounds once", either(fused))


# --- what is known of rows

RULES: tuple[tuple[str, str], ...] = (
    (
        r"^DIFFERENT test/.*test_a_mutant_is_exposed",
        "a planted fault, whose values are any; the test asks for the finding",
    ),
    (
        r"^compile-refuses test/.*test_tma\.py::.*(takes no negative coordinate|no multiple of 16)",
        "a constant coordinate that no box can have: compile refuses it, and the simulator finds it as it is issued",
    ),
    (
        r"^(simulate|compile)-refuses expression/.*(gives int64 or int32|If-then-else)",
        "a conditional of two types, which tilus folds away, or does not, before it has to have one",
    ),
    (
        r"^simulate-refuses .*the linear copy at",
        "a linear copy beyond its tensor: the simulator does not run it, as it says",
    ),
    (r"^simulate-refuses .*map_shared_addr", "an instruction that the simulator does not run yet, as it says"),
)
"""(pattern of "outcome key sentence", explanation); the first that fits a row explains it"""

UNEXPLAINED = "not explained"


def explained(row: dict[str, Any]) -> str:
    text = f"{row['outcome']} {row['key']} {row.get('sentence', '')}"
    for pattern, explanation in RULES:
        if re.search(pattern, text):
            return explanation
    return f"finding: {', '.join(row['findings'])}" if row["outcome"] == "finding" else UNEXPLAINED
