"""A store, a catalog, and a job in both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.shell import committed, register


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let shells and drivers look at the catalog often; in use they look twice a second."""
    monkeypatch.setattr("statecore.cli.driver.POLL_S", 0.05)
    monkeypatch.setattr("statecore.cli.steps.POLL_S", 0.05)
    monkeypatch.setattr("statecore.runtime.driver.control.POLL_SECONDS", 0.05)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


@pytest.fixture
def savepoint(store: CheckpointStore) -> Path:
    path = store.write_savepoint(committed(store), "before-outage", reason="storage is down", now_ms=0)
    return Path(store.describe(path)).parent


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog that every command finds in its environment."""
    made = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("STATECORE_CATALOG", made)
    return made


@pytest.fixture
def catalog(url: str, catalog_url: str) -> Iterator[Catalog]:
    assert url == catalog_url
    with Catalog(url) as opened:
        yield opened


@pytest.fixture
def job(catalog: Catalog, store: CheckpointStore) -> str:
    register(catalog, store)
    return "orders"
