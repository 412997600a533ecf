"""A key with few, dear rows is found: by the worker that runs them, through the catalog, in the diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from statecore import BatchProcessFunction, KeyedProcessFunction
from statecore.catalog import Catalog
from statecore.operations.autoscaling.figures import figures_of
from statecore.policy import diagnose
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.runtime.epoch.metrics import EpochRecorder
from statecore.runtime.epoch.report import EpochReport
from statecore.runtime.messages import StreamRead, SubtaskCommit
from statecore.runtime.worker import call_times
from tests.support.handmade import manifest, subtask_commit
from tests.unit.policy.test_decision import NO_WAIT, figures
from tests.unit.runtime.worker.test_batches import Worker, from_spark, group

JOB = manifest().job
# One row in a hundred has the dear key; by rows, keys with a twentieth of them are told.
ROWS = [("dear" if n % 100 == 0 else f"k{n}", n) for n in range(2_000)]
DEAR_S = 0.05


@pytest.fixture(autouse=True)
def _many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    # As many in this second as in ten others.
    monkeypatch.setattr(call_times, "_APART_S", 0.01)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


class Dear(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value.k == "dear":
            Event().wait(DEAR_S)
        yield value.k, value.n


class DearBatches(BatchProcessFunction):
    def process_batch(self, batch: Any, ctx: Any) -> Iterator[Any]:
        Event().wait(DEAR_S * batch["k"].to_pylist().count("dear"))
        yield batch.select(["k", "n"])


def run(worker: Worker, function: Any, **spec: Any) -> SubtaskCommit:
    batches = [from_spark(ROWS[:700]), from_spark(ROWS[700:])]
    return worker.run(function, batches, output="k string, n bigint", **spec)[1]


@pytest.mark.parametrize("spec", [{}, {"ordered": True}], ids=["keyed", "ordered"])
def test_a_key_with_few_and_dear_rows_is_told_with_its_key_group(worker: Worker, spec: dict[str, Any]) -> None:
    commit = run(worker, Dear(), **spec)
    assert commit.heavy_keys[0][::2] == ("dear", group("dear")) and commit.heavy_keys[0].share > 0.5
    assert commit.heavy_key_groups[0].key_group == group("dear") and commit.heavy_key_groups[0].share > 0.5


def test_where_a_function_takes_batches_a_key_counts_by_its_rows(worker: Worker) -> None:
    assert run(worker, DearBatches()).heavy_keys == ()


def test_a_key_with_few_and_dear_rows_is_diagnosed(worker: Worker, catalog_url: str) -> None:
    slow = run(worker, Dear())
    quick = subtask_commit(subtask=1, read=(StreamRead(2_000),), process_ms=slow.process_ms)
    with Catalog(catalog_url) as catalog:
        catalog.jobs.register(JOB, artifact="a", store="/s", master_url="local", parallelism=2, max_parallelism=16)
        with closing(EpochRecorder(catalog, BacklogMonitor(catalog.epochs, JOB, 1, {}, None))) as recorder:
            made = manifest(epoch=1, parallelism=2, operators=())
            recorder.committed(EpochReport(made, {"totals": (slow, quick)}, 0, 900, 0, {}, 0.1, None, {}, {}, {}))
        heavy = figures_of(catalog, JOB, catalog.now_ms()).heavy_keys
    assert heavy[0].key == "dear" and heavy[0].share > 0.25
    short = replace(figures(2, arriving=200_000.0), busiest_share=0.5)
    without, found = diagnose(short, NO_WAIT), diagnose(replace(short, heavy_keys=heavy), NO_WAIT)
    assert without is not None and without.name == "too_small"
    assert found is not None and found.name == "hot_key" and "the key dear has" in found.found
