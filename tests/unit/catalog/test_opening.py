"""What a catalog can be opened at, and how SQLite is opened."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import CatalogError, ConfigurationError


def test_sqlite_writes_ahead_and_checks_foreign_keys(catalog: Catalog) -> None:
    with catalog._database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 30_000


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


def test_a_server_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql+psycopg://u@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2"
        with Catalog(url) as catalog, pytest.raises(CatalogError, match=r"timeout.*expected a reachable database"):
            catalog.jobs.all()


def test_a_server_that_is_not_there_is_named_on_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with (
        Catalog(f"postgresql+psycopg://u@127.0.0.1:{port}/d") as catalog,
        pytest.raises(CatalogError, match="expected a reachable database") as refused,
    ):
        catalog.jobs.all()
    assert "\n" not in str(refused.value)


def test_a_second_catalog_of_a_process_does_not_end_the_locks_of_the_first(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    job = {"artifact": "late.py", "store": "store", "master_url": "local[2]", "parallelism": 1, "max_parallelism": 128}

    def elsewhere(does: str) -> str:
        program = f"from statecore.catalog import Catalog\nwith Catalog({url!r}) as catalog: {does}"
        return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout

    with Catalog(url) as catalog:
        catalog.create_schema()
        catalog.jobs.register("early", **job)
        Catalog(url).close()
        # A process that takes itself for the last one removes the write-ahead log when it leaves.
        elsewhere("catalog.jobs.all()")
        catalog.jobs.register("late", **job)
        assert elsewhere("print([job.name for job in catalog.jobs.all()])") == "['early', 'late']\n"
