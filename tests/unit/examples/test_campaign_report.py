"""The hourly report against sums over all events, exactly, and the line between late and too late."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache

import pytest

from examples import campaign_report
from examples.campaign_report import (
    ALLOWED_LATENESS,
    LATE,
    Arrival,
    Event,
    Figures,
    Report,
    final_figures,
    generated_week,
    run,
)
from statecore.model import parse_row
from statecore.runtime import Job
from statecore.runtime.job import Source
from statecore.testing import KeyedOperatorHarness

NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
TEN = NINE + timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)

week = cache(generated_week)


def counted(arrival: Arrival) -> bool:
    return arrival.arrives_at - arrival.event.viewed_at <= ALLOWED_LATENESS


def sums(events: Iterable[Event]) -> dict[tuple[str, datetime], tuple[int, int, Decimal]]:
    """Add up without windows, state or watermark."""
    hours: dict[tuple[str, datetime], list[Event]] = {}
    for event in events:
        hours.setdefault((event.campaign, event.viewed_at.replace(minute=0, second=0, microsecond=0)), []).append(event)
    return {
        hour: (
            sum(event.kind == "impression" for event in of_hour),
            sum(event.kind == "click" for event in of_hour),
            sum((event.spend for event in of_hour), Decimal(0)),
        )
        for hour, of_hour in hours.items()
    }


def figures(reports: Iterable[Report]) -> dict[tuple[str, datetime], tuple[int, int, Decimal]]:
    return {hour: (row.impressions, row.clicks, row.spend) for hour, row in final_figures(reports).items()}


@pytest.mark.parametrize(("seed", "parallelism", "then"), [(1, 2, 3), (2, 3, 1), (3, 1, 4), (4, 4, 4)])
def test_final_figures_are_the_sums_over_all_events_that_were_not_too_late(
    seed: int, parallelism: int, then: int
) -> None:
    arrivals = week(seed)
    reports, late = run(arrivals, parallelism, then)

    on_time = [arrival.event for arrival in arrivals if counted(arrival)]
    too_late = [arrival.event for arrival in arrivals if not counted(arrival)]
    # The last hours of the campaign that lets time go on are not over.
    real = {hour: found for hour, found in figures(reports).items() if hour[0] != "house"}
    assert real == sums(event for event in on_time if event.campaign != "house")
    assert {spend.as_tuple().exponent for _, _, spend in real.values()} == {-6}
    assert sorted(late) == sorted(too_late)
    assert len(too_late) > 20


def test_an_event_exactly_seven_days_late_counts_and_one_three_hours_later_does_not() -> None:
    first, second = (Event("shoes", TEN - MILLISECOND, "click", Decimal(spend)) for spend in (1, 2))
    arrivals = [Arrival(event.viewed_at, event) for event in hourly("house", NINE, hours=8 * 24)]
    arrivals.append(Arrival(first.viewed_at + ALLOWED_LATENESS, first))
    arrivals.append(Arrival(second.viewed_at + ALLOWED_LATENESS + timedelta(hours=3), second))
    reports, late = run(sorted(arrivals, key=lambda arrival: arrival.arrives_at), 2, 3)

    assert figures(reports)["shoes", NINE] == (0, 1, Decimal(1))
    assert late == [second]


def hourly(campaign: str, start: datetime, hours: int) -> list[Event]:
    return [Event(campaign, start + timedelta(hours=hour), "impression", Decimal(0)) for hour in range(hours)]


def ms(moment: datetime) -> int:
    return (moment - campaign_report.EPOCH) // MILLISECOND


@pytest.mark.parametrize(
    ("watermark", "counts"),
    [
        pytest.param(TEN + ALLOWED_LATENESS - 2 * MILLISECOND, True, id="the last millisecond"),
        pytest.param(TEN + ALLOWED_LATENESS - MILLISECOND, False, id="one later"),
        pytest.param(TEN + ALLOWED_LATENESS + timedelta(days=1), False, id="a day later"),
    ],
)
def test_an_hour_takes_events_until_the_watermark_is_seven_days_past_its_end(watermark: datetime, counts: bool) -> None:
    harness = KeyedOperatorHarness(campaign_report.campaign_report(), key=lambda event: (event.campaign,))
    first, second = (Event("shoes", NINE + timedelta(minutes=m), "click", Decimal("0.000001")) for m in (0, 59))
    harness.process(first, ms(first.viewed_at))
    harness.watermark(ms(TEN) - 1)
    harness.watermark(ms(watermark))
    harness.process(second, ms(second.viewed_at))

    once, both = (Report("shoes", NINE, 0, n, n * Decimal("0.000001"), n) for n in (1, 2))
    assert harness.output == ([once, both] if counts else [once])
    assert harness.side_output(LATE) == ([] if counts else [second])


def test_an_hour_is_reported_once_when_it_is_over_and_again_for_every_event_after_that() -> None:
    harness = KeyedOperatorHarness(campaign_report.campaign_report(), key=lambda event: (event.campaign,))
    for minute in (10, 20, 30):
        harness.process(Event("shoes", NINE, "impression", Decimal(1)), ms(NINE + timedelta(minutes=minute)))
    harness.watermark(ms(TEN) - 2)
    assert harness.output == []
    harness.watermark(ms(TEN))
    assert [row.revision for row in harness.output] == [3]
    for day in range(1, 4):
        harness.watermark(ms(TEN + timedelta(days=day)))
        harness.process(Event("shoes", NINE, "click", Decimal(1)), ms(NINE))
    assert [(row.revision, row.clicks) for row in harness.output] == [(3, 0), (4, 1), (5, 2), (6, 3)]


def test_revisions_of_an_hour_grow_and_never_repeat_over_a_rescale() -> None:
    reports, _ = run(week(5), 2, 3)
    revisions: dict[tuple[str, datetime], list[int]] = {}
    for row in reports:
        revisions.setdefault((row.campaign, row.hour), []).append(row.revision)
    assert all(len(set(of_hour)) == len(of_hour) for of_hour in revisions.values())
    assert any(len(of_hour) > 1 for of_hour in revisions.values())


def test_the_row_that_counts_does_not_depend_on_the_order_of_rows() -> None:
    reports, _ = run(week(6), 2, 3)
    shuffled = list(reports)
    random.Random(6).shuffle(shuffled)
    assert figures(shuffled) == figures(reports)


def test_two_accumulators_merge_into_their_sum() -> None:
    left, right = Figures(1, 2, Decimal("0.1"), 3), Figures(10, 20, Decimal("0.2"), 30)
    assert campaign_report.AddUp().merge(left, right) == (11, 22, Decimal("0.3"), 33)


def test_the_corrections_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    campaign_report.main(seed=3)
    printed = capsys.readouterr().out
    assert "corrections" in printed
    assert " -> " in printed


def test_build_wires_one_source_with_event_time_one_operator_and_two_sinks() -> None:
    job = Job({"input": "in", "output": "out"})
    campaign_report.build(job)
    (operator,) = job.validated().operators
    assert (operator.uid, operator.first.key_columns) == ("campaign_report", ("campaign",))
    (source,) = operator.origins
    assert isinstance(source, Source)
    assert (source.event_time, source.max_lateness) == ("viewed_at", timedelta(minutes=10))
    assert [(binding.name, binding.tag) for binding in operator.sinks] == [("reports", ""), ("late", "late")]


def test_rows_have_the_columns_that_the_job_declares() -> None:
    assert [field.name for field in parse_row(campaign_report.REPORTS)] == list(Report._fields)
    assert [field.name for field in LATE.fields] == list(Event._fields)
