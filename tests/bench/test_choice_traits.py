"""What a regression makes of times of schedules, and that the closed form has it."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import choice_traits
from blackwell_matmul.base.data_files import read
from blackwell_matmul.scheduling.cost_model import CUT_ROWS_TRAITS
from blackwell_matmul.scheduling.fit import UNALIGNED_ROWS

PLAIN, SPLIT, PAIRS = (
    (cluster, split, "boxes 1", "warpgroups 2")
    for cluster, split in (("cluster 1x1", "split 1"), ("cluster 1x1", "split 2"), ("cluster 2x1", "split 1"))
)


def timed(*factors: float) -> choice_traits.Timed:
    """Of a problem of its own size, for what each kind takes beside the prediction."""
    predicted = np.log(np.linspace(1.0, 1.3, 3)) + sum(factors)
    return choice_traits.Timed("H200", (PLAIN, SPLIT, PAIRS), predicted, predicted + np.log(factors))


def test_factors_are_found_whatever_a_problem_takes_besides() -> None:
    found = choice_traits.fitted([timed(each, 0.9 * each, 1.05 * each) for each in np.linspace(0.5, 2, 200)])
    assert {name: math.exp(each) for name, each in found.items()} == pytest.approx(
        {"cluster 2x1": 1.05, "split 2": 0.9}, rel=0.002
    )
    one = timed(1.0, 0.5, 1.0)
    assert choice_traits.lost(one, {}) == pytest.approx(math.log(1 / (0.5 * 1.15)))
    assert choice_traits.lost(one, {"split 2": math.log(0.5)}) == 0


@pytest.mark.slow
def test_the_closed_form_has_what_the_measured_times_give() -> None:
    problems = [*choice_traits.timed()]
    factors = choice_traits.fitted(problems)
    assert choice_traits.rounded(factors) == CUT_ROWS_TRAITS
    taken = read(UNALIGNED_ROWS)["cut_rows_traits"]["taken"]
    assert choice_traits.as_data(problems, factors, taken) == UNALIGNED_ROWS.read_text()
