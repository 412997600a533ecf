"""Cost of a read-modify-write of value state, relative to a plain dict.

    python -m benchmarks.value_state

Single-threaded; the same keys in the same order on both sides; medians of several runs. The state side sets the key,
reads the value and updates it through the public API, as the runtime does for every record.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from datetime import timedelta

from statecore import HeapKeyedStateBackend, KeyGroupRange, StateTtlConfig, ValueStateDescriptor, key_group_for
from statecore.testing import ManualClock

KEYS = 100_000
RECORDS = 500_000
RUNS = 7
GROUPS = 128

Records = list[tuple[tuple[str], int]]


def records() -> Records:
    """Return (key, key group) of every record, the same in every run."""
    chosen = random.Random(1)  # noqa: S311 - repeatable, not secret
    keys = [(f"customer-{number}",) for number in range(KEYS)]
    placed = [(key, key_group_for(key, ["string"], GROUPS)) for key in keys]
    return [chosen.choice(placed) for _ in range(RECORDS)]


def plain_dict(given: Records) -> float:
    """Return seconds per read-modify-write of a dict."""
    held: dict[tuple[str], int] = {}
    started = time.perf_counter()
    for key, _ in given:
        held[key] = held.get(key, 0) + 1
    return (time.perf_counter() - started) / len(given)


def value_state(given: Records, ttl: StateTtlConfig | None) -> float:
    """Return seconds per read-modify-write of value state."""
    backend = HeapKeyedStateBackend(GROUPS, KeyGroupRange(0, GROUPS - 1), ManualClock())
    state = backend.get_value_state(ValueStateDescriptor("count", "bigint", ttl))
    started = time.perf_counter()
    for key, key_group in given:
        backend.set_current_key(key, key_group)
        state.update((state.value() or 0) + 1)
    return (time.perf_counter() - started) / len(given)


def ratios() -> dict[str, float]:
    """Return the cost of each side relative to the dict."""
    given = records()
    sides: dict[str, Callable[[], float]] = {
        "dict": lambda: plain_dict(given),
        "value state": lambda: value_state(given, None),
        "value state with TTL": lambda: value_state(given, StateTtlConfig(timedelta(hours=1))),
    }
    # Alternate within each run, so that a slow moment of the machine affects all sides.
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(RUNS):
        for name, side in sides.items():
            taken[name].append(side())
    return {
        name: statistics.median(a / b for a, b in zip(times, taken["dict"], strict=True))
        for name, times in taken.items()
    }


if __name__ == "__main__":
    for name, ratio in ratios().items():
        print(f"{name:22} {ratio:5.2f} x dict")
