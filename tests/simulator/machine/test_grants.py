"""Responses in shared memory, and who has read which."""

from __future__ import annotations

import numpy as np
import pytest

from blackwell_matmul.simulator.machine.grants import UNGRANTED_COORDINATE, Grants, Response, decoded


@pytest.mark.parametrize("first", [None, (0, 0, 0), (2**31 - 2, 65534, 65534), (7, 0, 3)])
def test_a_response_is_read_as_it_was_written(first: tuple[int, int, int] | None) -> None:
    response = Response(5, first)
    assert decoded(response.encoded()) == response
    assert response.scalars == (
        (0, UNGRANTED_COORDINATE, UNGRANTED_COORDINATE, UNGRANTED_COORDINATE) if first is None else (1, *first)
    )


def test_what_is_no_response_grants_nothing() -> None:
    assert decoded(np.full(16, 0xCD, np.uint8)) == Response(-1, None)


def test_refusals_come_after_what_is_granted() -> None:
    grants = Grants([(4, 0, 0)])
    assert [grants.response(grants.ask()).first for _ in range(3)] == [(4, 0, 0), None, None]
    assert grants.taken == 1 and len(list(grants.foreseen())) == 2


def test_responses_that_are_read_in_turn() -> None:
    grants = Grants([(4, 0, 0), (5, 0, 0)])
    assert [grants.read("warp", grants.response(i)) for i in range(2)] == [0, 0] and grants.in_turn
    assert grants.read("warp", grants.response(1)) == 1 and not grants.in_turn
