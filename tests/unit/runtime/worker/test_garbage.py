"""Python's looks for garbage leave the state in a worker's memory out, and nothing else."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tests.support.miniature import Cluster, cluster

__all__ = ["cluster"]


@pytest.fixture
def thawed() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_look_for_garbage_does_not_go_through_the_state(cluster: Cluster) -> None:
    def in_reach() -> list[str]:
        """Return the keys of state dictionaries that a look for garbage goes through."""
        watched = {id(item) for item in gc.get_objects()}
        groups = cluster.workers[worker][0][cluster.spec.store_url, "totals"].values()
        held = [rows for group in groups for _, rows in group.state.tables.values()]
        assert sum(map(len, held)) >= 2 * len(keys)
        return [key for rows in held if id(rows) in watched for (key,) in rows]

    keys = [f"k{n}" for n in range(64)]
    worker = "A"
    cluster.epoch([(key, 1) for key in keys])
    assert in_reach() == []
    for _ in range(2):
        # As Spark's worker does after each task.
        gc.collect()
        cluster.epoch([(key, 1) for key in keys])
        assert in_reach() == []

    worker = "B"
    cluster.epoch([(key, 1) for key in keys], workers="B")
    assert in_reach() == []

    keys += [f"more{n}" for n in range(128)]
    cluster.epoch([(key, 1) for key in keys], workers="B")
    assert in_reach() == []


class Knot:
    """Garbage that refers to itself, once nobody else refers to it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.usefixtures("thawed")
def test_an_operator_without_state_leaves_nothing_out_after_its_first_epoch(cluster: Cluster) -> None:
    cluster.epoch([])
    new = Knot()
    cluster.epoch([])
    assert any(item is new for item in gc.get_objects())
