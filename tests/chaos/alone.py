"""The job without an engine: its functions alone, epoch by epoch, over what it was given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from statecore.joins import Interval, IntervalJoinFunction
from statecore.snapshot.manifest import Manifest
from statecore.testing import BroadcastOperatorHarness, KeyedOperatorHarness, TwoInputOperatorHarness
from tests.chaos import job

Rows = Counter[tuple[Any, ...]]
SINKS = (
    "gathered", "unknown", "flushed", "tallied", "late", "visits", "missed", "sums", "tardy", "attended", "near",
    "stray",
)  # fmt: skip


class Record(NamedTuple):
    k: str
    n: int
    at: datetime


class Rule(NamedTuple):
    name: str
    factor: int
    version: int


class Gathered(NamedTuple):
    bucket: int
    amount: int
    what: str
    at: int


class Visited(NamedTuple):
    k: str
    start: int
    end: int
    seen: str


class InBucket(NamedTuple):
    k: str
    n: int
    at: datetime
    bucket: int


NEAR_COLUMNS = (job.STRAY.value_type, "bucket bigint, amount bigint, what string, at bigint")


@dataclass(frozen=True, slots=True)
class Fed:
    """All input, file by file."""

    records: list[list[Record]]
    rules: list[list[Rule]]


class Alone:
    """The job without an engine."""

    def __init__(self) -> None:
        self.gather = BroadcastOperatorHarness(
            job.Gather(), broadcast=[job.FACTORS], key=lambda v: (v.k,), key_types=["string"]
        )
        self.tally = KeyedOperatorHarness(job.Tally(), key=lambda v: (v.bucket,), key_types=["bigint"])
        self.visits = KeyedOperatorHarness(job.visits(), key=lambda v: (v.k,), key_types=["string"])
        self.sums = KeyedOperatorHarness(job.sums(), key=lambda v: (v.k,), key_types=["string"])
        self.attend = TwoInputOperatorHarness(job.Attend(), key_types=["string"])
        join = IntervalJoinFunction(job.Near(), Interval(*job.NEAR), *NEAR_COLUMNS, left_late=job.STRAY)
        self.near = TwoInputOperatorHarness(join, key=lambda v: (v.bucket,), key_types=["bigint"])
        self._gathered = self._visited = 0

    def epoch(self, rules: Iterable[Rule], records: Iterable[Record], watermark_ms: int | None, now_ms: int) -> None:
        """Run one epoch, which begins where the epoch before left the watermark."""
        gather, tally, visits, attend, near = self.gather, self.tally, self.visits, self.attend, self.near
        for harness in (gather, tally, visits, self.sums, attend, near):
            harness.clock.set(now_ms)
        self._advance(gather, watermark_ms, now_ms)
        self._advance(visits, watermark_ms, now_ms)
        self._advance(self.sums, watermark_ms, now_ms)
        self._pass_on()
        for harness in (tally, attend, near):
            self._advance(harness, watermark_ms, now_ms)
        for rule in sorted(rules, key=lambda rule: rule.version):
            gather.process_broadcast(rule)
        for record in sorted(records, key=lambda record: record.n):
            gather.process(record, timestamp_ms=record.n * 1000)
            visits.process(record, timestamp_ms=record.n * 1000)
            # Within an epoch, the first input's records come before those of the second.
            attend.process1(record, timestamp_ms=record.n * 1000)
            near.process1(InBucket(*record, record.n % job.BUCKETS), timestamp_ms=record.n * 1000)
        # Records taken together: those whose own window has ended, as they came, and then the others.
        for record in sorted(records, key=lambda record: not _has_ended(record, watermark_ms)):
            self.sums.process(record, timestamp_ms=record.n * 1000)
        self._pass_on()

    def published(self) -> dict[str, Rows]:
        """Return the rows of each sink."""
        return {
            "gathered": _rows(self.gather.output),
            "unknown": _rows(self.gather.side_output(job.UNKNOWN)),
            "flushed": _rows(self.gather.side_output(job.FLUSHED)),
            "tallied": _rows(self.tally.output),
            "late": _rows(self.tally.side_output(job.LATE)),
            "visits": _rows(self.visits.output),
            "missed": _rows(self.visits.side_output(job.MISSED)),
            "sums": _rows(self.sums.output),
            "tardy": _rows(self.sums.side_output(job.TARDY)),
            "attended": _rows(self.attend.output),
            "near": _rows(self.near.output),
            "stray": _rows(self.near.side_output(job.STRAY)),
        }

    @staticmethod
    def _advance(harness: Any, watermark_ms: int | None, now_ms: int) -> None:
        if watermark_ms is not None:
            harness.watermark(watermark_ms)
        harness.set_processing_time(now_ms)

    def _pass_on(self) -> None:
        made = [Gathered(*output) for output in self.gather.output[self._gathered :]]
        self._gathered = len(self.gather.output)
        for row in sorted(made, key=lambda row: (row.amount, row.what, row.at)):
            self.tally.process(row)
            if row.what == "record":
                self.near.process2(row, timestamp_ms=row.at)
        ended = [Visited(*output) for output in self.visits.output[self._visited :]]
        self._visited = len(self.visits.output)
        for visit in sorted(ended, key=lambda visit: (visit.start, visit.seen)):
            self.attend.process2(visit)


def replay(path: Sequence[Manifest], fed: Fed) -> Iterator[tuple[Manifest, Alone]]:
    """Run the job alone along a lineage, from its first epoch on; yield it after each epoch."""
    alone, taken, watermark_ms = Alone(), (0, 0), None
    for manifest in path:
        reached = read_so_far(manifest)
        records = [record for file in fed.records[taken[0] : reached[0]] for record in file]
        rules = [rule for file in fed.rules[taken[1] : reached[1]] for rule in file]
        alone.epoch(rules, records, watermark_ms, manifest.batch_timestamp_ms)
        taken, watermark_ms = reached, manifest.watermark_ms
        yield manifest, alone


def read_so_far(manifest: Manifest) -> tuple[int, int]:
    """Return how many files of records, and of rules, a job has read after an epoch."""
    positions = {source.name: source.positions for source in manifest.sources}
    return _files(positions["records"]), _files(positions["rules"])


def _files(positions: tuple[str, ...]) -> int:
    return json.loads(positions[0])["logOffset"] + 1 if positions else 0


def _has_ended(record: Record, watermark_ms: int | None) -> bool:
    return watermark_ms is not None and record.n * 1000 + job.GAP // timedelta(milliseconds=1) - 1 <= watermark_ms


def _rows(outputs: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, outputs))
