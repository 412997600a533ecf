"""Every named fault point is hit by a real kill -9, and the supervisor brings the job back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import RequestRecord
from statecore.operations.submit import SparkSubmit
from statecore.runtime.faults import FaultPoint
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.alone import ARTIFACT, assert_as_alone
from tests.support.bench import JOB, Bench
from tests.support.programs.eager import PROGRAM
from tests.support.supervision import supervising
from tests.support.waiting import wait

_RESCALE = (FaultPoint.RESCALE_PREPARED, FaultPoint.RESCALE_APPLIED)
_SAVEPOINT = (FaultPoint.SAVEPOINT_PINNED, FaultPoint.SAVEPOINT_COPIED)
_ASKED_FOR = (*_SAVEPOINT, *_RESCALE)
_UNASKED = tuple(point for point in FaultPoint if point not in _ASKED_FOR)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("points", [_UNASKED, _ASKED_FOR], ids=["in epochs and upkeep", "in what is asked for"])
def test_a_kill_at_every_fault_point_changes_nothing(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, points: tuple[FaultPoint, ...]
) -> None:
    bench.register(master="local[*]", artifact=ARTIFACT)
    hits = tmp_path / "hits"
    hits.mkdir()
    # What is asked for happens once, so it is cut off at the first epoch already.
    faults = [f"{point}@{0 if point in _ASKED_FOR else 2 * index + 1}" for index, point in enumerate(points)]
    monkeypatch.setenv("STATECORE_FAULTS", ",".join(faults))
    monkeypatch.setenv("STATECORE_FAULT_DIR", str(hits))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    savepoints: list[RequestRecord] = []
    manifests: list[Manifest] = []
    rescales: list[tuple[FaultPoint, int, int]] = []

    def note() -> int:
        """Read the manifests of epochs that are new, before clean-up removes them; return the rows of all."""
        newest = bench.checkpoints.newest()
        while newest is not None and len(manifests) <= newest.epoch:
            manifests.append(bench.checkpoints.manifest(bench.checkpoints.manifest_path(1, len(manifests))))
        return manifests[-1].rows_total if manifests else 0

    def every_point_was_hit() -> bool:
        # One epoch after the other: merges, clean-ups and savepoints happen between them.
        bench.feed()
        wait(lambda: note() >= len(bench.fed), "the records, over any kill")
        hit = {file.name for file in hits.iterdir()}
        left = set(points) - hit
        if left & set(_SAVEPOINT) and left <= set(_ASKED_FOR) and not savepoints:
            for name, target in (("pinned", None), ("copied", str(tmp_path / "copy"))):
                arguments = {"name": name} if target is None else {"name": name, "target": target}
                savepoints.append(bench.catalog.requests.send(JOB, "savepoint", arguments, name))
        if left and left <= set(_RESCALE):
            # A kill ends the request, unless it was noted as done: it was asked of the driver that ran.
            old, killed = manifests[-1].parallelism, bench.generation().generation
            new = 5 - old
            asked = bench.catalog.requests.send(JOB, "rescale", {"parallelism": new}, f"{len(manifests)}")

            def met() -> list[FaultPoint]:
                return [point for point in left if (hits / point).exists()]

            wait(lambda: met() or bench.catalog.requests.get(asked.id).state == "failed", "a kill")
            rescales.extend((point, killed, new if point == FaultPoint.RESCALE_APPLIED else old) for point in met())
        return not left

    with supervising(bench.catalog, tmp_path / "logs", SparkSubmit(PROGRAM)):
        try:
            wait(every_point_was_hit, "a kill at every fault point", 700)
            # Epochs that were committed before the last kill say nothing about the driver after it.
            bench.feed()
            wait(lambda: note() >= len(bench.fed), "the records, after the last kill")
            wait(lambda: all(_is_done(bench, asked.id) for asked in savepoints), "the savepoints")
            bench.stop("after")
            note()
        finally:
            bench.catalog.jobs.set_desired(JOB, state="stopped")
            wait(lambda: bench.generation().ended, "the driver to end")
    # Every kill ends a driver and nothing else does. One driver may meet two points: an epoch and a merge run at once.
    last, *lost = bench.catalog.generations.of(JOB, limit=50)
    ends = [(driver.state, driver.error) for driver in (last, *lost)]
    assert (last.state, {driver.state for driver in lost}) == ("stopped", {"failed"}), ends
    # A file is empty when the other point's kill came before its line.
    killed_processes = {file.read_text().partition("pid ")[2] for file in hits.iterdir()} - {""}
    assert len(killed_processes) <= len(lost) <= len(points), ends
    assert_as_alone(spark, bench, manifests)
    # Cut off before the boundary the job goes on at the old parallelism, after it at the new one.
    assert {point for point, _, _ in rescales} == set(points) & set(_RESCALE)
    for point, killed, expected in rescales:
        successor = next(manifest for manifest in manifests if manifest.generation > killed)
        assert successor.parallelism == expected, point
    if savepoints:
        store, _, manifest = open_savepoint(tmp_path / "copy")
        assert verify(store, manifest) == []


def _is_done(bench: Bench, request: int) -> bool:
    return bench.catalog.requests.get(request).state == "done"
