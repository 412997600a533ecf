"""What an undisturbed run leaves behind: the functions run alone, epoch by epoch, over the same records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from statecore.model import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    key_group_range,
)
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, OperatorState
from statecore.snapshot.restore import apply_keyed_files, find_operator, operator_snapshots
from statecore.snapshot.verify import verify
from statecore.state import HeapKeyedStateBackend
from statecore.storage import open_store
from statecore.testing import BroadcastOperatorHarness, KeyedOperatorHarness, ManualClock, physical
from tests.chaos import job

MAX_PARALLELISM = 128
TIMERS = ("__event_timers", "__processing_timers")
SINKS = ("gathered", "unknown", "flushed", "tallied", "late")
_MS = timedelta(milliseconds=1)


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


@dataclass(frozen=True, slots=True)
class Kept:
    """A savepoint that was taken on the way: its store and the path of its manifest there."""

    store: CheckpointStore
    path: str


class Alone:
    """The job without an engine."""

    def __init__(self) -> None:
        self.gather = BroadcastOperatorHarness(
            job.Gather(), broadcast=[job.FACTORS], key=lambda v: (v.k,), key_types=["string"]
        )
        self.tally = KeyedOperatorHarness(job.Tally(), key=lambda v: (v.bucket,), key_types=["bigint"])
        self._passed = 0

    def epoch(self, rules: Iterable[Rule], records: Iterable[Record], watermark_ms: int | None, now_ms: int) -> None:
        """Run one epoch, which begins where the epoch before left the watermark."""
        gather, tally = self.gather, self.tally
        for harness in (gather, tally):
            harness.clock.set(now_ms)
        self._advance(gather, watermark_ms, now_ms)
        self._pass_on()
        self._advance(tally, watermark_ms, now_ms)
        for rule in sorted(rules, key=lambda rule: rule.version):
            gather.process_broadcast(rule)
        for record in sorted(records, key=lambda record: record.n):
            gather.process(record, timestamp_ms=record.n * 1000)
        self._pass_on()

    def published(self) -> dict[str, Counter[tuple[Any, ...]]]:
        """Return the rows of each sink."""
        return {
            "gathered": _rows(self.gather.output),
            "unknown": _rows(self.gather.side_output(job.UNKNOWN)),
            "flushed": _rows(self.gather.side_output(job.FLUSHED)),
            "tallied": _rows(self.tally.output),
            "late": _rows(self.tally.side_output(job.LATE)),
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


def differences(
    store: CheckpointStore,
    manifests: Sequence[Manifest],
    fed: Fed,
    sinks: Mapping[str, str],
    savepoints: Sequence[Kept],
) -> list[str]:
    """Compare what a run has left with the truth.

    Args:
        store: The job's.
        manifests: Of all epochs, noted when they were committed: clean-up removes the old ones.
        fed: What the job was given.
        sinks: Per sink its folder's URL.
        savepoints: Those that were taken on the way.

    Returns:
        What is not as it should be, for people; nothing when all is well.

    """
    found = _history(manifests, fed)
    if found:
        return found
    kept: dict[int, list[Kept]] = {}
    for savepoint in savepoints:
        kept.setdefault(savepoint.store.manifest(savepoint.path).epoch, []).append(savepoint)
    alone, taken, watermark_ms = Alone(), (0, 0), None
    for manifest in manifests:
        reached = read_so_far(manifest)
        records = [record for file in fed.records[taken[0] : reached[0]] for record in file]
        rules = [rule for file in fed.rules[taken[1] : reached[1]] for rule in file]
        alone.epoch(rules, records, watermark_ms, manifest.batch_timestamp_ms)
        taken, watermark_ms = reached, manifest.watermark_ms
        for savepoint in kept.get(manifest.epoch, ()):
            found += _state_differences(alone, savepoint.store, savepoint.store.manifest(savepoint.path))
    found += _state_differences(alone, store, manifests[-1])
    expected = alone.published()
    for sink in SINKS:
        found += _compared(f"rows of sink {sink!r}", published(sinks[sink]), expected[sink])
    return found


def read_so_far(manifest: Manifest) -> tuple[int, int]:
    """Return how many files of records, and of rules, a job has read after an epoch."""
    positions = {source.name: source.positions for source in manifest.sources}
    return _files(positions["records"]), _files(positions["rules"])


def _files(positions: tuple[str, ...]) -> int:
    return json.loads(positions[0])["logOffset"] + 1 if positions else 0


def _history(manifests: Sequence[Manifest], fed: Fed) -> list[str]:
    """Check that epochs follow on each other, that generations do, and that the watermark is what the records say."""
    found = []
    if [(m.lineage, m.epoch) for m in manifests] != [(1, epoch) for epoch in range(len(manifests))]:
        return [f"epochs are missing or forked: {[(m.lineage, m.epoch) for m in manifests]}"]
    generations = [manifest.generation for manifest in manifests]
    if generations != sorted(generations):
        found.append(f"an older generation has committed after a newer one: {generations}")
    reached = read_so_far(manifests[-1])
    if reached != (len(fed.records), len(fed.rules)):
        found.append(f"{reached} files were read; {(len(fed.records), len(fed.rules))} were fed")
    rows = sum(map(len, fed.records)) + sum(map(len, fed.rules))
    if sum(m.rows for m in manifests) != rows or manifests[-1].rows_total != rows:
        found.append(f"{sum(m.rows for m in manifests)} rows were read; {rows} were fed")
    for manifest in manifests:
        times = [record.n * 1000 for file in fed.records[: read_so_far(manifest)[0]] for record in file]
        watermark_ms = max(times) - job.LATENESS // _MS - 1 if times else None
        if manifest.watermark_ms != watermark_ms:
            found.append(f"epoch {manifest.epoch} has the watermark {manifest.watermark_ms}, not {watermark_ms}")
    return found


def _state_differences(alone: Alone, store: CheckpointStore, manifest: Manifest) -> list[str]:
    where = f"epoch {manifest.epoch}" if manifest.savepoint is None else f"savepoint {manifest.savepoint.name!r}"
    found = [f"{where}: {problem}" for problem in verify(store, manifest)]
    if found:
        return found
    for uid, harness, states in (("gather", alone.gather, job.GATHERED), ("tally", alone.tally, job.TALLIED)):
        operator = find_operator(manifest.operators, uid, where)
        restored = _restored(store, manifest, operator)
        for descriptor in states:
            live = _living(descriptor, manifest.batch_timestamp_ms)
            found += _compared(
                f"{where}, state {descriptor.name!r}",
                live(physical(restored, descriptor.name)),
                live(physical(harness.keyed_backend, descriptor.name)),
            )
        for name in TIMERS:
            found += _compared(
                f"{where}, timers {uid}{name}",
                _not_empty(physical(restored, name)),
                _not_empty(physical(harness.keyed_backend, name)),
            )
    return [*found, *_operator_differences(where, alone, store, manifest)]


def _operator_differences(where: str, alone: Alone, store: CheckpointStore, manifest: Manifest) -> list[str]:
    operator = find_operator(manifest.operators, "gather", where)
    held = [
        _elements(operator_snapshots(store, operator.states, subtask.operator), manifest.generation)
        for subtask in operator.subtasks
    ]
    expected = alone.gather.snapshot().operator
    (factors,) = expected["factors"].elements
    return [
        *_compared(
            f"{where}, operator list 'pending'",
            Counter(n for subtask in held for n in subtask["pending"]),
            Counter(expected["pending"].elements),
        ),
        *_compared(
            f"{where}, union list 'counts'",
            sum(records for subtask in held for _, records in subtask["counts"]),
            sum(records for _, records in expected["counts"].elements),
        ),
        *_compared(f"{where}, broadcast 'factors'", [subtask["factors"] for subtask in held], [[factors]] * len(held)),
    ]


def _elements(snapshots: Iterable[Mapping[str, Any]], generation: int) -> dict[str, list[Any]]:
    elements: dict[str, list[Any]] = {"pending": [], "counts": [], "factors": []}
    for snapshot in snapshots:
        for name, state in snapshot.items():
            elements[name] += state.elements
    # A broadcast state's snapshot begins with the empty map of a subtask that has no file.
    elements["factors"] = elements["factors"][-1:] or [{}]
    return elements


def _restored(store: CheckpointStore, manifest: Manifest, operator: OperatorState) -> HeapKeyedStateBackend:
    """Read the keyed state of all subtasks from its files, as workers do."""
    backend = HeapKeyedStateBackend(MAX_PARALLELISM, key_group_range(MAX_PARALLELISM, 1, 0), ManualClock())
    for subtask, state in enumerate(operator.subtasks):
        own = key_group_range(MAX_PARALLELISM, manifest.parallelism, subtask)
        every_file = dict.fromkeys(range(own.start, own.end + 1), 0)
        apply_keyed_files(backend, store, operator, state.keyed, every_file)
    return backend


def _living(descriptor: StateDescriptor, now_ms: int) -> Callable[[dict[Any, Any]], dict[Any, Any]]:
    """Return what leaves out what has expired: when that is removed is nobody's promise."""
    if descriptor.ttl is None:
        return _not_empty
    ttl_ms = descriptor.ttl.ttl_ms

    def lives(cell: tuple[Any, int]) -> bool:
        return cell[1] + ttl_ms > now_ms

    def living(stored: dict[Any, Any]) -> dict[Any, Any]:
        if isinstance(descriptor, ListStateDescriptor):
            return _not_empty({key: [cell for cell in cells if lives(cell)] for key, cells in stored.items()})
        if isinstance(descriptor, MapStateDescriptor):
            return _not_empty({k: {e: cell for e, cell in cells.items() if lives(cell)} for k, cells in stored.items()})
        return {key: cell for key, cell in stored.items() if lives(cell)}

    return living


def _not_empty(stored: dict[Any, Any]) -> dict[Any, Any]:
    return {key: value for key, value in stored.items() if value not in ({}, [], set())}


def published(url: str) -> Counter[tuple[Any, ...]]:
    """Return a sink's rows, as a reader of its folder sees them."""
    store = open_store(url)
    rows: Counter[tuple[Any, ...]] = Counter()
    for entry in store.list("lineage=1"):
        with store.open_input(entry.path) as file:
            rows.update(tuple(row.values()) for row in pq.ParquetFile(file).read().to_pylist())
    return rows


def _rows(outputs: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, outputs))


def _compared(what: str, found: Any, expected: Any) -> list[str]:
    if found == expected:
        return []
    if isinstance(found, Counter):
        return [f"{what}: too many {_few(found - expected)}, missing {_few(expected - found)}"]
    if isinstance(found, dict):
        keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
        return [f"{what}, key {key}: found {found.get(key)}, expected {expected.get(key)}" for key in keys[:5]]
    return [f"{what}: found {found}, expected {expected}"]


def _few(rows: Counter[Any]) -> str:
    return f"{rows.total()} {list(rows.items())[:5]}"
