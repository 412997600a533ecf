"""Trouble with a cluster that passes by itself is waited out; any other is reported at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from statecore.catalog import Catalog, ClusterRecord
from statecore.cluster import ClusterSize
from statecore.errors import ClusterBusyError, ClusterError
from statecore.operations.resizing import Resizing
from statecore.operations.supervising import cluster_size as module
from statecore.operations.supervising.cluster_size import PATIENCE_S, ClusterTending

BUSY = ClusterBusyError("found Throttling; expected an answer; wait")


class Cluster:
    is_local = False

    def __init__(self) -> None:
        self.ready, self.resized = 2, 0
        self.refuses: ClusterError | None = None
        self.silent: ClusterError | None = None

    def resize(self, workers: int) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.resized += 1

    def size(self) -> ClusterSize:
        if self.silent is not None:
            raise self.silent
        return ClusterSize(running=self.ready, ready=self.ready)

    def close(self) -> None:
        pass


class World:
    def __init__(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.catalog, self.cluster, self.now_s = catalog, Cluster(), 1_000.0
        monkeypatch.setattr(module, "cluster_for", lambda _: self.cluster)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        self.tending = ClusterTending(catalog.clusters)
        catalog.clusters.register("c", "standalone", {}, 3)

    def later(self, seconds: float = 0) -> ClusterRecord:
        self.now_s += seconds
        self.tending.tend("c")
        return self.catalog.clusters.get("c")


@pytest.fixture
def world(catalog_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with Catalog(catalog_url) as catalog:
        yield World(catalog, monkeypatch)


def test_trouble_that_passes_is_not_reported_and_fails_no_resize(world: World) -> None:
    resizing = Resizing()
    world.later()
    world.cluster.refuses = BUSY
    for _ in range(int(PATIENCE_S)):
        found = world.later(0.99)
        assert (found.ready_workers, found.message) == (2, None)
        assert not resizing.is_done(found, 3)
    world.cluster.refuses = None
    assert world.later(100).message is None


@pytest.mark.parametrize("silent", [True, False])
def test_trouble_that_stays_is_reported_after_a_minute(world: World, silent: bool) -> None:
    world.later()
    world.cluster.refuses = None if silent else BUSY
    world.cluster.silent = BUSY if silent else None
    assert world.later().message is None
    found = world.later(PATIENCE_S)
    assert (found.ready_workers, found.message) == (0 if silent else 2, str(BUSY))


def test_workers_keep_counting_while_the_master_restarts(world: World) -> None:
    world.later()
    world.cluster.silent = world.cluster.refuses = BUSY
    assert (world.later(30).ready_workers, world.later(10).message) == (2, None)


def test_each_trouble_has_its_own_minute(world: World) -> None:
    for _ in range(3):
        world.cluster.refuses = BUSY
        assert world.later(PATIENCE_S / 2).message is None
        world.cluster.refuses = None
        world.later(PATIENCE_S / 2)


def test_any_other_trouble_is_reported_at_once(world: World) -> None:
    world.cluster.refuses = ClusterError("no quota")
    assert (world.later().message, world.catalog.clusters.get("c").ready_workers) == ("no quota", 2)


@pytest.fixture
def elsewhere(world: World) -> World:
    """The cluster's workers are processes of another host."""
    world.cluster.is_local = True
    world.catalog.clusters.claim("c", "another host")
    return world


def test_workers_of_another_host_are_not_doubled_while_one_of_them_lives(elsewhere: World) -> None:
    for seconds in (0, PATIENCE_S, PATIENCE_S):
        found = elsewhere.later(seconds)
        assert found.ready_workers == 2 and "on host another host; expected them on" in str(found.message)
    elsewhere.cluster.ready = 0
    elsewhere.later()
    elsewhere.later(PATIENCE_S - 1)
    # A master that restarts has none for a moment.
    elsewhere.cluster.ready = 1
    elsewhere.later()
    elsewhere.cluster.ready = 0
    elsewhere.later(PATIENCE_S)
    assert elsewhere.cluster.resized == 0


def test_when_none_of_them_has_been_ready_for_a_minute_this_host_starts_its_own(elsewhere: World) -> None:
    elsewhere.cluster.ready = 0
    elsewhere.later()
    assert elsewhere.later(PATIENCE_S - 1).host == "another host" and elsewhere.cluster.resized == 0
    found = elsewhere.later(1)
    assert (found.host, found.message) == (socket.gethostname(), None) and elsewhere.cluster.resized == 1


def test_a_master_that_does_not_answer_proves_nothing(elsewhere: World) -> None:
    elsewhere.cluster.silent = BUSY
    for _ in range(3):
        elsewhere.later(PATIENCE_S)
    assert elsewhere.cluster.resized == 0
