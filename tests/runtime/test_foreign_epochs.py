"""What a driver refuses before Spark has anything to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from statecore.errors import CommitConflictError
from statecore.runtime import Job
from statecore.runtime.epoch import EpochRunner, ResumePoint
from statecore.snapshot.checkpoints import CheckpointStore
from tests.handmade import written


def test_an_epoch_that_another_generation_committed_is_no_replay(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    theirs = written(store, 2)
    store.commit(theirs)
    runner = EpochRunner(
        job=theirs.job,
        plan=Job(),
        artifact=cast(Any, None),
        store=store,
        resume=ResumePoint(theirs.lineage, None, None),
        parallelism=2,
        max_parallelism=theirs.max_parallelism,
        generation=theirs.generation + 1,
        checkpoint_directory=tmp_path,
        gate=cast(Any, None),
        upkeep=cast(Any, None),
        sources=cast(Any, None),
        ticks=None,
        taken_up=lambda: None,
    )
    with pytest.raises(RuntimeError, match="CommitConflictError"):
        runner(cast(Any, None), theirs.epoch)
    # Spark hears of no more than that; the driver raises the error itself.
    assert isinstance(runner.failure, CommitConflictError)
    assert f"committed by generation {theirs.generation}" in str(runner.failure)
