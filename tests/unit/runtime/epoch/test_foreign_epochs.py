"""What a driver refuses before Spark has anything to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import CommitConflictError, CommitForbiddenError
from statecore.runtime import Job
from statecore.runtime.driver.control import Control
from statecore.runtime.epoch.runner import EpochRunner, ResumePoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from tests.support.handmade import written


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))


@pytest.fixture
def theirs(store: CheckpointStore) -> Manifest:
    """An epoch of an earlier generation."""
    committed = written(store, 2)
    store.commit(committed)
    return committed


@pytest.fixture
def control(tmp_path: Path, theirs: Manifest) -> Iterator[Control]:
    """The line to the catalog of a driver that runs."""
    with Catalog(f"sqlite:///{tmp_path / 'catalog.db'}") as catalog:
        yield Control(catalog, theirs.job, theirs.generation + 1)


@pytest.fixture
def runner(store: CheckpointStore, theirs: Manifest, control: Control, tmp_path: Path) -> EpochRunner:
    return EpochRunner(
        job=theirs.job,
        plan=Job(),
        artifact=cast(Any, None),
        store=store,
        resume=ResumePoint(theirs.lineage, None, None),
        parallelism=2,
        max_parallelism=theirs.max_parallelism,
        generation=theirs.generation + 1,
        checkpoint_directory=tmp_path,
        gate=control,
        upkeep=cast(Any, None),
        sources=cast(Any, None),
        ticks=None,
        taken_up=lambda: None,
    )


def test_an_epoch_that_another_generation_committed_is_no_replay(runner: EpochRunner, theirs: Manifest) -> None:
    with pytest.raises(RuntimeError, match="CommitConflictError"):
        runner(cast(Any, None), theirs.epoch)
    # Spark hears of no more than that; the driver raises the error itself.
    assert isinstance(runner.failure, CommitConflictError)
    assert f"committed by generation {theirs.generation}" in str(runner.failure)


def test_no_epoch_begins_once_the_job_is_asked_to_stop(runner: EpochRunner, theirs: Manifest, control: Control) -> None:
    control.request = RequestRecord(1, theirs.job, "stop_with_savepoint", {}, "k", "pending", None, None, 0, 0)
    with pytest.raises(CommitForbiddenError, match="the job is stopping: this epoch is not begun"):
        runner(cast(Any, None), theirs.epoch)
    assert runner.failure is None


def test_no_epoch_begins_once_a_newer_driver_runs_the_job(
    runner: EpochRunner, theirs: Manifest, control: Control
) -> None:
    control._stop("a newer generation runs the job")
    with pytest.raises(CommitForbiddenError, match="the job is stopping: this epoch is not begun"):
        runner(cast(Any, None), theirs.epoch)
