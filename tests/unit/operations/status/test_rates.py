"""What arrives at a source, what is read, and when what waits is gone."""

from __future__ import annotations

from dataclasses import replace

from statecore.catalog import EpochRecord, SourceBacklog
from statecore.operations.status.rates import SourceRate, drained_in_ms, source_rates

FIRST = EpochRecord("j", 1, 0, 1, 2, rows=0, rows_total=0, started_ms=0, committed_ms=0, duration_ms=1)


def epoch(n: int, at_s: int, backlog: SourceBacklog, rows: int, generation: int = 1) -> EpochRecord:
    figures = {"in": rows}
    return replace(
        FIRST, epoch=n, committed_ms=at_s * 1000, backlog=(backlog,), source_rows=figures, generation=generation
    )


def records(count: int | None) -> SourceBacklog:
    return SourceBacklog("in", records=count)


def test_what_arrives_is_what_is_read_and_what_more_waits() -> None:
    epochs = [epoch(0, 0, records(500), 9_999), epoch(1, 10, records(800), 300), epoch(2, 20, records(700), 900)]
    assert source_rates(epochs) == [SourceRate("in", read=60, arriving=70, waiting=700)]


def test_only_the_last_minute_counts_or_four_epochs() -> None:
    often = [epoch(n, 10 * n, records(0), 100 if n > 9 else 9_999) for n in range(15)]
    (found,) = source_rates(often)
    assert found.read == 10
    (rare,) = source_rates([epoch(n, 3_600 * n, records(0), 3_600) for n in range(9)])
    assert rare.read == 1


def test_a_window_does_not_reach_back_to_another_driver() -> None:
    before = epoch(0, 0, records(0), 5, generation=1)
    after = [epoch(n, n, records(0), 7, generation=2) for n in (1, 2)]
    assert [each.read for each in source_rates([before, *after])] == [7]
    assert source_rates([before, after[0]]) == []
    assert source_rates([]) == []


def test_rows_of_files_that_wait_are_estimated_by_those_that_were_read() -> None:
    def files(count: int, read: int) -> SourceBacklog:
        return SourceBacklog("in", files=count, files_read=read)

    epochs = [epoch(0, 0, files(2, 10), 0), epoch(1, 10, files(6, 20), 1_000)]
    assert source_rates(epochs) == [SourceRate("in", read=100, arriving=140, waiting=600)]
    # Without a file that was read, only none is known in rows.
    still = [epoch(0, 0, files(0, 10), 0), epoch(1, 10, files(0, 10), 0)]
    assert source_rates(still) == [SourceRate("in", read=0, arriving=0, waiting=0)]
    stuck = [epoch(0, 0, files(2, 10), 0), epoch(1, 10, files(6, 10), 0)]
    assert source_rates(stuck) == [SourceRate("in", read=0, arriving=None, waiting=None)]


def test_a_source_that_does_not_say_what_waits_has_only_what_was_read() -> None:
    epochs = [epoch(0, 0, records(None), 0), epoch(1, 10, records(None), 100)]
    assert source_rates(epochs) == [SourceRate("in", read=10, arriving=None, waiting=None)]


def test_what_waits_is_gone_after_the_time_that_the_rates_give() -> None:
    one, other = SourceRate("a", 100, 40, 3_000), SourceRate("b", 20, 30, 2_000)
    assert drained_in_ms([one, other]) == 100_000
    assert drained_in_ms([replace_rate(one, waiting=0.0)]) == 0
    assert drained_in_ms([other]) is None
    assert drained_in_ms([one, SourceRate("c", 5, None, None)]) == 50_000
    assert drained_in_ms([SourceRate("c", 5, None, None)]) is None
    assert drained_in_ms([]) is None


def replace_rate(rate: SourceRate, *, waiting: float) -> SourceRate:
    return SourceRate(rate.name, rate.read, rate.arriving, waiting)
