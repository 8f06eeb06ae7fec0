"""Products that tilus 0.2.0 computes wrongly are refused; what it emits is evaluated with the fragments of PTX."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from frontend_scripts import PairedDot

from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.compiler import compile
from blackwell_matmul.frontend.faults import products
from blackwell_matmul.simulator import simulate

LANE = np.arange(32)
GROUP, IN_GROUP = LANE // 4, LANE % 4
WORDS = r"\({}_regs \+ \w+(?: \+ (\d+))?\)"
POINTS = r"\*{}_regs = \(\(uint32_t\*\)\(\(&(\w+)\[0\]\)\)\)"


FIRST = np.arange(32) % 4 < 2
"""The columns of a, and rows of b, that the first of the two mma.sync takes, by the layouts."""

SEEN = [-218.125, -278.0, -223.0, -183.75]
"""What an H200 computed for the first elements of these operands, where tilus is not stopped."""


def operands() -> list[np.ndarray]:
    """Sixty-fourths, whose sums are exact; the two mma.sync have sums of opposite signs, so that their order shows."""
    a, b, c = (np.random.default_rng(sum(s)).integers(0, 64, s) / 64 for s in ((16, 32), (32, 8), (16, 8)))
    a *= np.where(FIRST, 64, -64)
    return [each.astype(np.float16) for each in (a, b, c, np.zeros((16, 8)))]


def added(parts: list[np.ndarray], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """c and these parts of the product, rounded to float16 after each."""
    for part in parts:
        c = (c + a[:, part].astype(float) @ b[part].astype(float)).astype(np.float16)
    return c


def held_words(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[lane, word, half] of the operands in registers, by the addresses in the generated loads."""
    i = np.arange(16)
    of_a = a[GROUP[:, None] + 8 * (i // 4 % 2), 4 * IN_GROUP[:, None] + i % 4 + 16 * (i // 8)]
    of_b = b[4 * IN_GROUP[:, None] + i[:8] % 4 + 16 * (i[:8] // 4), GROUP[:, None]]
    return of_a.reshape(32, 8, 2), of_b.reshape(32, 4, 2)


def fragments(words_a: np.ndarray, words_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The matrices of one mma.sync (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type")."""
    a, b = np.full((16, 16), np.nan), np.full((16, 8), np.nan)
    for half in (0, 1):
        for word in range(4):
            a[GROUP + 8 * (word % 2), 2 * IN_GROUP + half + 8 * (word // 2)] = words_a[:, word, half]
        for word in range(2):
            b[2 * IN_GROUP + half + 8 * word, GROUP] = words_b[:, word, half]
    return a, b


def emitted(source: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What the generated code computes: which words go into each mma.sync, and what it adds to."""
    words_a, words_b = held_words(a, b)
    taken_a, taken_b = ([int(n or 0) for n in re.findall(WORDS.format(x), source)] for x in "ab")
    assert (len(taken_a), len(taken_b)) == (4, 2)
    (begin,), (end,) = (re.findall(POINTS.format(x), source) for x in "cd")
    d = c
    for inner in (0, 1):
        x, y = fragments(words_a[:, np.add(taken_a, inner)], words_b[:, np.add(taken_b, inner)])
        d = ((d if begin == end else c) + x @ y).astype(np.float16)
    return d


@pytest.mark.parametrize("run", [simulate, compile])
def test_refused_with_what_works(run: Any) -> None:
    advice = r"operands of 2 mma\.sync side by side.*self\.dot\(a, b, c, out=c\) \(.*frontend_scripts\.py:\d+\)"
    with pytest.raises(CompileError, match=advice):
        run(PairedDot(in_place=False), *operands(), target="sm_90a")


def test_in_place_each_mma_adds_and_rounds() -> None:
    a, b, c, d = operands()
    source = compile(PairedDot(), a, b, c, d, target="sm_90a", cache=False).source
    assert simulate(PairedDot(), a, b, c, d).ok
    np.testing.assert_array_equal(d, emitted(source, a, b, c))
    np.testing.assert_array_equal(d, added([FIRST, ~FIRST], a, b, c))
    assert not np.array_equal(d, added([np.arange(32) < 16, np.arange(32) >= 16], a, b, c))


def test_what_tilus_emits_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault: what the first mma.sync adds is lost."""
    monkeypatch.setattr(products, "refusal", lambda inst: None)
    a, b, c, d = operands()
    source = compile(PairedDot(in_place=False), a, b, c, d, target="sm_90a", cache=False).source
    found = emitted(source, a, b, c)
    np.testing.assert_array_equal(found, added([~FIRST], a, b, c))
    assert found[0, :4].tolist() == SEEN
