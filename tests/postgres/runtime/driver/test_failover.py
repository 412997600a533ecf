"""PostgreSQL is restarted under a supervisor and a driver that run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog, Liveness
from statecore.cluster.processes import kill_session
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, Bench
from tests.support.postgres import Database, PostgresServer
from tests.support.supervision import supervising
from tests.support.waiting import wait

AWAY_S = 2 + Liveness().running_ms / 1000
"""Longer than a driver may be silent."""


@pytest.fixture
def bench(tmp_path: Path, own_server: PostgresServer) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.catalog.close()
    made.catalog_url = Database(own_server).url
    with Catalog(made.catalog_url) as made.catalog:
        made.catalog.create_schema()
        made.register()
        yield made


def test_the_stream_goes_on_and_the_same_driver_is_there_afterwards(
    spark: Any, bench: Bench, own_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    bench.feed()

    def process() -> None:
        bench.feed()
        wait(lambda: bench.rows_done() >= len(bench.fed), "the records")

    try:
        with supervising(bench.catalog, tmp_path / "logs"):
            process()
            wait(lambda: bench.generation().state == "running", "a heartbeat")
            own_server.stop()
            until_s = time.monotonic() + AWAY_S
            while time.monotonic() < until_s:
                process()
            own_server.start()
            before_ms = bench.generation().heartbeat_ms
            wait(lambda: bench.generation().heartbeat_ms > before_ms + 1_000, "heartbeats")
            process()
            assert [each.state for each in bench.catalog.generations.of(JOB)] == ["running"]
            assert bench.stop("after") is not None
    finally:
        if (pid := bench.generation().pid) is not None:
            kill_session(pid)
    bench.assert_exact(spark)
