"""A database that is away for a moment is waited for; one that stays away is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from statecore.catalog import Catalog, database
from statecore.errors import CatalogError
from tests.support.postgres import Database, PostgresServer, Replicated
from tests.support.waiting import PATIENCE_S, wait


@pytest.fixture
def catalog(own_server: PostgresServer, register: Callable[[Catalog, str], str]) -> Iterator[Catalog]:
    """A catalog with a job, on a server that the test may stop."""
    with Catalog(Database(own_server).url) as catalog:
        catalog.create_schema()
        register(catalog, "flights")
        yield catalog


def test_what_is_asked_while_the_server_restarts_is_answered_when_it_is_back(
    catalog: Catalog, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine, a server takes seconds to start.
    monkeypatch.setattr(database, "FAILOVER_S", PATIENCE_S)
    own_server.stop()
    with ThreadPoolExecutor(2) as pool:
        written = pool.submit(catalog.jobs.set_desired, "flights", state="running")
        read = pool.submit(catalog.jobs.all)
        wait(lambda: catalog._database._away_since_s, "a connection that was refused")
        own_server.start()
        assert written.result(PATIENCE_S).desired_state == "running" and len(read.result(PATIENCE_S)) == 1


def test_nobody_waits_for_a_server_that_stays_away(
    catalog: Catalog, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "FAILOVER_S", 0.5)
    own_server.stop()
    with pytest.raises(CatalogError, match="check that it is up"):
        catalog.jobs.all()
    monkeypatch.setattr(database, "_RECONNECT_S", 60.0)
    began_s = time.monotonic()
    with pytest.raises(CatalogError):
        catalog.jobs.all()
    with Catalog(catalog._database._url.render_as_string(hide_password=False)) as other, pytest.raises(CatalogError):
        # It never reached the server: the URL may be wrong.
        other.jobs.all()
    assert time.monotonic() - began_s < 30
    own_server.start()
    assert len(catalog.jobs.all()) == 1


def test_what_was_answered_before_a_failover_is_there_after_it(register: Callable[[Catalog, str], str]) -> None:
    with (
        closing(Replicated()) as servers,
        Catalog(servers.url(servers.primary.create_database())) as catalog,
    ):
        catalog.create_schema()
        register(catalog, "flights")
        # Both servers have failed, and both have taken over, before the last answer.
        for parallelism in (3, 4):
            catalog.jobs.set_desired("flights", parallelism=parallelism)
            servers.fail_over()
            assert catalog.jobs.get("flights").parallelism == parallelism
