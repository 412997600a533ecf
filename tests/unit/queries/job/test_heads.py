"""A query resumes from its newest head: after rollbacks, deaths, a catalog from a backup and other starts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.job.current_checkpoint import current_checkpoint, newest_batch
from statecore.queries.job.heads import Heads
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.unit.queries.job.played_query import PlayedQuery


@pytest.fixture
def query(tmp_path: Path, catalog_url: str) -> PlayedQuery:
    return PlayedQuery(tmp_path, catalog_url)


def test_the_first_head_is_the_registered_checkpoint(query: PlayedQuery) -> None:
    assert query.start() == query.root / "own"
    (head,) = Heads(query.job.store)
    assert (head.number, head.is_base, head.after, head.generation, head.reason) == (1, True, 0, 1, "registered")


def test_a_rescale_that_was_rolled_back_before_a_batch_returns_to_the_checkpoint_before(query: PlayedQuery) -> None:
    query.batch(query.start())
    run = query.rescaled(5)
    new = query.start()
    assert open_checkpoint(str(new)).partitions == 5
    query.roll_back(run)
    assert current_checkpoint(query.job) == str(query.root / "own")
    assert query.start() == query.root / "own"
    assert [head.checkpoint for head in Heads(query.job.store)] == [
        str(query.root / "own"),
        str(new),
        str(query.root / "own"),
    ]


def test_batches_of_the_copy_are_kept_in_a_copy_back(query: PlayedQuery) -> None:
    query.batch(query.start())
    run = query.rescaled(5)
    new = query.start()
    query.batch(new)
    query.roll_back(run)
    assert (current_checkpoint(query.job), newest_batch(query.job)) == (str(new), 2)
    back = query.start()
    assert back.name == "head-3-at-2-p2"
    query.batch(back)


def test_a_rollback_never_goes_back_two_rescales(query: PlayedQuery) -> None:
    """R1's process dies after its copy has committed batches; R2 begins before R1's lease is recovered."""
    query.batch(query.start())
    query.rescaled(5)
    copy = query.start()
    query.batch(copy)
    query.batch(copy)
    query.clock.advance(60_001)
    second = query.rescaled(3, until="savepoint")
    query.roll_back(second)
    query.batch(query.start())
    assert sorted(query.sink) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("commits", [True, False])
def test_a_pending_batch_that_the_copy_ran_is_not_run_again_on_the_old_one(query: PlayedQuery, commits: bool) -> None:
    old = query.start()
    query.batch(old, computes=False)
    run = query.rescaled(5)
    query.batch(query.start(), commits=commits)
    query.roll_back(run)
    query.batch(query.start())
    query.batch(query.start())


def test_a_catalog_from_a_backup_takes_a_query_back_to_no_older_checkpoint(
    query: PlayedQuery, tmp_path: Path, catalog_url: str
) -> None:
    query.batch(query.start())
    query.catalog.close()
    file = catalog_url.partition("///")[2]
    shutil.copy(file, tmp_path / "backup")
    query.reopen()
    query.finish(query.rescaled(5))
    query.batch(query.start())
    query.catalog.close()
    shutil.copy(tmp_path / "backup", file)
    query.reopen()
    assert query.job.checkpoint == str(query.root / "own")
    query.batch(query.start())
    assert sorted(query.sink) == [0, 1, 2, 3]


def test_a_batch_that_a_lost_driver_commits_after_the_savepoint_is_in_the_copy_that_the_query_resumes_from(
    query: PlayedQuery,
) -> None:
    old = query.start()
    query.batch(old)
    run = query.rescaled(5, until="copy")
    query.batch(old)
    fields = {"checkpoint": query.catalog.runs.get(run).rescaled}
    Heads(query.job.store).append(str(fields["checkpoint"]), "run", 1)
    query.catalog.jobs.set_desired("totals", state="running", parallelism=5)
    resumed = query.start()
    assert open_checkpoint(str(resumed)).batch == 2
    query.batch(resumed)


def test_another_start_leaves_begun_batches_only_if_asked_to(query: PlayedQuery) -> None:
    own = query.start()
    pinned = query.rescaled(5, until="savepoint")
    savepoint = str(Path(query.job.store) / "savepoints" / pinned)
    query.roll_back(pinned)
    query.batch(own)
    query.catalog.jobs.set_desired("totals", state="stopped")
    with pytest.raises(CheckpointRefusedError, match="add --roll-back"):
        query.start_from(savepoint)
    query.start_from(savepoint, roll_back=True)
    assert query.start().name == "from-3"


def test_of_two_that_append_at_once_one_is_refused(query: PlayedQuery) -> None:
    query.batch(query.start())
    one, other = Heads(query.job.store), Heads(query.job.store)
    query.copied(str(query.root / "own"), str(query.root / "a"), 5)
    query.copied(str(query.root / "own"), str(query.root / "b"), 5)
    one.append(str(query.root / "a"), "one", 1)
    with pytest.raises(CheckpointRefusedError, match=r"found head 2 in .* appended by another process"):
        other.append(str(query.root / "b"), "other", 1)


def test_a_damaged_head_is_named(query: PlayedQuery) -> None:
    query.start()
    head = Path(query.job.store) / "heads/00000001.json"
    head.write_text("{")
    with pytest.raises(CheckpointDamagedError, match=r"heads/00000001.json, which is no head of a query"):
        query.start()


@pytest.mark.parametrize("is_base", [False, True])
def test_a_checkpoint_that_is_gone_takes_the_query_nowhere_else(query: PlayedQuery, is_base: bool) -> None:
    query.batch(query.start())
    if is_base:
        shutil.rmtree(query.root / "own")
    else:
        query.finish(query.rescaled(5))
        shutil.rmtree(query.start())
    with pytest.raises(CheckpointDamagedError, match=r"found no batch in .*; expected batch \d or a later one"):
        query.start()


def test_a_query_that_has_begun_no_batch_since_its_rescale_is_where_it_was_rescaled_to(query: PlayedQuery) -> None:
    query.batch(query.start())
    query.finish(query.rescaled(5))
    copy = query.start()
    assert current_checkpoint(query.job) == str(copy)
    query.finish(query.rescaled(2))
    again = query.start()
    assert again not in (copy, query.root / "own")
    query.batch(again)
