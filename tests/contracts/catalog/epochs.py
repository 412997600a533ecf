"""Figures of epochs and what waits in the sources: written, found again, thinned out."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from statecore.catalog import (
    BacklogRecord,
    Catalog,
    DataflowNode,
    DataflowRecord,
    EpochRecord,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    KeyGroupsRecord,
    OperatorFigures,
    SourceBacklog,
    SourceTime,
    SourceTopics,
    SubtasksRecord,
    TopicsRecord,
    epochs,
    over_all,
)
from statecore.errors import UnknownJobError
from statecore.model.metrics import MetricFigure, MetricKind
from statecore.topics.lag import PartitionLag

FILES = SourceBacklog("files", bytes=100, files=2, event_time_lag_ms=5_000)
RULES = SourceBacklog("rules")
EPOCH = EpochRecord(
    job="flights",
    lineage=1,
    epoch=0,
    generation=1,
    parallelism=2,
    rows=10,
    rows_total=10,
    started_ms=100,
    committed_ms=200,
    duration_ms=120,
    phases={"subtasks": 80.5, "publish": 20},
    cache_hits=1,
    subtasks=2,
    backlog=(FILES, RULES),
    late_rows={"flights": 3},
    publish_ms={"seen": 19.5},
    watermark_ms=150,
    source_times={"in": SourceTime(150, moved_ms=200), "rules": SourceTime(None, idle=True)},
    metrics={
        "sums": (
            MetricFigure("rejected", MetricKind.COUNTER, total=3),
            MetricFigure("cents", MetricKind.HISTOGRAM, 3, 1.5, -1, 2, ((None, 1), (-1, 1), (1, 1))),
        )
    },
    source_rows={"in": 100, "rules": 0},
    sink_rows={"seen": 7},
)
SUMS = OperatorFigures(
    "sums", (6, 4), (1, 2), (30, 20), (3, 3), (64, 0), (64, 64), (5, 5),
    heavy_keys=(HeavyKeyFigure("a", 0.5, 3),), heavy_key_groups=(HeavyKeyGroupFigure(3, 0.75),),
)  # fmt: skip


def epoch(number: int, committed_ms: int, **changes: Any) -> EpochRecord:
    return dataclasses.replace(EPOCH, epoch=number, committed_ms=committed_ms, **changes)


def key_groups(number: int, committed_ms: int, uid: str = "sums") -> KeyGroupsRecord:
    return KeyGroupsRecord("flights", 1, number, uid, committed_ms, rows=(3, number), bytes=(30, 10 * number))


def test_epochs_come_in_the_order_of_their_commits(catalog: Catalog, job: str) -> None:
    epochs = [epoch(n, 200 + n, lineage=lineage) for lineage, n in [(1, 0), (1, 1), (2, 2)]]
    for each in reversed(epochs):
        catalog.epochs.record(each)
    assert catalog.epochs.of(job) == epochs
    assert catalog.epochs.of(job, limit=2) == epochs[1:]
    assert catalog.epochs.of(job, since_ms=201) == epochs[1:]
    assert catalog.epochs.of(job, since_ms=200, until_ms=202) == epochs[:2]


def test_an_epoch_is_recorded_once_with_all_that_belongs_to_it(catalog: Catalog, job: str) -> None:
    for again in (EPOCH, dataclasses.replace(EPOCH, generation=2, rows=0)):
        catalog.epochs.record(again, operators=[SUMS], key_groups=[key_groups(0, 200)])
    assert catalog.epochs.of(job) == [EPOCH]
    assert catalog.epochs.subtasks(job, limit=9) == [SubtasksRecord(job, 1, 0, 200, (SUMS,))]
    assert catalog.epochs.subtasks_of(job, 1, 0) == SubtasksRecord(job, 1, 0, 200, (SUMS,))
    assert catalog.epochs.subtasks_of(job, 1, 1) is None
    assert catalog.epochs.key_groups(job) == [key_groups(0, 200)]


def test_the_newest_sample_of_key_groups_counts_whichever_epochs_came_after_it(catalog: Catalog, job: str) -> None:
    assert catalog.epochs.key_groups(job) == []
    for n in (0, 4):
        sample = [key_groups(n, 200 + n, uid) for uid in ("sums", "counts")]
        catalog.epochs.record(epoch(n, 200 + n), key_groups=sample)
    catalog.epochs.record(epoch(5, 205), operators=[SUMS])
    assert catalog.epochs.key_groups(job) == [key_groups(4, 204, "counts"), key_groups(4, 204)]
    assert [each.epoch for each in catalog.epochs.subtasks(job)] == [5]


def test_of_a_jobs_figures_the_newest_are_kept_and_another_jobs_are_left_alone(
    catalog: Catalog, job: str, register, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(catalog, "other")
    monkeypatch.setattr(epochs, "KEPT_EPOCHS", 5)
    monkeypatch.setattr(epochs, "KEPT_SUBTASKS", 3)
    monkeypatch.setattr(epochs, "KEPT_KEY_GROUPS", 2)
    catalog.epochs.record(epoch(0, 1, job="other"), operators=[SUMS])
    for n in range(1, 201):
        catalog.epochs.record(epoch(n, 200 + n), operators=[SUMS], key_groups=[key_groups(n, 200 + n)])
    assert [each.epoch for each in catalog.epochs.of(job)] == [196, 197, 198, 199, 200]
    assert [each.epoch for each in catalog.epochs.subtasks(job, limit=99)] == [198, 199, 200]
    with catalog._database.read() as connection:
        assert connection.exec_driver_sql("SELECT epoch FROM key_groups ORDER BY epoch").scalars().all() == [199, 200]
    assert len(catalog.epochs.of("other")) == len(catalog.epochs.subtasks("other")) == 1


def test_epochs_that_are_only_rolled_up_are_known_to_be_missing(
    catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert catalog.epochs.has_all_since(job, 0)
    minute_ms = 60_000
    monkeypatch.setattr(epochs, "KEPT_EPOCHS", 10)
    for n in range(1, 101):
        catalog.epochs.record(epoch(n, n * minute_ms))
        if n == 50:
            assert catalog.epochs.has_all_since(job, 0)
    assert next(each.epoch for each in catalog.epochs.of(job)) == 91
    assert [catalog.epochs.has_all_since(job, at * minute_ms) for at in (0, 89, 91, 95)] == [False, False, True, True]


def test_only_the_newest_offsets_in_topics_are_kept_and_not_those_of_an_earlier_driver(
    catalog: Catalog, job: str, clock
) -> None:
    assert catalog.epochs.topics(job) is None
    older, newer = (
        SourceTopics("in", "a:9092,b:9092", True, (PartitionLag("orders", 0, at, 2, 12, 1_795_264_377_003),))
        for at in (5, 8)
    )
    rules = SourceTopics("rules", "c:9092", False, (PartitionLag("rules", 0, 3, 0, 3),))
    catalog.epochs.record_topics(job, 1, [older])
    clock.advance(5_000)
    catalog.epochs.record_topics(job, 2, [newer, rules])
    catalog.epochs.record_topics(job, 1, [older])
    assert catalog.epochs.topics(job) == TopicsRecord(job, 2, clock.now_ms(), (newer, rules))


def test_only_the_newest_drivers_dataflow_is_kept(catalog: Catalog, job: str) -> None:
    assert catalog.epochs.dataflow(job) is None
    nodes = (DataflowNode("source", "in", "kafka"), DataflowNode("operator", "sums", "Sum", (("source", "in"),)))
    newer = DataflowRecord(job, 2, nodes, "http://driver:4040")
    catalog.epochs.record_dataflow(DataflowRecord(job, 1, nodes[:1]))
    catalog.epochs.record_dataflow(newer)
    catalog.epochs.record_dataflow(DataflowRecord(job, 1, nodes[:1]))
    assert catalog.epochs.dataflow(job) == newer


def test_of_each_time_step_the_last_epoch_and_the_last_backlog_are_found(
    catalog: Catalog, job: str, register, clock
) -> None:
    register(catalog, "other")
    measured_ms = []
    for number in range(1, 7):
        catalog.epochs.record(epoch(number, 400 * number))
        catalog.epochs.record(epoch(number, 400 * number + 1, job="other"))
        catalog.epochs.record_backlog(job, 1, [FILES])
        measured_ms.append(clock.now_ms())
        clock.advance(400)
    # At 400, 800, 1,200, 1,600, 2,000 and 2,400 ms.
    assert [each.epoch for each in catalog.epochs.of(job, step_ms=1_000)] == [2, 4, 6]
    assert [each.epoch for each in catalog.epochs.of(job, since_ms=800, until_ms=2_000, step_ms=1_000)] == [2, 4]
    last = {at_ms // 1_000: at_ms for at_ms in measured_ms}
    assert [each.measured_ms for each in catalog.epochs.backlogs(job, step_ms=1_000)] == list(last.values())


def test_a_measured_backlog_is_kept_for_a_day(catalog: Catalog, job: str, clock) -> None:
    first_ms = clock.now_ms()
    catalog.epochs.record_backlog(job, 1, [FILES, RULES])
    # Twice in one millisecond: the later one counts.
    catalog.epochs.record_backlog(job, 1, [RULES])
    clock.advance(epochs.KEPT_BACKLOGS_MS)
    catalog.epochs.record_backlog(job, 2, [FILES])
    assert catalog.epochs.backlogs(job) == [
        BacklogRecord(job, first_ms, 1, (RULES,)),
        BacklogRecord(job, clock.now_ms(), 2, (FILES,), waiting_since_ms=clock.now_ms()),
    ]
    assert catalog.epochs.backlogs(job, until_ms=clock.now_ms()) == catalog.epochs.backlogs(job)[:1]
    assert catalog.epochs.backlogs(job, since_ms=first_ms + 1) == catalog.epochs.backlogs(job)[1:]
    assert catalog.epochs.backlogs(job, until_ms=clock.now_ms(), step_ms=1_000) == catalog.epochs.backlogs(job)[:1]
    clock.advance(1)
    catalog.epochs.record_backlog(job, 2, [FILES])
    assert [each.generation for each in catalog.epochs.backlogs(job)] == [2, 2]
    with pytest.raises(UnknownJobError):
        catalog.epochs.record_backlog("nobody", 1, [])


def test_a_measurement_says_since_when_something_waits(catalog: Catalog, job: str, clock) -> None:
    def measured(*sources: SourceBacklog) -> int | None:
        clock.advance(5_000)
        catalog.epochs.record_backlog(job, 1, sources)
        return catalog.epochs.backlogs(job)[-1].waiting_since_ms

    none, unknown = SourceBacklog("in", records=0), SourceBacklog("in")
    first_ms = clock.now_ms() + 5_000
    assert measured(FILES) == measured(FILES, RULES) == measured(FILES) == first_ms
    assert measured(none) is None
    assert measured(FILES) == clock.now_ms()
    assert measured(unknown) is None


def test_a_driver_has_settled_once_it_commits_or_nothing_waits(catalog: Catalog, job: str, clock) -> None:
    def settled(number: int) -> int | None:
        return next(each.settled_ms for each in catalog.generations.of(job) if each.generation == number)

    none, unknown, some = (SourceBacklog("in", records=count) for count in (0, None, 3))
    catalog.generations.claim(job, log_path="/l")
    catalog.epochs.record_backlog(job, 1, [none])
    # It has not read yet what it has to publish of its last epoch.
    assert settled(1) is None
    catalog.generations.heartbeat(job, 1)
    for sources in ([], [unknown], [none, unknown], [some], [none, some]):
        clock.advance(5_000)
        catalog.epochs.record_backlog(job, 1, sources)
        assert settled(1) is None, sources
    clock.advance(5_000)
    catalog.epochs.record_backlog(job, 1, [none, none])
    first_ms = clock.now_ms()
    clock.advance(5_000)
    catalog.epochs.record_backlog(job, 1, [none])
    assert settled(1) == first_ms
    catalog.generations.end(job, 1, state="failed")
    catalog.generations.claim(job, log_path="/l")
    # A commit counts at once, also before the first heartbeat.
    catalog.epochs.record(epoch(1, clock.now_ms(), job=job, generation=2))
    assert (settled(1), settled(2)) == (first_ms, clock.now_ms())


def test_a_sum_counts_the_sources_that_can_tell_and_is_unknown_when_none_can() -> None:
    late = SourceBacklog("late", records=7, files=1, event_time_lag_ms=9_000)
    assert over_all([FILES, RULES, late]) == SourceBacklog("", 7, 100, 3, 9_000)
    assert over_all([RULES]) == over_all([]) == SourceBacklog("")
    assert over_all([SourceBacklog("done", 0, 0, 0, 0)]) == SourceBacklog("", 0, 0, 0, 0)


def test_the_newest_backlog_is_the_later_one_of_the_epochs_and_the_one_between(
    catalog: Catalog, job: str, clock
) -> None:
    assert catalog.overviews.figures(job).backlog is None
    catalog.epochs.record_backlog(job, 1, [RULES])
    between = BacklogRecord(job, clock.now_ms(), 1, (RULES,))
    assert catalog.overviews.figures(job).backlog == between
    after = epoch(3, clock.now_ms() + 1)
    catalog.epochs.record(after)
    found = catalog.overviews.figures(job)
    assert (found.epoch, found.backlog) == (after, BacklogRecord(job, after.committed_ms, 1, (FILES, RULES)))
    # An epoch that ended before anything was measured tells nothing.
    catalog.epochs.record(epoch(4, clock.now_ms() + 2, backlog=()))
    assert catalog.overviews.figures(job).backlog == between


def test_the_rate_is_that_of_the_last_minute_and_falls_to_nothing_when_nothing_is_committed(
    catalog: Catalog, job: str, clock
) -> None:
    assert catalog.overviews.figures(job).rows_per_second is None
    clock.advance(1_000_000)
    for n in range(12):
        began_ms = clock.now_ms()
        clock.advance(10_000)
        catalog.epochs.record(epoch(n, clock.now_ms(), started_ms=began_ms, duration_ms=10_000, rows=500))
    assert catalog.overviews.figures(job).rows_per_second == 50
    clock.advance(30_000)
    assert catalog.overviews.figures(job).rows_per_second == 25
    clock.advance(30_000)
    assert catalog.overviews.figures(job).rows_per_second == 0


def test_the_rate_of_long_epochs_is_taken_over_several_of_them(catalog: Catalog, job: str, clock) -> None:
    clock.advance(10_000_000)
    for n in range(3):
        began_ms = clock.now_ms()
        clock.advance(300_000)
        catalog.epochs.record(epoch(n, clock.now_ms(), started_ms=began_ms, duration_ms=300_000, rows=30_000))
    assert catalog.overviews.figures(job).rows_per_second == 100
    clock.advance(100_000)
    assert 60 < (catalog.overviews.figures(job).rows_per_second or 0) < 100


def test_a_series_has_a_point_for_every_step_with_the_last_that_was_measured_in_it(
    catalog: Catalog, job: str, clock
) -> None:
    since = clock.now_ms()
    catalog.epochs.record(epoch(0, since - 1))
    catalog.epochs.record(epoch(1, since, started_ms=since, duration_ms=100, phases={"subtasks": 19.5, "publish": 20}))
    catalog.epochs.record(epoch(2, since + 999, started_ms=since + 699, duration_ms=300, parallelism=3, rows=20))
    clock.advance(500)
    catalog.epochs.record_backlog(job, 1, [SourceBacklog("files", files=9)])
    clock.advance(1_600)
    catalog.epochs.record_backlog(job, 1, [SourceBacklog("files", files=7)])
    catalog.epochs.record(epoch(3, since + 2_500))
    first, second, third = catalog.epochs.series(job, since_ms=since, until_ms=since + 2_400, step_ms=1_000)
    assert (first.at_ms, first.rows_per_second, first.epoch_ms, first.parallelism) == (since, 30.0, 200.0, 3)
    assert (first.phases, second.phases) == ({"subtasks": 50.0, "publish": 20.0}, {})
    assert first.backlog == SourceBacklog("", bytes=100, files=2, event_time_lag_ms=5_000)
    assert (second.rows_per_second, second.epoch_ms, second.parallelism, second.backlog) == (0.0, None, None, None)
    assert (third.at_ms, third.backlog) == (since + 2_000, SourceBacklog("", files=7))
    assert catalog.epochs.series(job, since_ms=since, until_ms=since, step_ms=1) == []
    with pytest.raises(ValueError, match="found a step of 0 ms"):
        catalog.epochs.series(job, since_ms=0, until_ms=1, step_ms=0)


def test_steps_of_whole_minutes_are_read_from_roll_ups_and_unknown_is_not_zero(
    catalog: Catalog, job: str, clock
) -> None:
    minute_ms = 60_000
    clock.advance(-clock.now_ms() % (15 * minute_ms))
    since = clock.now_ms()
    work = {"run": 80.0, "publish": 0.0}
    for n in range(4):
        clock.advance(20_000)
        at = clock.now_ms()
        catalog.epochs.record(epoch(n, at - 1, started_ms=at - 20_000, duration_ms=20_000, rows=600, phases=work))
    catalog.epochs.record_backlog(job, 1, [SourceBacklog("files", files=9)])
    # Nothing arrives for two minutes, then no driver runs for two, then one takes more than a minute for its epoch.
    for files in (5, 0):
        clock.advance(minute_ms)
        catalog.epochs.record_backlog(job, 1, [SourceBacklog("files", files=files)])
    clock.advance(since + 7 * minute_ms - clock.now_ms())
    last = epoch(4, clock.now_ms() - 1, started_ms=since + 5 * minute_ms, duration_ms=2 * minute_ms)
    catalog.epochs.record(dataclasses.replace(last, rows=12_000, parallelism=3))
    until = since + 7 * minute_ms
    points = catalog.epochs.series(job, since_ms=since, until_ms=until, step_ms=minute_ms)
    assert [each.at_ms for each in points] == [since + n * minute_ms for n in range(7)]
    rates = [None if each.rows_per_second is None else round(each.rows_per_second) for each in points]
    assert rates == [30, 10, 0, 0, None, 100, 100]
    assert [each.parallelism for each in points] == [2, 2, None, None, None, None, 3]
    assert (points[0].epoch_ms, points[0].phases) == (20_000, work)
    assert [None if each.backlog is None else each.backlog.files for each in points][:5] == [2, 9, 5, 0, None]
    (quarter,) = catalog.epochs.series(job, since_ms=since, until_ms=since + 15 * minute_ms, step_ms=15 * minute_ms)
    assert quarter.rows_per_second == pytest.approx((4 * 600 + 12_000) / 900, rel=0.01)
    # The same at a finer step, from the epochs themselves.
    raw = catalog.epochs.series(job, since_ms=since, until_ms=until, step_ms=20_000)
    assert [each.rows_per_second is None for each in raw].count(True) == 0
    clock.advance(10 * minute_ms)
    late = catalog.epochs.series(job, since_ms=until, until_ms=until + 5 * minute_ms, step_ms=20_000)
    assert [each.rows_per_second is None for each in late] == [False] * 3 + [True] * 12


@pytest.mark.parametrize("step_ms", [20_000, 60_000])
def test_what_the_supervisor_measures_while_no_driver_runs_is_no_rate_of_zero(
    catalog: Catalog, job: str, clock, step_ms: int
) -> None:
    clock.advance(-clock.now_ms() % 900_000)
    since = clock.now_ms()
    for by_driver in (True, False):
        catalog.epochs.record_backlog(job, 1, [SourceBacklog("in", records=7)], by_driver=by_driver)
        clock.advance(300_000)
    runs, stopped = (
        catalog.epochs.series(job, since_ms=at, until_ms=at + step_ms, step_ms=step_ms)[0]
        for at in (since, since + 300_000)
    )
    assert (runs.rows_per_second, stopped.rows_per_second) == (0, None)
    assert stopped.backlog == SourceBacklog("", records=7)


def test_an_epoch_whose_clock_jumped_is_not_spread_over_years(catalog: Catalog, job: str, clock) -> None:
    clock.advance(10**12 - clock.now_ms())
    catalog.epochs.record(epoch(1, clock.now_ms(), started_ms=0, duration_ms=5_000, rows=600))
    day_ms = 24 * 3_600_000
    points = catalog.epochs.series(job, since_ms=10**12 - day_ms, until_ms=10**12 + 60_000, step_ms=60_000)
    assert sum(each.rows_per_second is not None for each in points) <= 2


def test_a_chart_of_weeks_reaches_back_behind_the_epochs_that_are_kept(
    catalog: Catalog, job: str, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "KEPT_EPOCHS", 10)
    day_ms, quarter_ms = 24 * 3_600_000, 900_000
    clock.advance(-clock.now_ms() % quarter_ms)
    since = clock.now_ms()
    for n in range(1, 201):
        clock.advance(day_ms // 2)
        catalog.epochs.record(epoch(n, clock.now_ms() + 1_000, started_ms=clock.now_ms(), rows=900))
    assert len(catalog.epochs.of(job)) == 10
    points = catalog.epochs.series(job, since_ms=since, until_ms=since + 101 * day_ms, step_ms=quarter_ms)
    known = [each.at_ms - since for each in points if each.rows_per_second is not None]
    # With each quarter of an hour, what is older than 90 days goes.
    assert known == [n * day_ms // 2 for n in range(20, 201)]
    minutes = catalog.epochs.series(job, since_ms=since, until_ms=since + 101 * day_ms, step_ms=60_000)
    assert sum(each.rows_per_second is not None for each in minutes) == 5


def test_the_rows_of_an_epoch_are_spread_over_the_steps_that_it_took(catalog: Catalog, job: str, clock) -> None:
    since = clock.now_ms()
    catalog.epochs.record(epoch(1, since + 500, started_ms=since - 500, rows=100))
    catalog.epochs.record(epoch(2, since + 3_000, started_ms=since + 500, rows=1_000))
    points = catalog.epochs.series(job, since_ms=since, until_ms=since + 4_000, step_ms=1_000)
    assert [point.rows_per_second for point in points] == [50 + 200, 400, 400, 0]
    assert [point.parallelism for point in points] == [2, None, None, 2]
