"""What an undisturbed run leaves behind: state, timers and outputs of the functions run alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

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
from statecore.testing import ManualClock, physical
from statecore.windows.sessions import SESSIONS
from tests.chaos import job
from tests.chaos.alone import NEAR_COLUMNS, Alone, Fed, read_so_far, replay
from tests.chaos.lineages import Lineages
from tests.chaos.outputs import Expected, Tally, few

MAX_PARALLELISM = 128
TIMERS = ("__event_timers", "__processing_timers", "__window_timers")
JOINED = tuple(
    MapStateDescriptor(name, "bigint", f"array<struct<{columns}>>")
    for name, columns in zip(("left", "right"), NEAR_COLUMNS, strict=True)
)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Kept:
    """A savepoint that was taken on the way: its store and the path of its manifest there."""

    store: CheckpointStore
    path: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a run compares with the truth.

    Attributes:
        differences: What is not as it should be, for people; nothing when all is well.
        lost: Rows that the sinks lack; None when they could not be counted.
        doubled: Rows that the sinks have too many.
        lineages: How many the run has.

    """

    differences: list[str]
    lost: int | None = None
    doubled: int | None = None
    lineages: int = 1


def judge(
    store: CheckpointStore, lineages: Lineages, fed: Fed, sinks: Mapping[str, str], savepoints: Sequence[Kept]
) -> Verdict:
    """Compare what a run has left with the truth.

    The job alone runs every lineage from its first epoch: what a lineage has published is what its own epochs give.

    Args:
        store: The job's.
        lineages: With all epochs, noted when they were committed: clean-up removes the old ones.
        fed: What the job was given.
        sinks: Per sink its folder's URL.
        savepoints: Those that were taken on the way, and should still be there.

    """
    found = _history(lineages, fed)
    if found:
        return Verdict(found, lineages=len(lineages.numbers))
    kept: dict[tuple[int, int], list[Kept]] = {}
    for savepoint in savepoints:
        manifest = savepoint.store.manifest(savepoint.path)
        kept.setdefault((manifest.lineage, manifest.epoch), []).append(savepoint)
    expected = {lineage: Expected(lineages, lineage) for lineage in lineages.numbers}
    for lineage in lineages.numbers:
        for manifest, alone in replay(lineages.path(lineage), fed):
            expected[lineage].after(manifest.epoch, alone)
            if manifest.lineage == lineage:
                for savepoint in kept.pop((lineage, manifest.epoch), ()):
                    found += _state_differences(alone, savepoint.store, savepoint.store.manifest(savepoint.path))
            if manifest is lineages.newest:
                found += _state_differences(alone, store, manifest)
    for (lineage, epoch), strangers in kept.items():
        names = sorted(savepoint.path for savepoint in strangers)
        found.append(f"savepoints {names} are of epoch {epoch} of lineage {lineage}, which nobody has seen committed")
    tally = Tally()
    tally.compare(sinks, expected)
    return Verdict(found + tally.differences, tally.lost, tally.doubled, len(lineages.numbers))


def _history(lineages: Lineages, fed: Fed) -> list[str]:
    """Check all lineages, and that the newest one has read what was fed."""
    if lineages.newest is None:
        return [f"the job has no newest epoch; pending: {lineages.pending}"]
    found = [difference for lineage in lineages.numbers for difference in _path_history(lineages.path(lineage), fed)]
    reached = read_so_far(lineages.newest)
    if reached != (len(fed.records), len(fed.rules)):
        found.append(f"{reached} files were read; {(len(fed.records), len(fed.rules))} were fed")
    return found


def _path_history(path: Sequence[Manifest], fed: Fed) -> list[str]:
    """Check that epochs follow on each other, that generations and times do, and the watermark and number of rows."""
    if [m.epoch for m in path] != list(range(len(path))):
        return [f"epochs are missing or forked: {[(m.lineage, m.epoch) for m in path]}"]
    found = []
    generations = [manifest.generation for manifest in path]
    if generations != sorted(generations):
        found.append(f"an older generation has committed after a newer one: {generations}")
    times = [manifest.batch_timestamp_ms for manifest in path]
    if times != sorted(times):
        back = [path[i].epoch for i in range(1, len(path)) if times[i] < times[i - 1]]
        found.append(f"the time of epochs {back} of lineage {path[-1].lineage} is before that of the epoch before")
    rows = 0
    for manifest in path:
        rows += manifest.rows
        files, rules = read_so_far(manifest)
        expected = sum(map(len, fed.records[:files])) + sum(map(len, fed.rules[:rules]))
        where = f"epoch {manifest.epoch} of lineage {manifest.lineage}"
        if rows != expected or manifest.rows_total != expected:
            return [*found, f"{rows} rows were read until {where}, which says {manifest.rows_total}, not {expected}"]
        events = [record.n * 1000 for file in fed.records[:files] for record in file]
        watermark_ms = max(events) - job.LATENESS // _MS - 1 if events else None
        if manifest.watermark_ms != watermark_ms:
            found.append(f"{where} has the watermark {manifest.watermark_ms}, not {watermark_ms}")
    return found


def _state_differences(alone: Alone, store: CheckpointStore, manifest: Manifest) -> list[str]:
    where = (
        f"epoch {manifest.epoch} of lineage {manifest.lineage}"
        if manifest.savepoint is None
        else f"savepoint {manifest.savepoint.name!r}"
    )
    found = [f"{where}: {problem}" for problem in verify(store, manifest)]
    if found:
        return found
    for uid, harness, states, timers in (
        ("gather", alone.gather, job.GATHERED, TIMERS),
        ("tally", alone.tally, job.TALLIED, TIMERS),
        ("visits", alone.visits, (job.SEEN, SESSIONS), TIMERS),
        ("attend", alone.attend, job.ATTENDED, TIMERS),
        # Which timers a join registers depends on the order of its records, which have none here.
        ("near", alone.near, JOINED, ()),
    ):
        operator = find_operator(manifest.operators, uid, where)
        restored = _restored(store, manifest, operator)
        for descriptor in states:
            live = _living(descriptor, manifest.batch_timestamp_ms)
            found += _compared(
                f"{where}, state {descriptor.name!r}",
                live(physical(restored, descriptor.name)),
                live(physical(harness.keyed_backend, descriptor.name)),
            )
        for name in timers:
            found += _compared(
                f"{where}, timers {uid}{name}",
                _not_empty(physical(restored, name)),
                _not_empty(physical(harness.keyed_backend, name)),
            )
    sums = find_operator(manifest.operators, "sums", where)
    found += _compared(
        f"{where}, sessions of sums",
        _sessions(_restored(store, manifest, sums)),
        _sessions(alone.sums.keyed_backend),
    )
    return [*found, *_operator_differences(where, alone, store, manifest)]


def _sessions(backend: HeapKeyedStateBackend) -> dict[Any, Any]:
    """Return each session's sum and number of timers, and whatever belongs to none.

    In which row they are, and how long before its end a session has its timer, is nobody's promise.
    """
    added, timers = (_not_empty(physical(backend, name)) for name in (job.ADDED.name, "__window_timers"))
    found = {}
    for key, sessions in physical(backend, SESSIONS.name).items():
        for start, end, *own in sessions:
            scope = key, tuple(own)
            found[key, start, end] = added.pop(scope, None), len(timers.pop(scope, ()))
    return {**found, **added, **timers}


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


def _compared(what: str, found: Any, expected: Any) -> list[str]:
    if found == expected:
        return []
    if isinstance(found, Counter):
        return [f"{what}: too many {few(found - expected)}, missing {few(expected - found)}"]
    if isinstance(found, dict):
        keys = [key for key in {**found, **expected} if found.get(key) != expected.get(key)]
        return [f"{what}, key {key}: found {found.get(key)}, expected {expected.get(key)}" for key in keys[:5]]
    return [f"{what}: found {found}, expected {expected}"]
