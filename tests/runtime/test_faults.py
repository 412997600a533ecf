"""Each named fault point is hit by a real kill -9, and the supervisor brings the job back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from statecore.runtime.faults import FaultPoint
from statecore.supervisor import CATALOG_VARIABLE, SparkSubmit, Supervisor
from tests.runtime.conftest import JOB, Bench, wait

pytestmark = pytest.mark.spark


@pytest.fixture
def supervised(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A job that a supervisor keeps running, each driver a process of its own."""
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    monkeypatch.setenv("STATECORE_FAULT_FILE", str(tmp_path / "hit"))
    monkeypatch.setenv("STATECORE_FAULT_EPOCH", "1")
    supervisor = Supervisor(bench.catalog, tmp_path / "logs", launch=SparkSubmit(), poll_interval_s=0.2)
    thread = threading.Thread(target=supervisor.run)
    yield_started = []

    def start() -> None:
        yield_started.append(thread.start())

    bench.supervise = start  # type: ignore[attr-defined]
    yield bench
    bench.stop("end")
    supervisor.stop()
    thread.join(30)
    left = [child for child in psutil.Process().children(recursive=True) if "stream.py" in " ".join(child.cmdline())]
    psutil.wait_procs(left, timeout=20)


@pytest.mark.parametrize("point", list(FaultPoint), ids=lambda point: point.value)
def test_a_kill_at_this_point_changes_nothing(
    spark: Any, supervised: Bench, point: FaultPoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = supervised
    monkeypatch.setenv("STATECORE_FAULT_POINT", point.value)
    for _ in range(4):
        bench.feed()
    bench.catalog.set_desired(JOB, state="running", parallelism=2)
    bench.supervise()  # type: ignore[attr-defined]
    wait(lambda: bench.rows_done() >= len(bench.fed), "all records, over the kill", 150)
    assert (tmp_path / "hit").read_text().startswith(f"{point.value} epoch=1 "), "the fault was never hit"
    assert bench.generation().generation > 1
    savepoint = bench.stop("after")
    bench.assert_exact(spark, savepoint)
