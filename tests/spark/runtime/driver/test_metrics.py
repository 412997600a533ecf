"""Metrics of functions count every committed record once, over kills, a rescale, and a roll-back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statecore.model.metrics import MetricFigure
from statecore.operations.submit import SparkSubmit
from statecore.snapshot.manifest import Manifest
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, Bench
from tests.support.jobs import measured
from tests.support.programs.eager import PROGRAM
from tests.support.supervision import supervising
from tests.support.waiting import wait

KILLS = ("changelog_written@0", "manifest_written@1")


def metrics(manifest: Manifest) -> dict[str, MetricFigure]:
    (operator,) = manifest.operators
    assert isinstance(operator.metrics, tuple)
    return {each.name: each for each in operator.metrics}


def assert_exact(bench: Bench, numbers: list[int]) -> None:
    """Dead letters, every seventh number, count in no metric."""
    good = [n for n in numbers if n % 7]
    found = metrics(bench.newest())
    assert (found["records"].total, found["sizes"].count, found["sizes"].total) == (len(good), len(good), sum(good))
    assert (found["sizes"].least, found["sizes"].largest) == (min(good), max(good))


def test_metrics_are_exact_over_kills_a_rescale_and_a_roll_back(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hits").mkdir()
    monkeypatch.setenv("STATECORE_FAULTS", ",".join(KILLS))
    monkeypatch.setenv("STATECORE_FAULT_DIR", str(tmp_path / "hits"))
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.register(artifact=Path(measured.__file__))
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=3)
    with supervising(bench.catalog, tmp_path / "logs", SparkSubmit(PROGRAM)):
        try:
            for rows in (100, 50):
                bench.feed(rows)
                wait(lambda: bench.rows_done() >= len(bench.fed), "the records, over the kills")
        finally:
            bench.catalog.jobs.set_desired(JOB, state="stopped")
            wait(lambda: bench.generation().ended, "the driver to end")
    assert len(list((tmp_path / "hits").iterdir())) == len(KILLS)
    assert_exact(bench, list(range(150)))
    monkeypatch.delenv("STATECORE_FAULTS")

    with bench.running(2) as second:
        bench.feed(70)
        wait(lambda: bench.rows_done() >= len(bench.fed), "the records at another parallelism")
    assert_exact(bench, list(range(220)))
    subtask = metrics(bench.newest())["subtask"]
    assert (subtask.count, subtask.least, subtask.largest) == (2, 0, 1)
    newest = bench.catalog.epochs.of(JOB)[-1]
    assert {each.name: each for each in newest.metrics["measured"]} == metrics(bench.newest())

    with bench.running(2):
        bench.feed(30)
        wait(lambda: bench.rows_done() >= len(bench.fed), "the records that are forgotten")
    lineage = bench.newest().lineage
    assert_exact(bench, list(range(250)))
    with bench.running(2, start_from=f"savepoints/end-{second.generation}", roll_back=True):
        wait(lambda: bench.newest().lineage > lineage or bench.generation().ended, "an epoch of a new lineage")
        assert bench.newest().lineage > lineage, bench.generation().error
        wait(lambda: bench.rows_done() >= len(bench.fed), "the same records again")
    assert_exact(bench, list(range(250)))
