"""Requests to storage in parallel: the wait for one is the time of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 8


def in_parallel(work: Callable[[T], R], items: Iterable[T], *, threads: int = _THREADS) -> Iterator[R]:
    """Yield ``work(item)`` of each item in order; at most ``threads`` results are ahead of the caller.

    The first error, in the order of the items, ends it: work that has begun is waited for, the rest is dropped.
    """
    ahead: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="storage") as pool:
        try:
            for item in items:
                if len(ahead) == threads:
                    yield ahead.popleft().result()
                ahead.append(pool.submit(work, item))
            while ahead:
                yield ahead.popleft().result()
        finally:
            for left in ahead:
                left.cancel()


def all_in_parallel(work: Callable[[T], object], items: Iterable[T]) -> None:
    """Call ``work`` for each item, as ``in_parallel`` does."""
    deque(in_parallel(work, items), maxlen=0)
