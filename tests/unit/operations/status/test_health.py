"""When a job that was changed counts as healthy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from statecore.catalog import EpochRecord, SourceBacklog
from statecore.operations.status.health import Evidence, assess


def epochs(*durations_ms: int, rows: int = 1_000, backlog: Sequence[int] = ()) -> list[EpochRecord]:
    """Epochs of 1000 rows each, so 1000 ms is 1000 rows/s."""
    waits: list[tuple[SourceBacklog, ...]]
    waits = [(SourceBacklog("s", records=records),) for records in backlog] or [()] * len(durations_ms)
    return [
        EpochRecord("j", 1, number, 2, 4, rows, rows, 0, number, duration_ms, backlog=waiting)
        for number, (duration_ms, waiting) in enumerate(zip(durations_ms, waits, strict=True))
    ]


def health(
    new: Sequence[EpochRecord] = (),
    *,
    waiting: Sequence[SourceBacklog] | None,
    heartbeats: int = 5,
    old: Sequence[EpochRecord] = (),
    share: float = 1.0,
) -> bool:
    return assess(Evidence(heartbeats, new, old, waiting, share)).is_healthy


NOTHING = (SourceBacklog("s", records=0),)
SOMETHING = (SourceBacklog("s", records=500),)
UNKNOWN = (SourceBacklog("s"),)


@pytest.mark.parametrize("waiting", [NOTHING, UNKNOWN])
def test_heartbeats_will_do_while_nothing_waits_or_nobody_knows(waiting: Sequence[SourceBacklog]) -> None:
    assert not health(waiting=waiting, heartbeats=1)
    assert health(waiting=waiting, heartbeats=2)


def test_heartbeats_are_not_enough_while_something_waits_or_before_it_was_measured() -> None:
    assert not health(waiting=SOMETHING)
    assert not health(waiting=None)


def test_one_source_that_waits_is_enough_to_ask_for_epochs() -> None:
    assert not health(waiting=[*NOTHING, SourceBacklog("t", files=3), *UNKNOWN])


def test_the_rate_is_that_of_before_within_the_tolerance_and_without_the_first_epoch() -> None:
    old = epochs(1_000, 1_000, 1_000)
    assert health(epochs(9_000, 1_400, 1_400), waiting=SOMETHING, old=old)
    assert not health(epochs(9_000, 1_500, 1_500), waiting=SOMETHING, old=old)
    assert not health(epochs(500, 500), waiting=SOMETHING, old=old)


def test_after_a_scale_in_the_share_of_the_old_rate_is_enough() -> None:
    slow = epochs(9_000, 2_800, 2_800)
    assert not health(slow, waiting=SOMETHING, old=epochs(1_000))
    assert health(slow, waiting=SOMETHING, old=epochs(1_000), share=0.5)


def test_a_slower_job_whose_backlog_shrinks_keeps_up() -> None:
    old = epochs(100, 100, 100)
    assert health(epochs(900, 900, 900, backlog=(700, 600, 550)), waiting=SOMETHING, old=old)
    assert not health(epochs(900, 900, 900, backlog=(400, 450, 480)), waiting=SOMETHING, old=old)


def test_without_an_old_rate_any_epochs_will_do() -> None:
    assert health(epochs(900, 900, 900), waiting=SOMETHING, old=epochs(5, rows=0))
