"""What one thread changes for a while in the whole process, and puts back."""

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from blackwell_matmul.base.processes import ForAWhile, uncollected
from blackwell_matmul.harness.calls.inputs import seeded

VALUE = [2]


@ForAWhile
@contextmanager
def one() -> Iterator[None]:
    """VALUE is 1, and what it was afterwards."""
    before, VALUE[0] = VALUE[0], 1
    try:
        yield
    finally:
        VALUE[0] = before


def in_a_thread(ended: threading.Event) -> tuple[threading.Thread, threading.Event]:
    """A thread in the block of `one` until it is told to end, and whether it is in the block."""
    there = threading.Event()

    def run() -> None:
        with one():
            there.set()
            ended.wait()

    thread = threading.Thread(target=run)
    thread.start()
    there.wait()
    return thread, there


@pytest.mark.parametrize("first", [0, 1])
def test_whoever_leaves_first_the_value_is_what_it_was(first: int) -> None:
    ends = [threading.Event(), threading.Event()]
    threads = [in_a_thread(end)[0] for end in ends]
    assert VALUE == [1]
    for i in (first, 1 - first):
        ends[i].set()
        threads[i].join()
    assert VALUE == [2]


def test_a_block_within_a_block_and_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        with one(), one():
            assert VALUE == [1]
            raise ZeroDivisionError
    assert VALUE == [2]
    with one():
        assert VALUE == [1]


def in_a_child(look) -> str:
    """What a forked child says."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(look()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as said:
        answer = said.read()
    os.waitpid(child, 0)
    return answer


def inside() -> int:
    with one():
        return VALUE[0]


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_is_rid_of_what_another_thread_has_changed() -> None:
    end = threading.Event()
    thread, _ = in_a_thread(end)
    assert in_a_child(lambda: (VALUE[0], inside(), VALUE[0])) == "(2, 1, 2)"
    end.set()
    thread.join()
    with one():
        assert in_a_child(lambda: (VALUE[0], inside(), VALUE[0])) == "(1, 1, 1)"


def test_garbage_is_collected_afterwards() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def drawn(seed: int) -> tuple[float, float]:
    with seeded(seed):
        return float(torch.rand(())), float(np.random.rand())


def test_seeds_of_threads_do_not_mix_and_go_on() -> None:
    wanted = {seed: drawn(seed) for seed in range(4)}
    torch.manual_seed(7)
    np.random.seed(7)
    after = float(torch.rand(())), float(np.random.rand())
    torch.manual_seed(7)
    np.random.seed(7)
    found: list[tuple[int, tuple[float, float]]] = []

    def draw(seed: int) -> None:
        found.extend((seed, drawn(seed)) for _ in range(200))

    threads = [threading.Thread(target=draw, args=(seed,)) for seed in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 800 and all(wanted[seed] == values for seed, values in found)
    assert (float(torch.rand(())), float(np.random.rand())) == after


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_can_set_seeds_that_another_thread_has_set() -> None:
    there, end = threading.Event(), threading.Event()

    def hold() -> None:
        with seeded(1):
            there.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    there.wait()
    said = in_a_child(lambda: drawn(3))
    end.set()
    thread.join()
    assert said == str(drawn(3))
