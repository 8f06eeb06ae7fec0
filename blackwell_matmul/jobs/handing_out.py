"""Submits items to an executor: one loop, for trials on any executor and for tasks of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def completed(
    next_item: Callable[[], T | None],
    submit: Callable[[T], Future[R] | None],
    width: Callable[[], int],
    running: dict[Future[R], T],
    poll_s: float | None = None,
) -> Iterator[tuple[T, Future[R]]]:
    """Submit items, and yield each item with its completed future.

    next_item: returns the next item, or None if there is none now. submit: returns None if it takes no more items.
    width: returns the maximum number of parallel items. running: receives the items in progress, by future. poll_s:
    seconds between calls of width. Nothing is submitted while the caller handles a result.
    """
    while True:
        while len(running) < width() and (item := next_item()) is not None and (future := submit(item)) is not None:
            running[future] = item
        if not running:
            return
        for future in wait(running, poll_s, FIRST_COMPLETED).done:
            yield running.pop(future), future
