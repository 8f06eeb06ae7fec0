"""Parts of storages, by the numbers of their elements."""

from __future__ import annotations

import numpy as np

from blackwell_matmul.simulator.machine.memory import numbers_in


def test_numbers_of_a_rectangle_are_those_of_the_whole() -> None:
    whole = np.arange(5 * 7 * 3).reshape(5, 7, 3)
    assert np.array_equal(numbers_in([(1, 4), (2, 7), (0, 2)], whole.shape), whole[1:4, 2:7, 0:2])
    assert numbers_in([(3, 3), (0, 7), (0, 3)], whole.shape).shape == (0, 7, 3)
    assert numbers_in([], ()) == 0


def test_numbers_of_a_small_rectangle_need_no_array_of_the_whole() -> None:
    """cp.async has a rectangle for each row: a timeline of V0 took minutes when each asked for all numbers of A."""
    assert numbers_in([(1 << 20, (1 << 20) + 1), (5, 7)], (1 << 30, 1 << 30)).tolist() == [[2**50 + 5, 2**50 + 6]]
