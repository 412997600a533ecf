from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import CatalogError, ConfigurationError


def test_creating_the_schema_again_keeps_what_is_there(catalog: Catalog, job: str) -> None:
    catalog.create_schema()
    assert catalog.job(job).name == job


@pytest.mark.parametrize("kind", ["sqlite"])
def test_sqlite_writes_ahead_and_checks_foreign_keys(catalog: Catalog) -> None:
    with catalog._database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


def test_many_threads_share_one_catalog(catalog: Catalog, job: str) -> None:
    catalog.start_rescale_run("r", job, from_parallelism=2, to_parallelism=4)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: catalog.mark_step("r", f"step {n}", started=True), range(40)))
    assert len(catalog.rescale_run("r").steps) == 40


def test_a_failed_block_changes_nothing(catalog: Catalog, job: str) -> None:
    with pytest.raises(RuntimeError, match="stop"), catalog._database.write() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
        raise RuntimeError("stop")
    assert len(catalog.jobs()) == 1


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("catalog.db", "not a database URL"),
        ("mysql://u:secret@h/d", "'mysql'"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("postgresql+nodriver://h/d", "cannot be used"),
        ("postgresql://u:secret@h:543x/d", "not a database URL"),
        ("//u:secret@h/d", "'//h/d' is not a database URL"),
    ],
)
def test_a_url_that_cannot_be_a_catalog_is_refused(url: str, found: str) -> None:
    with pytest.raises(ConfigurationError, match=found) as refused:
        Catalog(url)
    assert "secret" not in str(refused.value)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"file/c\.db' cannot be used"):
        Catalog(f"sqlite:///{tmp_path}/file/c.db")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.db").write_text("no database " * 100)
    with Catalog(f"sqlite:///{tmp_path}/c.db") as catalog, pytest.raises(CatalogError, match=r"c\.db"):
        catalog.create_schema()


@pytest.mark.parametrize("kind", ["postgresql"])
def test_a_server_that_goes_away_without_a_word_is_given_up_in_seconds(catalog: Catalog, catalog_url: str) -> None:
    def used(opened: Catalog) -> dict[str, str]:
        with opened._database.read() as connection:
            return connection.connection.driver_connection.info.get_parameters()  # type: ignore[union-attr,no-any-return]

    assert {"connect_timeout": "10", "tcp_user_timeout": "30000"}.items() <= used(catalog).items()
    with Catalog(f"{catalog_url}?tcp_user_timeout=5000") as other:
        assert {"connect_timeout": "10", "tcp_user_timeout": "5000"}.items() <= used(other).items()


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://u@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2"
        with Catalog(url) as catalog, pytest.raises(CatalogError, match=r"timeout.*expected a reachable database"):
            catalog.jobs()


def test_a_reader_is_not_held_up_by_a_writer(catalog: Catalog, catalog_url: str, job: str) -> None:
    with Catalog(catalog_url) as other, pytest.raises(RuntimeError), other._database.write() as connection:
        connection.exec_driver_sql("DELETE FROM jobs")
        assert catalog.jobs()[0].name == job
        raise RuntimeError
