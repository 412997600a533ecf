"""Every named fault point is hit by a real kill -9, and the supervisor brings the job back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from statecore.runtime.faults import FaultPoint
from statecore.supervisor import CATALOG_VARIABLE, SparkSubmit, Supervisor
from tests.runtime.alone import ARTIFACT, assert_as_alone
from tests.runtime.conftest import JOB, Bench, wait

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("job", ["totals", "everything"])
def test_a_kill_at_every_fault_point_changes_nothing(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    if job == "everything":
        bench.register(artifact=ARTIFACT)
    hits = tmp_path / "hits"
    hits.mkdir()
    faults = [f"{point}@{2 * index + 1}" for index, point in enumerate(FaultPoint)]
    monkeypatch.setenv("STATECORE_FAULTS", ",".join(faults))
    monkeypatch.setenv("STATECORE_FAULT_DIR", str(hits))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    for _ in range(2 * len(FaultPoint) + 1):
        bench.feed()
    bench.catalog.set_desired(JOB, state="running", parallelism=2)
    supervisor = Supervisor(bench.catalog, tmp_path / "logs", launch=SparkSubmit(), poll_interval_s=0.2)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    try:
        wait(lambda: bench.rows_done() >= len(bench.fed), "all records, over all kills", 300)
        savepoint = bench.stop("after")
    finally:
        bench.catalog.set_desired(JOB, state="stopped")
        wait(lambda: bench.generation().ended, "the driver to end")
        supervisor.stop()
        thread.join(30)
    assert {file.name for file in hits.iterdir()} == set(FaultPoint), "a fault point was never hit"
    assert bench.generation().generation == len(FaultPoint) + 1
    if job == "everything":
        assert_as_alone(spark, bench)
    else:
        bench.assert_exact(spark, savepoint)
