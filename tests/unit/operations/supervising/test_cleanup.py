"""Once an hour, the supervisor removes what nobody asks for any more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.catalog.retention import KEPT_MS, KEPT_NEWEST
from statecore.operations.supervising.cleanup import Cleanup
from statecore.storage.workspaces import workspace
from tests.contracts.catalog.fixtures import ManualClock, register

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(10 * KEPT_MS)


@pytest.fixture
def catalog(catalog_url: str, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as catalog:
        register(catalog, "flights")
        yield catalog


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def log_of(logs: Path, name: str, modified_ms: int) -> Path:
    path = logs / name
    path.write_text("started")
    os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
    return path


def run_generation(catalog: Catalog) -> int:
    number = catalog.generations.claim("flights", log_path="").generation
    catalog.generations.end("flights", number, state="stopped")
    return number


def test_a_log_goes_with_its_generation_and_not_before(catalog: Catalog, clock: ManualClock, logs: Path) -> None:
    began_ms = clock.now_ms()
    for _ in range(KEPT_NEWEST + 1):
        run_generation(catalog)
    first, second = (log_of(logs, f"flights-{number}.log", began_ms) for number in (1, 2))
    others = [log_of(logs, name, 0) for name in ("supervisor.log", "unknown-1.log", "flights-x.log", "flights-1.txt")]
    left_overs = Cleanup(catalog, logs)
    left_overs.remove(["flights"])
    assert first.exists()

    clock.advance(KEPT_MS + 1)
    # Of a generation that a catalog restored from a backup does not know.
    others.append(log_of(logs, "flights-999.log", clock.now_ms() - KEPT_MS))
    left_overs.remove(["flights"])
    assert [path.exists() for path in (first, second, *others)] == [False, True, *[True] * 5]


def test_it_looks_once_an_hour(catalog: Catalog, clock: ManualClock, logs: Path) -> None:
    left_overs = Cleanup(catalog, logs)
    left_overs.remove(["flights"])
    old = log_of(logs, "flights-1.log", 0)
    clock.advance(HOUR_MS - 1)
    left_overs.remove(["flights"])
    assert old.exists()
    clock.advance(1)
    left_overs.remove(["flights"])
    assert not old.exists()


def test_it_leaves_the_folders_of_living_drivers_alone(
    catalog: Catalog, clock: ManualClock, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / "statecore-flights-1-x"
    dead.mkdir()
    (dead / ".lock").write_text("")
    with workspace("flights-2") as alive:
        Cleanup(catalog, logs).remove(["flights"])
        assert alive.is_dir()
    assert not dead.exists()
