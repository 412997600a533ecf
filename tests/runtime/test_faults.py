"""Every named fault point is hit by a real kill -9, and the supervisor brings the job back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import RequestRecord
from statecore.runtime.faults import FaultPoint
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify
from statecore.supervisor import CATALOG_VARIABLE, SparkSubmit, Supervisor
from tests.runtime.alone import ARTIFACT, assert_as_alone
from tests.runtime.conftest import JOB, Bench, wait
from tests.runtime.test_upkeep import EAGER

pytestmark = pytest.mark.spark


def test_a_kill_at_every_fault_point_changes_nothing(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.register(artifact=ARTIFACT, conf=EAGER)
    hits = tmp_path / "hits"
    hits.mkdir()
    faults = [f"{point}@{2 * index + 1}" for index, point in enumerate(FaultPoint)]
    monkeypatch.setenv("STATECORE_FAULTS", ",".join(faults))
    monkeypatch.setenv("STATECORE_FAULT_DIR", str(hits))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.set_desired(JOB, state="running", parallelism=2)
    savepoints: list[RequestRecord] = []
    manifests: list[Manifest] = []
    supervisor = Supervisor(bench.catalog, tmp_path / "logs", launch=SparkSubmit(), poll_interval_s=0.2)
    thread = threading.Thread(target=supervisor.run)
    thread.start()

    def every_point_was_hit() -> bool:
        # One epoch after the other: merges, clean-ups and savepoints happen between them.
        bench.feed()
        wait(lambda: bench.rows_done() >= len(bench.fed), "the records, over any kill", 120)
        manifests.append(bench.newest())
        hit = {file.name for file in hits.iterdir()}
        if len(hit) >= len(FaultPoint) - 2 and not savepoints:
            for name, target in (("pinned", None), ("copied", str(tmp_path / "copy"))):
                arguments = {"name": name} if target is None else {"name": name, "target": target}
                savepoints.append(bench.catalog.request(JOB, "savepoint", arguments, name))
        return hit == set(FaultPoint)

    try:
        wait(every_point_was_hit, "a kill at every fault point", 400)
        wait(lambda: all(_is_done(bench, asked.id) for asked in savepoints), "the savepoints", 60)
        bench.stop("after")
    finally:
        bench.catalog.set_desired(JOB, state="stopped")
        wait(lambda: bench.generation().ended, "the driver to end")
        supervisor.stop()
        thread.join(30)
    ends = [generation.error for generation in bench.catalog.generations(JOB, limit=50)]
    assert len(ends) == len(FaultPoint) + 1, ends
    assert_as_alone(spark, bench, manifests)
    store, path = open_savepoint(tmp_path / "copy")
    assert verify(store, store.manifest(path)) == []


def _is_done(bench: Bench, request: int) -> bool:
    return bench.catalog.get_request(request).state == "done"
