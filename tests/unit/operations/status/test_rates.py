"""What arrives at a source, what is read, and when what waits is gone."""

from __future__ import annotations

from dataclasses import replace

from statecore.catalog import EpochRecord, SourceBacklog
from statecore.operations.status.rates import Drain, SourceRate, drain, recent_epochs, source_rates

FIRST = EpochRecord("j", 1, 0, 1, 2, rows=0, rows_total=0, started_ms=0, committed_ms=0, duration_ms=1)


def epoch(n: int, at_s: int, backlog: SourceBacklog, rows: int, generation: int = 1) -> EpochRecord:
    figures = {"in": rows}
    return replace(
        FIRST, epoch=n, committed_ms=at_s * 1000, backlog=(backlog,), source_rows=figures, generation=generation
    )


def records(count: int | None) -> SourceBacklog:
    return SourceBacklog("in", records=count)


def rates(epochs: list[EpochRecord]) -> list[SourceRate]:
    return source_rates(recent_epochs(epochs, epochs[-1].committed_ms))


def test_what_arrives_is_what_is_read_and_what_more_waits() -> None:
    epochs = [epoch(0, 0, records(500), 9_999), epoch(1, 10, records(800), 300), epoch(2, 20, records(700), 900)]
    assert rates(epochs) == [SourceRate("in", read=60, arriving=70)]


def test_only_the_last_minute_counts_or_three_epochs() -> None:
    often = [epoch(n, 10 * n, records(0), 100 if n > 9 else 9_999) for n in range(15)]
    (found,) = rates(often)
    assert found.read == 10
    (rare,) = rates([epoch(n, 3_600 * n, records(0), 3_600) for n in range(9)])
    assert rare.read == 1


def test_a_window_does_not_reach_back_to_another_driver() -> None:
    before = epoch(0, 0, records(0), 5, generation=1)
    after = [epoch(n, n, records(0), 7, generation=2) for n in (1, 2)]
    assert [each.read for each in rates([before, *after])] == [7]
    assert rates([before, after[0]]) == []
    assert source_rates(recent_epochs([], 0)) == []


def test_a_driver_that_has_paused_has_no_rates() -> None:
    epochs = [epoch(n, n, records(0), 7) for n in range(5)]
    assert recent_epochs(epochs, 4_000 + 60_000) == epochs
    assert recent_epochs(epochs, 4_000 + 60_001) == ()
    slow = [replace(each, duration_ms=60_000) for each in epochs]
    assert recent_epochs(slow, 4_000 + 180_000) == slow


def test_rows_of_files_that_wait_are_estimated_by_those_that_were_read() -> None:
    def files(count: int, read: int) -> SourceBacklog:
        return SourceBacklog("in", files=count, files_read=read)

    assert rates([epoch(0, 0, files(2, 10), 0), epoch(1, 10, files(6, 20), 1_000)]) == [SourceRate("in", 100, 140)]
    # Without a file that was read, only none is known in rows.
    assert rates([epoch(0, 0, files(0, 10), 0), epoch(1, 10, files(0, 10), 0)]) == [SourceRate("in", 0, 0)]
    assert rates([epoch(0, 0, files(2, 10), 0), epoch(1, 10, files(6, 10), 0)]) == [SourceRate("in", 0, None)]


def test_a_source_that_does_not_say_what_waits_has_only_what_was_read() -> None:
    epochs = [epoch(0, 0, records(None), 0), epoch(1, 10, records(None), 100)]
    assert rates(epochs) == [SourceRate("in", read=10, arriving=None)]


def test_what_waits_is_gone_after_the_time_that_the_rates_give() -> None:
    shrinks, grows, unknown = SourceRate("a", 100, 40), SourceRate("b", 20, 30), SourceRate("c", 5, None)
    assert drain([shrinks, grows], 5_000) == Drain(-50, 100_000)
    assert drain([shrinks], 0) == Drain(-60, 0)
    assert drain([grows], 5_000) == Drain(10, None)
    assert drain([shrinks, unknown], 600) == Drain(-60, 10_000)
    assert drain([shrinks], None) == Drain(-60, None)
    assert drain([unknown], 5_000) == drain([], 5_000) == Drain(None, None)
