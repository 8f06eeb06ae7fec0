"""Kernels of a few lines for the tests, and sums that Python does exactly."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from blackwell_matmul.emulator import emulate

LANES = 32
NAMES = "abcef"


def module(body: str, parameters: Sequence[str] = (), target: str = "sm_90a", outside: str = "") -> str:
    """A kernel `k` with this body; parameters: `.u64 x` and the like."""
    declared = ", ".join(f".param {each}" for each in parameters)
    return f".version 8.7\n.target {target}\n.address_size 64\n{outside}\n.entry k({declared})\n{{\n{body}\nret;\n}}\n"


REGISTERS = ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .b64 %x<20>; .reg .b128 %v<4>;\n"
LANE = "mov.u32 %r39, %tid.x;\n"
"""%r39: the thread's number."""


def run(body: str, *arrays: Any, **launch: Any) -> list[Any]:
    """The body on 32 threads; arrays: their addresses are in %x10, %x11 …; %r39 is the lane. The arrays, afterwards.

    A read of shared memory that nothing has written stops.
    """
    loads = "".join(f"ld.param.u64 %x{10 + place}, [p{place}];\n" for place in range(len(arrays)))
    outside, target = launch.pop("outside", ""), launch.pop("target", "sm_90a")
    text = module(REGISTERS + LANE + loads + body, [f".u64 p{place}" for place in range(len(arrays))], target, outside)
    emulate(text, *arrays, **{"grid": 1, "block": LANES, "unwritten": "stop"} | launch)
    return list(arrays)


def stored(body: str, dtype: Any = np.uint32, threads: int = LANES, count: int = 1, **launch: Any) -> Any:
    """What each thread has in %r0 (of a kernel of several CTAs: in rows) when the body is done."""
    ctas = int(np.prod(launch.get("grid", 1)))
    result = np.full((ctas, threads), 0xDEAD, np.uint32)
    place = "mov.u32 %r38, %ctaid.x; mad.lo.s32 %r38, %r38, " + str(threads) + ", %r39;"
    end = f"{place} mul.wide.u32 %x19, %r38, 4; add.s64 %x19, %x19, %x10; st.global.b32 [%x19], %r0;"
    run(body + "\n" + end, result, **{"block": threads} | launch)
    return (result[0] if ctas == 1 else result).view(dtype)


def rows(*columns: Any) -> list[Any]:
    """Every combination of the columns' values, as columns."""
    picked = list(itertools.product(*[range(len(column)) for column in columns]))
    return [column[[row[place] for row in picked]] for place, column in enumerate(columns)]


def apply(instruction: str, result: Any, *inputs: Any, target: str = "sm_100a") -> Any:
    """%d, as the numpy type `result`, after the instruction on each row of the inputs, which are %a, %b, %c, %e, %f."""
    count, dtype = len(inputs[0]), np.dtype(result)
    size = -(-count // LANES) * LANES
    padded = [np.resize(np.ascontiguousarray(each), size).copy() for each in inputs]
    output = np.zeros(size, dtype)
    lines = [".reg .pred %p, %q; .reg .b32 %i, %t, %u; .reg .b64 %o, %x, %y; .reg .b16 %h, %g;"]
    lines += ["mov.u32 %i, %ctaid.x; mov.u32 %t, %tid.x; mad.lo.s32 %i, %i, 32, %t;"]
    for place, (name, each) in enumerate(zip([*NAMES[: len(inputs)], "d"], [*padded, output])):
        bits = 8 * each.dtype.itemsize
        lines += [f".reg .b{bits} %{name}; .reg .b64 %at{name}; ld.param.u64 %at{name}, [p{place}];"]
        lines += [f"mul.wide.u32 %o, %i, {bits // 8}; add.s64 %at{name}, %at{name}, %o;"]
        lines += [f"ld.global.b{bits} %{name}, [%at{name}];"]
    lines += [instruction, f"st.global.b{8 * dtype.itemsize} [%atd], %d;"]
    text = module("\n".join(lines), [f".u64 p{place}" for place in range(len(inputs) + 1)], target)
    emulate(text, *padded, output, grid=size // LANES, block=LANES)
    return output[:count]


# --- IEEE 754 by fractions


FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
"""Bits of the significand, and the exponents of the smallest and largest normal."""


def rounded(exact: Fraction, format: str, mode: str = "rn") -> float:
    """An exact value in a format; "rn" to even, "rz" to zero, "rm" down, "rp" up, "rna" ties away."""
    precision, lowest, highest = FORMATS[format]
    if exact == 0:
        return 0.0
    magnitude, sign = abs(exact), (1 if exact > 0 else -1)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= magnitude < Fraction(2) ** exponent
    step = Fraction(2) ** (max(exponent, lowest) - precision + 1)
    whole, rest = divmod(magnitude, step)
    away = {"rz": False, "rm": sign < 0 and rest > 0, "rp": sign > 0 and rest > 0, "rna": 2 * rest >= step}
    away["rn"] = 2 * rest > step or (2 * rest == step and whole % 2 == 1)
    value = (whole + away[mode]) * step
    top = (2 - Fraction(2) ** (1 - precision)) * Fraction(2) ** highest
    if value > top:
        stays = mode == "rz" or (mode == "rm" and sign > 0) or (mode == "rp" and sign < 0)
        return sign * (float(top) if stays else float("inf"))
    return float(sign * value)
