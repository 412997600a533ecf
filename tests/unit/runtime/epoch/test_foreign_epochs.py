"""What a driver refuses before Spark has anything to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from statecore.errors import CommitConflictError, CommitForbiddenError
from statecore.runtime import Job
from statecore.runtime.driver.lifecycle import Lifecycle
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.progress import EpochTimes
from statecore.runtime.epoch.runner import EpochRunner
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.resume_point import ResumePoint
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
def lifecycle() -> Lifecycle:
    return Lifecycle()


@pytest.fixture
def runner(store: CheckpointStore, theirs: Manifest, lifecycle: Lifecycle, tmp_path: Path) -> EpochRunner:
    resume = ResumePoint(theirs.lineage, None, None)
    return EpochRunner(
        plan=Job(),
        lineage=Lineage(store, resume, theirs.generation + 1, lambda: None),
        subtasks=cast(Any, None),
        committer=cast(Any, None),
        times=EpochTimes(tmp_path),
        inputs=cast(Any, None),
        first_offsets=cast(Any, None),
        ticks=None,
        gate=lifecycle,
        recorder=cast(Any, None),
        upkeep=cast(Any, None),
    )


def test_an_epoch_that_another_generation_committed_is_no_replay(runner: EpochRunner, theirs: Manifest) -> None:
    with pytest.raises(RuntimeError, match="CommitConflictError"):
        runner(cast(Any, None), theirs.epoch)
    # Spark hears of no more than that; the driver raises the error itself.
    assert isinstance(runner.failure, CommitConflictError)
    assert f"committed by generation {theirs.generation}" in str(runner.failure)


def test_no_epoch_begins_once_the_job_is_asked_to_stop(
    runner: EpochRunner, theirs: Manifest, lifecycle: Lifecycle
) -> None:
    lifecycle.drain()
    with pytest.raises(CommitForbiddenError, match="the job is stopping: the next driver runs this epoch first"):
        runner(cast(Any, None), theirs.epoch)
    assert runner.failure is None


def test_no_epoch_begins_once_a_newer_driver_runs_the_job(
    runner: EpochRunner, theirs: Manifest, lifecycle: Lifecycle
) -> None:
    lifecycle.supersede()
    with pytest.raises(CommitForbiddenError, match="the job is stopping: the next driver runs this epoch first"):
        runner(cast(Any, None), theirs.epoch)
