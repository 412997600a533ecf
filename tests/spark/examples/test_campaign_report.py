"""The hourly report on Spark: late events correct their hour, a rescale in between changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from examples import campaign_report
from examples.campaign_report import EPOCH, EVENTS, HOUR, Event, Report, final_figures, generated_week
from statecore.model import arrow_schema, parse_row
from tests.support.bench import Bench

EPOCHS = 8
REPORT_COLUMNS = ("campaign", "hour", "impressions", "clicks", "spend", "revision")


def test_every_event_is_in_the_report_of_its_hour_or_in_the_late_output(spark: Any, bench: Bench) -> None:
    bench.register(artifact=Path(campaign_report.__file__))
    events = [arrival.event for arrival in generated_week(seed=4, events=1_200)]
    step = len(events) // EPOCHS
    cuts = [events[step * i : step * (i + 1) if i < EPOCHS - 1 else None] for i in range(EPOCHS)]
    # An epoch moves the watermark for the epoch after it: one lets all hours end, and one more reports them.
    end = max(event.viewed_at for event in events)
    for days in (30, 60):
        cuts.append([Event("house", end + timedelta(days=days), "impression", Decimal(0))])
    for parallelism, share in ((2, cuts[:3]), (3, cuts[3:6]), (1, cuts[6:])):
        with bench.running(parallelism):
            for cut in share:
                feed(bench, cut)
                # One file is one epoch.
                bench.wait_done()
    reports = [Report(*row) for row in published(bench, "reports", REPORT_COLUMNS)]
    late = Counter(Event(*row) for row in published(bench, "late", Event._fields))
    newest = EPOCH
    for cut in cuts:
        for event in cut:
            late_by = newest - event.viewed_at
            assert late_by > timedelta(days=7) or not late[event], "an event within seven days was left out"
            assert late_by < timedelta(days=7, hours=2) or late[event], "an event eight days late was paid for"
        newest = max([newest, *(event.viewed_at for event in cut)])
    expected = figures(event for cut in cuts[:-2] for event in cut if not late[event])
    final = final_figures(reports).items()
    found = {hour: (row.impressions, row.clicks, row.spend) for hour, row in final if row.hour <= end}
    assert found == expected
    assert late
    assert len(reports) > len(found), "no hour was corrected"


def feed(bench: Bench, events: list[Event]) -> None:
    columns = list(zip(*events, strict=True))
    schema = arrow_schema(parse_row(EVENTS))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    bench.feed_table(pa.Table.from_arrays(arrays, schema=schema))
    bench.fed += [(event.campaign, 0) for event in events]


def published(bench: Bench, sink: str, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return list(bench.published(sink, columns).elements())


def figures(events: Any) -> dict[Any, tuple[int, int, Decimal]]:
    sums: dict[Any, tuple[int, int, Decimal]] = defaultdict(lambda: (0, 0, Decimal(0)))
    for campaign, viewed_at, kind, spend in events:
        hour = campaign, EPOCH + (viewed_at - EPOCH) // HOUR * HOUR
        impressions, clicks, total = sums[hour]
        sums[hour] = (impressions + (kind == "impression"), clicks + (kind == "click"), total + spend)
    return dict(sums)
