"""The job without an engine: its functions alone, epoch by epoch, over what it was given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from statecore.snapshot.manifest import Manifest
from statecore.testing import BroadcastOperatorHarness, KeyedOperatorHarness
from tests.chaos import job

Rows = Counter[tuple[Any, ...]]
SINKS = ("gathered", "unknown", "flushed", "tallied", "late", "visits", "missed")


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
        self._passed = 0

    def epoch(self, rules: Iterable[Rule], records: Iterable[Record], watermark_ms: int | None, now_ms: int) -> None:
        """Run one epoch, which begins where the epoch before left the watermark."""
        gather, tally, visits = self.gather, self.tally, self.visits
        for harness in (gather, tally, visits):
            harness.clock.set(now_ms)
        self._advance(gather, watermark_ms, now_ms)
        self._pass_on()
        self._advance(tally, watermark_ms, now_ms)
        self._advance(visits, watermark_ms, now_ms)
        for rule in sorted(rules, key=lambda rule: rule.version):
            gather.process_broadcast(rule)
        for record in sorted(records, key=lambda record: record.n):
            gather.process(record, timestamp_ms=record.n * 1000)
            visits.process(record, timestamp_ms=record.n * 1000)
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
        }

    @staticmethod
    def _advance(harness: Any, watermark_ms: int | None, now_ms: int) -> None:
        if watermark_ms is not None:
            harness.watermark(watermark_ms)
        harness.set_processing_time(now_ms)

    def _pass_on(self) -> None:
        made = [Gathered(*output) for output in self.gather.output[self._passed :]]
        self._passed = len(self.gather.output)
        for row in sorted(made, key=lambda row: (row.amount, row.what, row.at)):
            self.tally.process(row)


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


def _rows(outputs: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, outputs))
