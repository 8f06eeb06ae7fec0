"""What a run changes in the whole process while it runs is what it was afterwards, whoever runs beside it."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from check_scripts import AddOne

from blackwell_matmul import simulate
from blackwell_matmul.simulator import parallel


def threads_of_blas() -> list[int]:
    return [each["num_threads"] for each in parallel._blas().info() if each["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with parallel._blas().limit(limits=2, user_api="blas"):
        yield


@pytest.mark.slow
def test_threads_that_simulate_leave_blas_as_it_was(two_threads) -> None:
    before = threads_of_blas()

    def one(number: int) -> list[int]:
        seen: list[int] = []
        simulate(AddOne, torch.zeros(64, 64), workers=1, progress=lambda *_: seen.append(number))
        return seen

    with ThreadPoolExecutor(4) as executor:
        seen = list(executor.map(one, range(24)))
    assert all(len(each) == 2 for each in seen)
    assert threads_of_blas() == before and gc.get_freeze_count() == 0 and gc.isenabled()


def test_blas_has_one_thread_meanwhile(two_threads) -> None:
    if not threads_of_blas():
        pytest.skip("numpy's BLAS here says nothing of its threads")
    seen: list[list[int]] = []
    simulate(AddOne, torch.zeros(64, 64), workers=1, progress=lambda *_: seen.append(threads_of_blas()))
    assert {count for each in seen for count in each} == {1} and set(threads_of_blas()) == {2}


def test_a_limit_that_the_caller_has_set_stays() -> None:
    with parallel._blas().limit(limits=1, user_api="blas"):
        simulate(AddOne, torch.zeros(64, 64), workers=1)
        assert set(threads_of_blas()) <= {1}
