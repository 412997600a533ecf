"""Job file: impressions, clicks and spend per campaign and hour, from events that arrive up to seven days late.

    python -m examples.campaign_report [seed]

runs a generated week through the harness, with a rescale in the middle, and prints the effect of the corrections.

An hour is reported when the watermark passes its end, and again for every later event, for seven days. Each row is the
whole report of its hour, not a difference, so only the newest row of an hour counts. ``revision`` identifies it: the
number of events behind the row, which grows with every row of the hour. ``final_figures`` selects these rows; in SQL,
over the published table ::

    SELECT campaign, hour, max_by(struct(impressions, clicks, spend), revision).* FROM reports GROUP BY campaign, hour

An hour is final when the watermark is seven days past its end. Later events change nothing that was already paid for;
they go to the side output ``late``, for inspection.

Settings of the job: ``input`` and ``output`` are directories.

For Kafka, ``servers`` are its brokers. ``from`` is a topic to read in place of ``input``: JSON objects with the fields
of ``EVENTS``; ``max_rows_per_epoch`` limits an epoch. ``to`` begins the names of the topics to write in place of
``output``: ``<to>-reports`` and ``<to>-late``, with the campaign as their records' key.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    OutputTag,
    ProcessWindowFunction,
    TumblingEventTimeWindows,
    WindowFunction,
    key_group_for,
    subtask_for_key_group,
)
from statecore.runtime import Job, ParquetSink, Sink
from statecore.testing import HarnessSnapshot, KeyedOperatorHarness
from statecore.windows import WindowContext

EVENTS = "campaign string, viewed_at timestamp, kind string, spend decimal(12,6)"
REPORTS = "campaign string, hour timestamp, impressions bigint, clicks bigint, spend decimal(20,6), revision bigint"
LATE = OutputTag("late", EVENTS)

HOUR = timedelta(hours=1)
ALLOWED_LATENESS = timedelta(days=7)
MAX_DISORDER = timedelta(minutes=10)
"""How far the watermark stays behind the newest event."""

MAX_PARALLELISM = 128
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Event(NamedTuple):
    """A record: an impression or a click, and its price for the advertiser."""

    campaign: str
    viewed_at: datetime
    kind: str
    spend: Decimal


class Report(NamedTuple):
    """A row of the report; the highest revision of an hour counts."""

    campaign: str
    hour: datetime
    impressions: int
    clicks: int
    spend: Decimal
    revision: int


class Figures(NamedTuple):
    """The sums per campaign and hour; also the accumulator, which stores its fields in this order."""

    impressions: int = 0
    clicks: int = 0
    spend: Decimal = Decimal(0)
    events: int = 0


class AddUp(AggregateFunction):
    """Adds events to figures without rounding: spend stays a decimal throughout."""

    def create_accumulator(self) -> Figures:
        """Return zeros."""
        return Figures()

    def add(self, value: Event, accumulator: Any) -> Figures:
        """Count an event."""
        impressions, clicks, spend, events = accumulator
        return Figures(
            impressions + (value.kind == "impression"),
            clicks + (value.kind == "click"),
            spend + value.spend,
            events + 1,
        )

    def get_result(self, accumulator: Any) -> Figures:
        """Return the figures."""
        return Figures(*accumulator)

    def merge(self, a: Any, b: Any) -> Figures:
        """Return the sum of two accumulators."""
        return Figures(*(left + right for left, right in zip(a, b, strict=True)))


FIGURES = AggregatingStateDescriptor(
    "figures", "struct<impressions:bigint,clicks:bigint,spend:decimal(20,6),events:bigint>", aggregate=AddUp()
)


class ReportRow(ProcessWindowFunction):
    """Produces the row of a campaign and hour."""

    def process(self, key: tuple[Any, ...], context: WindowContext, elements: Iterable[Figures]) -> Iterator[Report]:
        """Yield the hour's current figures."""
        (campaign,) = key
        for impressions, clicks, spend, events in elements:
            hour = EPOCH + timedelta(milliseconds=context.window.start)
            yield Report(campaign, hour, impressions, clicks, spend, revision=events)


def campaign_report() -> WindowFunction:
    """Return the function of the job."""
    return WindowFunction(
        TumblingEventTimeWindows(HOUR),
        FIGURES,
        process=ReportRow(),
        allowed_lateness=ALLOWED_LATENESS,
        late_output=LATE,
    )


def build(job: Job) -> None:
    """Wire the job: events in; reports and late events out."""
    settings = job.settings

    def read_events(spark: SparkSession) -> DataFrame:
        if "from" in settings:
            events = _read_topic(spark, settings)
        else:
            events = spark.readStream.schema(EVENTS).parquet(settings["input"])
        # An unpaid impression has no spend.
        return events.withColumn("spend", F.coalesce("spend", F.lit(Decimal(0)).cast("decimal(12,6)")))

    events = job.source("events", read=read_events, event_time="viewed_at", max_lateness=MAX_DISORDER)
    reports = events.key_by("campaign", order_by=("viewed_at", "kind", "spend")).process(
        campaign_report(), output=REPORTS, uid="campaign_report"
    )
    reports.sink("reports", _sink(settings, "reports"))
    reports.side_output(LATE).sink("late", _sink(settings, "late"))


def _read_topic(spark: SparkSession, settings: Mapping[str, str]) -> DataFrame:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", settings["servers"])
    reader = reader.option("subscribe", settings["from"]).option("startingOffsets", "earliest")
    reader = reader.option("maxOffsetsPerTrigger", settings.get("max_rows_per_epoch", "100000"))
    records = reader.option("kafka.isolation.level", "read_committed").load()
    # A value that is no event stops the job; by default it would become an event without any data.
    event = F.from_json(F.col("value").cast("string"), EVENTS, {"mode": "FAILFAST"})
    return records.select(event.alias("event")).select("event.*")


def _sink(settings: Mapping[str, str], name: str) -> Sink:
    if "to" not in settings:
        return ParquetSink(f"{settings['output']}/{name}")
    # Not above: it needs the extra `kafka`.
    from statecore.runtime import KafkaSink

    return KafkaSink(f"{settings['to']}-{name}", settings["servers"], key="campaign")


def final_figures(reports: Iterable[Report]) -> dict[tuple[str, datetime], Report]:
    """Return the highest revision of each campaign and hour, for rows in any order."""
    newest: dict[tuple[str, datetime], Report] = {}
    for report in reports:
        hour = report.campaign, report.hour
        if hour not in newest or newest[hour].revision < report.revision:
            newest[hour] = report
    return newest


# --- a week of events, and all subtasks side by side ---


@dataclass(frozen=True)
class Arrival:
    """An event and its arrival time."""

    arrives_at: datetime
    event: Event


def generated_week(seed: int, events: int = 6_000) -> list[Arrival]:
    """Return events of one week in order of arrival.

    Most arrive within minutes; a fifth arrive hours or days late, up to exactly seven days; one in a hundred arrives
    more than eight days late. After the week, one event per hour of a campaign ``house`` advances event time.
    """
    chosen = random.Random(seed)  # noqa: S311 - repeatable, not secret
    monday = datetime(2026, 3, 2, tzinfo=UTC)
    arrivals = []
    for _ in range(events):
        viewed_at = monday + timedelta(milliseconds=chosen.randrange(7 * 24 * 3_600_000))
        kind = "click" if chosen.random() < 0.1 else "impression"
        spend = Decimal(chosen.randrange(1, 2_000_000)).scaleb(-6)
        event = Event(chosen.choice(("shoes", "hotels", "games")), viewed_at, kind, spend)
        arrivals.append(Arrival(viewed_at + _delay(chosen), event))
    for hour in range(7 * 24, 21 * 24):
        viewed_at = monday + hour * HOUR
        arrivals.append(Arrival(viewed_at, Event("house", viewed_at, "impression", Decimal(0))))
    return sorted(arrivals, key=lambda arrival: (arrival.arrives_at, arrival.event))


def _delay(chosen: random.Random) -> timedelta:
    share = chosen.random()
    if share < 0.79:
        return timedelta(minutes=chosen.uniform(0, 9))
    if share < 0.97:
        return timedelta(hours=chosen.uniform(0, 7 * 24))
    if share < 0.99:
        return ALLOWED_LATENESS
    return timedelta(days=chosen.uniform(8, 12))


class Reporter:
    """All subtasks of the job, side by side.

    Args:
        parallelism: Number of subtasks.
        restore_from: Snapshots of the previous subtasks, at any parallelism.

    """

    def __init__(self, parallelism: int, restore_from: Sequence[HarnessSnapshot] = ()) -> None:
        self.subtasks = [
            KeyedOperatorHarness(
                campaign_report(),
                key=lambda event: (event.campaign,),
                max_parallelism=MAX_PARALLELISM,
                parallelism=parallelism,
                subtask=subtask,
                restore_from=restore_from,
            )
            for subtask in range(parallelism)
        ]

    def process(self, epochs: Iterable[Sequence[Event]]) -> None:
        """Process epochs; after each one the watermark follows the newest event and never moves back."""
        for events in epochs:
            for event in events:
                self._owner(event.campaign).process(event, _ms(event.viewed_at))
            newest = max(event.viewed_at for event in events)
            for subtask in self.subtasks:
                subtask.watermark(_ms(newest - MAX_DISORDER))

    def reports(self) -> list[Report]:
        """Return all rows so far, subtask by subtask."""
        return [report for subtask in self.subtasks for report in subtask.output]

    def late(self) -> list[Event]:
        """Return all late events so far."""
        return [event for subtask in self.subtasks for event in subtask.side_output(LATE)]

    def rescaled(self, parallelism: int) -> Reporter:
        """Return subtasks at another parallelism that continue with this state."""
        return Reporter(parallelism, [subtask.snapshot() for subtask in self.subtasks])

    def _owner(self, campaign: str) -> KeyedOperatorHarness:
        key_group = key_group_for((campaign,), ["string"], MAX_PARALLELISM)
        return self.subtasks[subtask_for_key_group(MAX_PARALLELISM, len(self.subtasks), key_group)]


def run(arrivals: Sequence[Arrival], parallelism: int, then: int) -> tuple[list[Report], list[Event]]:
    """Process arrivals in epochs of an hour, with a rescale after half of the epochs.

    Returns:
        All rows of the report, and the events that arrived too late.

    """
    epochs = list(_epochs(arrivals))
    half = len(epochs) // 2
    before = Reporter(parallelism)
    before.process(epochs[:half])
    after = before.rescaled(then)
    after.process(epochs[half:])
    return before.reports() + after.reports(), before.late() + after.late()


def _epochs(arrivals: Sequence[Arrival]) -> Iterator[list[Event]]:
    for _, together in groupby(arrivals, key=lambda arrival: (arrival.arrives_at - EPOCH) // HOUR):
        yield [arrival.event for arrival in together]


def _ms(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(milliseconds=1)


def corrections_table(reports: Sequence[Report], hours: int) -> Table:
    """Return the most corrected hours, each with its first and last report."""
    rows: dict[tuple[str, datetime], list[Report]] = {}
    for report in reports:
        rows.setdefault((report.campaign, report.hour), []).append(report)
    most = sorted(rows.items(), key=lambda item: (-len(item[1]), item[0]))[:hours]
    table = Table(title="Most corrected hours: first row -> final row", title_justify="left")
    table.add_column("campaign")
    table.add_column("hour (UTC)")
    for heading in ("rows", "impressions", "clicks", "spend"):
        table.add_column(heading, justify="right")
    final = final_figures(reports)
    for hour, of_hour in sorted(most):
        first, last = min(of_hour, key=lambda report: report.revision), final[hour]
        table.add_row(
            first.campaign,
            f"{first.hour:%a %H:%M}",
            str(len(of_hour)),
            f"{first.impressions} -> {last.impressions}",
            f"{first.clicks} -> {last.clicks}",
            f"{first.spend} -> {last.spend}",
        )
    return table


def main(seed: int = 1) -> None:
    """Run a week and print the effect of the corrections."""
    console = Console(highlight=False, soft_wrap=True)
    arrivals = generated_week(seed)
    reports, late = run(arrivals, parallelism=2, then=3)
    final = final_figures(reports)
    console.print(f"{len(arrivals):,} events of a week, at parallelism 2, then 3")
    console.print(
        f"{len(final):,} campaign hours, {len(reports) - len(final):,} corrections, {len(late)} events too late\n"
    )
    console.print(corrections_table(reports, hours=8))
    console.print(f"final spend: {sum(report.spend for report in final.values())}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
