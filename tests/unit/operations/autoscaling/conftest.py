"""A catalog with one job and its cluster, at a time that the test sets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import (
    Catalog,
)
from statecore.testing import ManualClock
from tests.unit.operations.autoscaling.driver import JOB, START_MS


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path, clock: ManualClock) -> Iterator[Catalog]:
    with Catalog(catalog_url, clock=clock) as catalog:
        catalog.clusters.register("local", "standalone", {}, workers=1)
        catalog.jobs.register(
            JOB,
            artifact="flights.py",
            store=str(tmp_path / "store"),
            master_url="spark://127.0.0.1:7077",
            cluster="local",
            parallelism=2,
            max_parallelism=128,
        )
        catalog.jobs.set_desired(JOB, state="running")
        yield catalog
