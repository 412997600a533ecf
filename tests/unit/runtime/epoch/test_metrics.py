"""Figures of epochs reach the catalog, and an epoch never waits for it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import msgspec
import pytest
from sqlalchemy.engine import make_url

from statecore.catalog import (
    Catalog,
    EpochRecord,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    OperatorFigures,
    SourceTime,
    SystemClock,
)
from statecore.model.watermarks import StreamTime
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.runtime.epoch.metrics import EpochRecorder
from statecore.runtime.epoch.report import EpochReport
from statecore.runtime.messages import KeyGroupShare, KeyShare, StreamRead, SubtaskCommit
from statecore.testing import ManualClock
from tests.support.handmade import manifest, subtask_commit

JOB = manifest().job


def report(epoch: int, **changes: str) -> EpochReport:
    made = manifest(epoch=epoch, operators=(), **changes)
    return EpochReport(made, {}, 0, 5, 0, {}, 0.1, None, {}, {"seen": 2.5}, {"in": 3})


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        opened.jobs.register(JOB, artifact="a", store="/s", master_url="local", parallelism=2, max_parallelism=8)
        yield opened


def recorded(catalog: Catalog) -> list[int]:
    return [epoch.epoch for epoch in catalog.epochs.of(JOB)]


def test_an_epoch_does_not_wait_for_a_catalog_that_is_locked(catalog: Catalog, catalog_url: str) -> None:
    recorder = EpochRecorder(catalog, BacklogMonitor(catalog.epochs, JOB, 1, {}, None))
    path = make_url(catalog_url).database
    assert path is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for epoch in (1, 2):
            recorder.committed(report(epoch))
        other.execute("ROLLBACK")
    recorder.close()
    assert recorded(catalog) == [1, 2]


def test_epochs_have_the_times_of_the_catalogs_clock(catalog_url: str) -> None:
    clock = ManualClock(SystemClock().now_ms() + 3_600_000)
    with Catalog(catalog_url, clock=clock) as ahead:
        ahead.jobs.register(JOB, artifact="a", store="/s", master_url="local", parallelism=2, max_parallelism=8)
        recorder = EpochRecorder(ahead, BacklogMonitor(ahead.epochs, JOB, 1, {}, None))
        recorder.committed(report(1))
        recorder.close()
        (recorded,) = ahead.epochs.of(JOB)
    assert 3_590_000 < recorded.committed_ms - manifest().committed_ms < 3_610_000
    assert recorded.committed_ms - recorded.started_ms == manifest().committed_ms


def test_publishing_is_recorded_by_sink(catalog: Catalog) -> None:
    recorder = EpochRecorder(catalog, BacklogMonitor(catalog.epochs, JOB, 1, {}, None))
    recorder.committed(report(1))
    recorder.close()
    (epoch,) = catalog.epochs.of(JOB)
    assert (epoch.publish_ms, epoch.source_rows) == ({"seen": 2.5}, {"in": 3})


def recorded_figures(catalog: Catalog, *commits: SubtaskCommit) -> OperatorFigures:
    recorder = EpochRecorder(catalog, BacklogMonitor(catalog.epochs, JOB, 1, {}, None))
    recorder.committed(replace(report(1), commits={"totals": commits}))
    recorder.close()
    return catalog.epochs.subtasks(JOB)[0].operators[0]


def test_the_share_of_a_key_is_that_of_its_rows_in_its_subtasks_time(catalog: Catalog) -> None:
    # The rows of the second subtask take longer: its key has most of the work, and not most of the rows.
    found = recorded_figures(
        catalog,
        subtask_commit(
            read=(StreamRead(900),),
            process_ms=80,
            read_ms=20,
            heavy_keys=(KeyShare("a", 0.9, 3), KeyShare("b", 0.06, 4)),
        ),
        subtask_commit(subtask=1, read=(StreamRead(100),), process_ms=300, heavy_keys=(KeyShare("c", 0.5, 70),)),
    ).heavy_keys
    assert found == (HeavyKeyFigure("c", 0.375, 70), HeavyKeyFigure("a", 0.225, 3), HeavyKeyFigure("b", 0.015, 4))


def test_subtasks_too_quick_to_be_timed_count_by_their_rows_and_the_heaviest_keys_are_kept(catalog: Catalog) -> None:
    found = recorded_figures(
        catalog,
        subtask_commit(read=(StreamRead(10),), heavy_keys=tuple(KeyShare(str(n), 0.1, n) for n in range(10))),
        subtask_commit(subtask=1, read=(StreamRead(30),), heavy_keys=(KeyShare("c", 0.5, 70),)),
        subtask_commit(subtask=2),
    ).heavy_keys
    assert len(found) == 8 and found[0] == HeavyKeyFigure("c", 0.375, 70) and found[1].share == 0.025


def test_key_groups_count_like_keys(catalog: Catalog) -> None:
    found = recorded_figures(
        catalog,
        subtask_commit(process_ms=100, heavy_key_groups=(KeyGroupShare(3, 0.9),)),
        subtask_commit(subtask=1, process_ms=300, heavy_key_groups=(KeyGroupShare(70, 0.5), KeyGroupShare(71, 0.4))),
    ).heavy_key_groups
    assert found == (HeavyKeyGroupFigure(70, 0.375), HeavyKeyGroupFigure(71, 0.3), HeavyKeyGroupFigure(3, 0.225))


def test_an_epoch_that_cannot_be_recorded_costs_no_other(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    recorder = EpochRecorder(catalog, BacklogMonitor(catalog.epochs, JOB, 1, {}, None))
    for each in (report(1, job="unknown"), report(2)):
        recorder.committed(each)
    recorder.close()
    assert recorded(catalog) == [2]
    assert "the figures of epoch 1 could not be recorded" in caplog.text


def test_a_source_keeps_the_time_at_which_its_watermark_moved(catalog: Catalog) -> None:
    recorder = EpochRecorder(catalog, BacklogMonitor(catalog.epochs, JOB, 1, {}, None))
    now_ms = SystemClock().now_ms()
    # "c" has no record yet.
    seen: list[tuple[tuple[int | None, ...], str]]
    seen = [((10, 5, None), "a"), ((20, 5, None), "a"), ((20, 9, None), "b"), ((20, 9, None), "")]
    for number, (stands, moved) in enumerate(seen):
        times = {name: StreamTime(at, idle=name == "b") for name, at in zip("abc", stands, strict=True)}
        made = replace(report(number), moved=moved, source_times=times)
        committed = msgspec.structs.replace(made.manifest, committed_ms=now_ms + number)
        recorder.committed(replace(made, manifest=committed))
    recorder.close()
    epochs = catalog.epochs.of(JOB)
    found = [[time.moved_ms and time.moved_ms - now_ms for time in each.source_times.values()] for each in epochs]
    assert found == [[0, None, None], [1, None, None], [1, 2, None], [1, 2, None]]
    assert epochs[-1].source_times["b"] == SourceTime(9, idle=True, moved_ms=now_ms + 2)
    assert epochs[-1].held_by == "c"


@pytest.mark.parametrize(
    ("times", "held_by"),
    [
        ({}, None),
        ({"a": SourceTime(1)}, None),
        ({"a": SourceTime(1), "b": SourceTime(2)}, "a"),
        ({"a": SourceTime(1, idle=True), "b": SourceTime(2)}, None),
        ({"a": SourceTime(1, idle=True), "b": SourceTime(3), "c": SourceTime(2)}, "c"),
        ({"a": SourceTime(-5), "b": SourceTime(None)}, "b"),
        ({"a": SourceTime(1, idle=True), "b": SourceTime(2, idle=True)}, None),
    ],
)
def test_the_source_that_is_furthest_behind_holds_event_time_back(
    times: dict[str, SourceTime], held_by: str | None
) -> None:
    assert EpochRecord(JOB, 1, 1, 1, 1, 0, 0, 0, 0, 0, source_times=times).held_by == held_by
