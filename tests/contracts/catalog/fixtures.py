"""What every test of the catalog starts from; a conftest.py says which kind of database ``catalog_url`` is of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statecore.catalog import Catalog


class ManualClock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> None:
        self._now_ms += ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def catalog(catalog_url: str, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as catalog:
        yield catalog


@pytest.fixture
def job(catalog: Catalog) -> str:
    return register(catalog, "flights")


def register(catalog: Catalog, name: str) -> str:
    catalog.jobs.register(
        name,
        artifact="/jobs/flights.py",
        store="/store/flights",
        master_url="spark://127.0.0.1:7077",
        conf={"spark.cores.max": "2"},
        parallelism=2,
        max_parallelism=128,
    )
    return name


@pytest.fixture(name="register")
def register_fixture() -> object:
    return register
