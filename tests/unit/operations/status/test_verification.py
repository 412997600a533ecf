"""How long a job is given to show that it keeps up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from statecore.catalog import Catalog, EpochRecord, SourceBacklog
from statecore.operations.status.verification import failed_drivers, patience_ms
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.shell import register


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        register(opened, CheckpointStore.at(str(tmp_path / "store")))
        yield opened


MINUTE = 60_000


@pytest.mark.parametrize(
    ("commits_ms", "rows", "expected_ms"),
    [
        ([], 10, 0),
        ([MINUTE], 10, 0),
        ([1_000, 2_000, 3_000], 10, 8_000),
        # An outage in between does not count.
        ([0, 2 * MINUTE, 4 * MINUTE, 600 * MINUTE, 602 * MINUTE], 10, 16 * MINUTE),
        ([0, 30 * MINUTE, 60 * MINUTE], 10, 60 * MINUTE),
        # Ticks of a job that has nothing to read say nothing of its epochs.
        ([0, 30 * MINUTE, 60 * MINUTE], 0, 0),
    ],
)
def test_long_epochs_are_waited_for_but_not_for_ever(
    catalog: Catalog, commits_ms: Sequence[int], rows: int, expected_ms: int
) -> None:
    for number, at_ms in enumerate(commits_ms):
        catalog.epochs.record(EpochRecord("orders", 1, number, 1, 2, rows, rows, at_ms, at_ms, 100))
    assert patience_ms(catalog, "orders") == expected_ms


@pytest.mark.parametrize(
    ("waiting", "duration_ms", "rows", "expected_ms"),
    [
        # Rows come at a hundred a second.
        (SourceBacklog("in", records=30_000), 1_000, 100, 10 * MINUTE),
        (SourceBacklog("in", records=10_000_000), 1_000, 100, 60 * MINUTE),
        # A file had fifty.
        (SourceBacklog("in", files=600), 1_000, 100, 10 * MINUTE),
        # Less than eight epochs take.
        (SourceBacklog("in", records=100), 1_000, 100, 16_000),
        (SourceBacklog("in", records=0), 1_000, 100, 16_000),
        (SourceBacklog("in"), 1_000, 100, 16_000),
        # Nobody knows how fast it is.
        (SourceBacklog("in", records=30_000), 0, 100, 16_000),
        (SourceBacklog("in", records=30_000), 1_000, 0, 0),
    ],
)
def test_a_backlog_that_may_come_in_one_epoch_is_waited_for_but_not_for_ever(
    catalog: Catalog, waiting: SourceBacklog, duration_ms: int, rows: int, expected_ms: int
) -> None:
    for number in range(3):
        at_ms, read = number * 2_000, (SourceBacklog("in", files_read=2 * number),)
        catalog.epochs.record(
            EpochRecord("orders", 1, number, 1, 2, rows, rows, at_ms, at_ms, duration_ms, backlog=read)
        )
    catalog.epochs.record_backlog("orders", 1, [waiting])
    assert patience_ms(catalog, "orders") == expected_ms


def test_drivers_that_failed_before_the_job_was_stopped_are_no_restart_loop_of_the_new_parallelism(
    catalog: Catalog,
) -> None:
    catalog.leases.acquire("orders", "run", MINUTE)
    for state in ("failed", "failed", "stopped", "failed"):
        claimed = catalog.generations.claim("orders", log_path="/l")
        catalog.generations.end("orders", claimed.generation, state=state)
    catalog.generations.claim("orders", log_path="/l")
    assert [each.generation for each in failed_drivers(catalog, "orders")] == [4]
