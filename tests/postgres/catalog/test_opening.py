"""How PostgreSQL is opened."""

from __future__ import annotations

import pytest

from statecore.catalog import Catalog, Liveness, database
from statecore.errors import CatalogError
from statecore.repeating import Repeating
from statecore.runtime.generation.heartbeats import INTERVAL_S
from tests.support.waiting import wait


def test_a_server_that_goes_away_without_a_word_is_given_up_in_seconds(catalog: Catalog, catalog_url: str) -> None:
    def used(opened: Catalog) -> dict[str, str]:
        with opened._database.read() as connection:
            return connection.connection.driver_connection.info.get_parameters()  # type: ignore[union-attr]

    assert {"connect_timeout": "10", "tcp_user_timeout": "30000"}.items() <= used(catalog).items()
    with Catalog(f"{catalog_url}?tcp_user_timeout=5000") as other:
        assert {"connect_timeout": "10", "tcp_user_timeout": "5000"}.items() <= used(other).items()


def test_who_waits_for_a_stopped_client_gives_up(
    catalog: Catalog, catalog_url: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Catalog(catalog_url) as stopped, Catalog(catalog_url) as other:
        with stopped._transactions.write_job(job):
            # For the other's connection alone: which of two timeouts is over first would depend on the machine.
            monkeypatch.setattr(database, "_LOCK_TIMEOUT_S", 0.2)
            with pytest.raises(CatalogError, match="lock timeout"):
                other.jobs.set_desired(job, parallelism=1)
        assert other.jobs.set_desired(job, parallelism=1).parallelism == 1


def test_the_server_ends_a_client_that_stays_stopped(
    catalog: Catalog, catalog_url: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Catalog(catalog_url) as stopped:
        with monkeypatch.context() as short:
            short.setattr(database, "_IDLE_TIMEOUT_S", 2.0)
            stopped.jobs.all()
        with (
            pytest.raises(CatalogError, match="idle-in-transaction timeout"),
            stopped._transactions.write_job(job) as connection,
        ):
            # It waits for the row lock, which the server frees long before it gives up.
            assert catalog.jobs.set_desired(job, parallelism=1).parallelism == 1
            connection.exec_driver_sql("SELECT 1")
        # Its next transaction has a new connection.
        assert stopped.jobs.set_desired(job, parallelism=2).parallelism == 2


def test_a_stopped_client_is_ended_before_the_driver_that_it_silences_counts_as_lost(
    catalog_url: str, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twice as fast as the real times; quicker, a machine that pauses would decide.
    monkeypatch.setattr(database, "_LOCK_TIMEOUT_S", database._LOCK_TIMEOUT_S / 2)
    monkeypatch.setattr(database, "_IDLE_TIMEOUT_S", database._IDLE_TIMEOUT_S / 2)
    liveness = Liveness(running_ms=Liveness().running_ms // 2)
    with Catalog(catalog_url, liveness=liveness) as catalog, Catalog(catalog_url) as stopped:
        generation = catalog.generations.claim(job, log_path="").generation
        catalog.generations.heartbeat(job, generation)
        with (
            Repeating("heartbeat", lambda: catalog.generations.heartbeat(job, generation), INTERVAL_S / 2),
            pytest.raises(CatalogError, match="idle-in-transaction timeout"),
            stopped._transactions.write_job(job) as connection,
        ):
            before = catalog.generations.newest(job)
            assert before is not None

            def beats() -> bool:
                found = catalog.generations.newest(job)
                assert found is not None and catalog.generations.is_alive(found), (
                    "the supervisor would replace the driver"
                )
                return found.heartbeat_ms > before.heartbeat_ms

            wait(beats, "a heartbeat")
            connection.exec_driver_sql("SELECT 1")
