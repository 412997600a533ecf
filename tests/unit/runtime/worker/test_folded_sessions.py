"""Sessions that workers keep in columns: an epoch leaves what its history says, as with state in tables."""

from __future__ import annotations

import dataclasses
import operator

import pytest

from statecore import ReducingStateDescriptor
from statecore.model import key_group_range
from statecore.runtime.messages import MAIN, InputSpec
from statecore.snapshot.restore import apply_keyed_files, table_schema
from statecore.state import HeapKeyedStateBackend
from statecore.state.contexts import WINDOW_TIMERS
from tests.support.combined import left_in, sessions
from tests.support.miniature import GROUPS, KEYS, Clock, Cluster, cluster

__all__ = ["cluster"]

ROWS = [(key, 5000) for key in KEYS]


def contents(type: str) -> ReducingStateDescriptor:
    return ReducingStateDescriptor("contents", type, reduce=operator.add)


@pytest.fixture
def windows(cluster: Cluster) -> Cluster:
    """Return a cluster that runs sessions of 10 ms; the number of a row is its event time, too, in µs."""
    inputs = (InputSpec(MAIN, ("n",), ("k",)),)
    cluster.spec = dataclasses.replace(cluster.spec, function=sessions(), inputs=inputs)
    return cluster


def left(cluster: Cluster) -> list[object]:
    """Return the sessions that the files of the newest epoch hold."""
    assert cluster.newest is not None
    (operator,) = cluster.newest.operators
    found: list[object] = []
    for index, subtask in enumerate(operator.subtasks):
        own = key_group_range(GROUPS, cluster.newest.parallelism, index)
        backend = HeapKeyedStateBackend(GROUPS, own, Clock())
        for state in operator.states:
            backend.restored_table(state.name, table_schema(state))
        apply_keyed_files(backend, cluster.store, operator, subtask.keyed, dict.fromkeys(own, 0))
        found += left_in(backend)
    return sorted(found)  # type: ignore[type-var]


def test_a_worker_that_missed_an_epoch_catches_up_on_sessions_in_columns(windows: Cluster) -> None:
    windows.epoch(ROWS, "A")
    windows.epoch([(key, 12_000) for key in KEYS[:20]], "B")
    (commit,) = windows.epoch([(key, 20_000) for key in KEYS[:20]], "A")
    assert commit.cached_key_groups == 0
    assert left(windows) == sorted(
        [(key, 5, 30, 37_000) for key in KEYS[:20]] + [(key, 5, 15, 5000) for key in KEYS[20:]]
    )


def test_sessions_in_columns_move_with_their_key_groups(windows: Cluster) -> None:
    for parallelism in (1, 3, 2):
        windows.epoch(ROWS, "ABC", parallelism=parallelism)
    assert left(windows) == sorted((key, 5, 15, 15_000) for key in KEYS)


def test_sessions_in_columns_are_counted(windows: Cluster) -> None:
    windows.epoch(ROWS, counts=True)
    (commit,) = windows.epoch([*ROWS, ("k0", 30_000)], counts=True)
    expected = {"__sessions": len(KEYS), "contents": len(KEYS) + 1, WINDOW_TIMERS: len(KEYS) + 1}
    assert commit.state_rows == expected
    assert commit.key_group_rows is not None
    assert {name: sum(counted) for name, counted in commit.key_group_rows.items()} == expected


def test_sessions_in_columns_are_written_whole_where_their_contents_became_another_type(windows: Cluster) -> None:
    windows.spec = dataclasses.replace(windows.spec, function=sessions(contents=contents("int")))
    windows.epoch(ROWS)
    windows.spec = dataclasses.replace(windows.spec, function=sessions(contents=contents("bigint")))
    (commit,) = windows.epoch(ROWS[:1])
    assert commit.replaces
    assert left(windows) == sorted((key, 5, 15, 10_000 if key == KEYS[0] else 5000) for key in KEYS)
