"""State files laid together: nobody who reads them can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from statecore.model import KeyGroupRange, StateKind, key_group_range, subtask_for_key_group
from statecore.runtime.worker.cache import _after
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merge, Merged, carry_out, with_merged
from statecore.snapshot.keyed_files import encode_changelog, key_schema, rows_table
from statecore.snapshot.live_rows import changelog_rows
from statecore.snapshot.manifest import (
    FileKind,
    KeyedFile,
    Manifest,
    OperatorState,
    StateSchema,
    SubtaskState,
    TtlRef,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files
from statecore.state import HeapKeyedStateBackend
from statecore.state.heap import DetachedKeyGroup
from statecore.state.tables import Window, copied_rows
from statecore.testing import ManualClock
from tests.support.examples import examples
from tests.support.handmade import MAX_PARALLELISM, manifest, operator
from tests.unit.snapshot.merges import ALL, merge, named


class Sum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0]

    def merge(self, a: Any, b: Any) -> Any:
        raise NotImplementedError


TTL = StateTtlConfig(timedelta(milliseconds=3))
AGGREGATING = "struct<total:bigint,count:bigint>"
DESCRIPTORS = [
    ValueStateDescriptor("value", "struct<n:bigint,l:array<bigint>>"),
    ValueStateDescriptor("value_ttl", "bigint", TTL),
    ListStateDescriptor("list", "bigint"),
    ListStateDescriptor("list_ttl", "bigint", TTL),
    MapStateDescriptor("map", "bigint", "bigint"),
    MapStateDescriptor("map_ttl", "bigint", "bigint", TTL),
    ReducingStateDescriptor("reducing", "bigint", reduce=lambda a, b: a + b),
    ReducingStateDescriptor("reducing_ttl", "bigint", ttl=TTL, reduce=lambda a, b: a + b),
    AggregatingStateDescriptor("aggregating", AGGREGATING, aggregate=Sum()),
    AggregatingStateDescriptor("aggregating_ttl", AGGREGATING, ttl=TTL, aggregate=Sum()),
]
TIMERS = "__event_timers"
KEYS = [(f"k{n}",) for n in range(3)]
OPERATIONS: dict[StateKind, dict[str, Callable[[Any, int], object]]] = {
    StateKind.VALUE: {
        "write": lambda state, n: state.update((n, [n, None]) if state.table.type != "bigint" else n),
        "read": lambda state, n: state.value(),
    },
    StateKind.LIST: {
        "write": lambda state, n: state.add(n),
        "replace": lambda state, n: state.update(range(n % 3)),
        "read": lambda state, n: list(state.get()),
    },
    StateKind.MAP: {
        "write": lambda state, n: state.put(n % 4, n),
        "remove": lambda state, n: state.remove(n % 4),
        "write two": lambda state, n: state.put_all({n % 4: n, (n + 1) % 4: -n}),
        "move to the end": lambda state, n: (state.remove(n % 4), state.put(n % 4, n)),
        "read": lambda state, n: list(state.items()),
    },
    StateKind.REDUCING: {"write": lambda state, n: state.add(n), "read": lambda state, n: state.get()},
    StateKind.AGGREGATING: {"write": lambda state, n: state.add(n), "read": lambda state, n: state.get()},
}


@dataclass(frozen=True)
class Do:
    """One write or read of one state under one key, perhaps in a window.

    Attributes:
        what: Name of the state, and what to do with it.

    """

    what: tuple[str, str]
    key: int
    n: int
    windowed: bool = False

    def to(self, backend: HeapKeyedStateBackend) -> None:
        name, what = self.what
        backend.set_current_key(KEYS[self.key], self.key_group)
        backend.set_current_namespace(Window(self.n, self.n + 10) if self.windowed else None)
        if name == TIMERS:
            timers = backend.timers(TIMERS)
            assert backend.scope is not None
            change = timers.delete if what == "clear" else timers.register
            change(self.key_group, backend.scope, self.n)
        else:
            descriptor = next(each for each in DESCRIPTORS if each.name == name)
            state: Any = backend.get_state(descriptor)
            if what == "clear":
                state.clear()
            else:
                OPERATIONS[descriptor.kind][what](state, self.n)
        backend.set_current_namespace(None)

    @property
    def key_group(self) -> int:
        return self.key * 7


def operations(names: Sequence[str], *, keys: int = len(KEYS), windows: bool = False) -> st.SearchStrategy[Do]:
    kinds = {each.name: each.kind for each in DESCRIPTORS}
    whats = [(TIMERS, "write"), *((name, what) for name, kind in kinds.items() for what in OPERATIONS[kind])]
    whats += [(name, "clear") for name in (TIMERS, *kinds)]
    return st.builds(
        Do,
        st.sampled_from([(name, what) for name, what in whats if name in names]),
        st.integers(0, keys - 1),
        st.integers(0, 7),
        st.booleans() if windows else st.just(False),
    )


Held = dict[int, dict[str, dict[Any, Any]]]


def held(backends: Iterable[HeapKeyedStateBackend]) -> Held:
    """What backends hold, without what is as good as not there; the entries of a map in their order."""
    found: Held = {}
    for backend in backends:
        for name, table in backend.tables.items():
            for key_group, rows in table.groups.items():
                for scope, stored in rows.items():
                    if stored or table.kind not in (StateKind.LIST, StateKind.MAP, StateKind.TIMERS):
                        shown = list(stored.items()) if table.kind is StateKind.MAP else stored
                        found.setdefault(key_group, {}).setdefault(name, {})[scope] = shown
    return found


class Job:
    """A job with keyed state of every kind, its files, and workers that remember any epoch.

    Attributes:
        truth: State of all key groups that never saw a file.
        memories: After each epoch, per key group its version and what a worker has in memory.

    """

    def __init__(self, store: CheckpointStore, parallelism: int) -> None:
        self.store = store
        self.clock = ManualClock()
        self.truth = self.backend(KeyGroupRange(*ALL))
        self.newest = manifest(
            parallelism=parallelism, epoch=-1, operators=(self.operator((), [SubtaskState()] * parallelism),)
        )
        self.subtasks = [self.backend(self.own(index)) for index in range(parallelism)]
        self.memories: list[dict[int, tuple[str, dict[str, Any]]]] = []
        self.versions = dict.fromkeys(range(MAX_PARALLELISM), "")
        self.pending: list[tuple[int, Merged]] = []

    def backend(self, own: KeyGroupRange) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(MAX_PARALLELISM, own, self.clock)

    def own(self, index: int) -> KeyGroupRange:
        return key_group_range(MAX_PARALLELISM, self.newest.parallelism, index)

    @staticmethod
    def operator(states: tuple[StateSchema, ...], subtasks: Sequence[SubtaskState]) -> OperatorState:
        return operator(subtasks, states)

    def epoch(self, todo: Iterable[Do]) -> None:
        """Run and commit an epoch; merges that are ready take the place of their inputs."""
        for each in todo:
            each.to(self.truth)
            each.to(self.subtasks[subtask_for_key_group(MAX_PARALLELISM, len(self.subtasks), each.key_group)])
        epoch = self.newest.epoch + 1
        ready = [each for when, each in self.pending if when <= epoch]
        self.pending = [(when, each) for when, each in self.pending if when > epoch]
        subtasks = []
        for index, before in enumerate(self.newest.operators[0].subtasks):
            merged = [each for each in ready if each.merge.subtask == index]
            subtasks.append(SubtaskState(keyed=(*with_merged(before.keyed, merged), *self.written(epoch, index))))
        states = self.schemas()
        self.newest = manifest(
            epoch=epoch, parallelism=len(subtasks), operators=(self.operator(states, subtasks),),
            batch_timestamp_ms=self.clock.now_ms(),
        )  # fmt: skip
        self.truth.clear_changes()
        self.memories.append({g: (version, self.memory(g)) for g, version in self.versions.items()})

    def written(self, epoch: int, index: int) -> Iterator[KeyedFile]:
        own, token = self.own(index), f"e{epoch}s{index}"
        for name, table in sorted(self.subtasks[index].tables.items()):
            rows = changelog_rows(table)
            if rows.keys:
                data = encode_changelog(rows_table(rows, key_schema([("k", "string")]), table.schema, name))
                file = self.store.write_file(f"state/{epoch}/{token}-{name}", data)
                yield KeyedFile(
                    file=file, state=name, kind=FileKind.CHANGELOG, token=token, key_groups=(own.start, own.end),
                    rows=len(rows.keys),
                )  # fmt: skip
                self.versions.update(dict.fromkeys(own, token))
        self.subtasks[index].clear_changes()

    def schemas(self) -> tuple[StateSchema, ...]:
        schemas: dict[str, StateSchema] = {}
        for backend in self.subtasks:
            for name, table in backend.tables.items():
                windowed = table.windowed or (name in schemas and schemas[name].windowed)
                schemas[name] = StateSchema(
                    name=name, scope="keyed", kind=table.kind, type=table.type, stamped=table.stamped,
                    windowed=windowed, ttl=TtlRef.of(TTL) if table.stamped else None,
                )  # fmt: skip
        for state in self.newest.operators[0].states:
            now = schemas.get(state.name, state)
            schemas[state.name] = msgspec.structs.replace(now, windowed=now.windowed or state.windowed)
        return tuple(schemas[name] for name in sorted(schemas))

    def memory(self, key_group: int) -> dict[str, Any]:
        found = {}
        for name, table in self.truth.tables.items():
            if key_group in table.groups:
                rows: Any = copied_rows(table.kind, table.groups[key_group])
                found[name] = (table.schema, (rows, None, 0) if table.kind is StateKind.TIMERS else rows)
        return found

    def rescale(self, parallelism: int) -> None:
        """Go on at another parallelism, as a new generation does: with state from files, without merges of the old."""
        self.newest = rescale_by_reference(self.newest, parallelism)
        self.pending = []
        self.subtasks = [self.restored(self.newest, index) for index in range(parallelism)]

    def restored(self, made: Manifest, index: int) -> HeapKeyedStateBackend:
        own = key_group_range(MAX_PARALLELISM, made.parallelism, index)
        backend = self.backend(own)
        of_job = made.operators[0]
        apply_keyed_files(backend, self.store, of_job, of_job.subtasks[index].keyed, dict.fromkeys(own, 0))
        return backend

    def mergeable(self) -> list[Merge]:
        """Return every merge that could be: neighbours of one state and range, or all of a state."""
        found = []
        states = {state.name: state for state in self.newest.operators[0].states}
        for index, subtask in enumerate(self.newest.operators[0].subtasks):
            own = self.own(index)
            groups = (own.start, own.end)
            for name, state in states.items():
                files = [item for item in subtask.keyed if item.state == name]
                for kind_and_range, items in groupby(files, lambda item: (item.kind, item.key_groups)):
                    run = list(items)
                    if kind_and_range[0] is FileKind.CHANGELOG:
                        spans = [(i, j) for i in range(len(run)) for j in range(i + 2, len(run) + 1)]
                        found += [merge(run[i:j], state=state, subtask=index, key_groups=groups) for i, j in spans]
                if files and files[-1].key_groups == groups:
                    found.append(merge(files, FileKind.BASE, state=state, subtask=index, key_groups=groups))
        return found

    def lay_together(self, chosen: Merge | None, ready_after: int) -> None:
        if chosen is not None:
            done = carry_out(self.store, chosen, "merged")
            self.pending.append((self.newest.epoch + 1 + ready_after, done))

    def check(self) -> None:
        """Compare with the truth what everybody gets who takes up the newest epoch, whatever they remember."""
        expected = held([self.truth])
        of_job = self.newest.operators[0]
        for index, subtask in enumerate(of_job.subtasks):
            heads = dict.fromkeys(self.own(index), "")
            for item in subtask.keyed:
                heads.update(dict.fromkeys(range(item.key_groups[0], item.key_groups[1] + 1), item.token))
            assert heads == {g: self.versions[g] for g in self.own(index)}
        assert held(self.restored(self.newest, index) for index in range(self.newest.parallelism)) == expected
        for memory in self.memories:
            assert held(self.caught_up(memory, index) for index in range(self.newest.parallelism)) == expected

    def caught_up(self, memory: dict[int, tuple[str, dict[str, Any]]], index: int) -> HeapKeyedStateBackend:
        """Do what ``SubtaskStateLoader`` does with key groups that are in memory as of another epoch."""
        files = self.newest.operators[0].subtasks[index].keyed
        backend = self.backend(self.own(index))
        first_file = {}
        for key_group in self.own(index):
            version, states = memory[key_group]
            first_file[key_group] = _after(files, key_group, version)
            if first_file[key_group]:
                copies = {
                    name: (
                        schema,
                        (set_rows(rows[0]), None, 0)
                        if schema.kind is StateKind.TIMERS
                        else copied_rows(schema.kind, rows),
                    )
                    for name, (schema, rows) in states.items()
                }
                backend.attach_key_group(key_group, DetachedKeyGroup(copies, None))
        apply_keyed_files(backend, self.store, self.newest.operators[0], files, first_file)
        return backend


def set_rows(rows: dict[Any, set[int]]) -> dict[Any, set[int]]:
    return copied_rows(StateKind.TIMERS, rows)


@examples(80)
@given(st.data())
def test_whoever_takes_up_merged_files_has_the_state_that_the_originals_give(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    job = Job(CheckpointStore.at(str(tmp_path_factory.mktemp("job"))), data.draw(st.integers(1, 2)))
    names = data.draw(
        st.lists(st.sampled_from([TIMERS, *(each.name for each in DESCRIPTORS)]), min_size=2, max_size=3, unique=True)
    )
    first_window = data.draw(st.integers(0, 6))
    for epoch in range(data.draw(st.integers(2, 6))):
        job.clock.advance(data.draw(st.integers(0, 2)))
        job.epoch(data.draw(st.lists(operations(names, windows=epoch >= first_window), max_size=8)))
        for chosen in data.draw(st.lists(st.sampled_from(job.mergeable() or [None]), max_size=2)):  # type: ignore[list-item]
            job.lay_together(chosen, data.draw(st.integers(0, 1)))
        if data.draw(st.integers(0, 4)) == 4:
            job.rescale(data.draw(st.integers(1, 3)))
    job.epoch([])
    job.epoch([])
    job.check()


MAP_WRITES = st.builds(
    Do,
    st.sampled_from([("map", what) for what in ("write", "remove", "move to the end")]),
    st.just(0),
    st.integers(0, 3),
)


@examples(20)
@given(st.lists(MAP_WRITES, min_size=8, max_size=8))
def test_the_entries_of_a_map_are_in_the_same_order_whatever_was_merged(
    tmp_path_factory: pytest.TempPathFactory, writes: list[Do]
) -> None:
    """Else a function that takes the first entry would go on differently on another worker."""
    job = Job(CheckpointStore.at(str(tmp_path_factory.mktemp("job"))), 1)
    for number, write in enumerate(writes):
        # The files of another state show where a memory stands.
        job.epoch([Do(("value", "write"), 0, number), write])
    newest = job.newest
    last = [item for item in newest.operators[0].subtasks[0].keyed if item.state == "map"][-1:]
    for chosen in job.mergeable():
        if chosen.inputs[-1:] == tuple(last):
            job.newest = newest
            job.lay_together(chosen, 0)
            job.epoch([])
            job.check()


def neighbours(job: Job, name: str, start: int, end: int) -> Merge:
    """Return the merge of the changelogs that epochs from ``start`` to ``end`` wrote of a state."""
    tokens = [f"e{epoch}s0" for epoch in range(start, end + 1)]
    (found,) = [
        each
        for each in job.mergeable()
        if (each.state.name, each.kind) == (name, FileKind.CHANGELOG) and named(each.inputs) == tokens
    ]
    return found


@pytest.mark.parametrize("other", ["list", "value"], ids=["before it in the list of files", "behind it"])
@pytest.mark.parametrize("start", [1, 2])
def test_a_memory_from_within_a_merged_run_has_its_map_in_the_order_of_everybody_else(
    store: CheckpointStore, other: str, start: int
) -> None:
    """The file of another state shows where it stands, and of the merged file it has a part already."""
    job = Job(store, 1)
    for writes in [
        [("write", 1)],
        [("move to the end", 1)],
        [("write", 2), ("move to the end", 2), ("write", 3)],
        [("write", 3)],
    ]:
        job.epoch([Do((other, "write"), 0, 1), *(Do(("map", what), 0, n) for what, n in writes)])
    job.lay_together(neighbours(job, "map", start, 3), 0)
    job.epoch([])
    job.check()


@pytest.mark.parametrize("map_first", [True, False])
def test_a_merge_of_another_state_does_not_bring_back_where_such_a_memory_stands(
    store: CheckpointStore, map_first: bool
) -> None:
    job = Job(store, 1)
    for what, n in [("write", 1), ("move to the end", 1), ("write", 2), ("write", 2)]:
        job.epoch([Do(("value", "write"), 0, n), Do(("map", what), 0, n)])
    chosen = [neighbours(job, "map", 1, 3), neighbours(job, "value", 0, 2)]
    for each in chosen if map_first else reversed(chosen):
        job.lay_together(each, 0)
    job.epoch([])
    assert len(job.newest.operators[0].subtasks[0].keyed) == 4
    job.check()


@pytest.mark.parametrize("name", [TIMERS, *(each.name for each in DESCRIPTORS)])
def test_files_from_before_the_first_window_of_a_state_and_from_after_it_are_laid_together(
    store: CheckpointStore, name: str
) -> None:
    job = Job(store, 1)
    for windowed in (False, True, False):
        job.epoch([Do((name, "write"), 0, 1), Do((name, "write"), 1, 2, windowed)])
    newest = job.newest
    for chosen in job.mergeable():
        job.newest = newest
        job.lay_together(chosen, 0)
        job.epoch([])
        job.check()


def live_at(name: str, stored: Any, now_ms: int) -> Any:
    """Return what is left of something stored, or nothing that is true."""

    def live(cell: tuple[Any, int]) -> bool:
        return cell[1] + 3 > now_ms

    if name == "list_ttl":
        return [cell for cell in stored if live(cell)]
    if name == "map_ttl":
        return [(map_key, cell) for map_key, cell in stored if live(cell)]
    return stored if live(stored) else None


EXPIRING = [each.name for each in DESCRIPTORS if each.ttl]


@pytest.mark.parametrize("now_ms", range(8))
def test_expired_state_leaves_with_a_base_where_that_was_asked_for_and_nothing_else_does(
    store: CheckpointStore, now_ms: int
) -> None:
    job = Job(store, 1)
    for time in (0, 2, 3):
        job.clock.set(time)
        job.epoch(
            [Do((name, "write"), key, time) for name in EXPIRING for key in range(time, 3)]
            + [Do(("value", "write"), 0, 1)]
        )
        job.epoch([Do((name, "write"), 0, time + 1) for name in ("list_ttl", "map_ttl")])
    originals = held([job.truth])
    cleaned = TtlRef.of(StateTtlConfig(timedelta(milliseconds=3), cleanup_full_snapshot=True))
    for ttl, clean in [(cleaned, True), (TtlRef.of(TTL), False)]:
        files = []
        for chosen in job.mergeable():
            if chosen.kind is FileKind.BASE:
                state = msgspec.structs.replace(chosen.state, ttl=ttl if chosen.state.stamped else None)
                files.append(
                    carry_out(store, msgspec.structs.replace(chosen, state=state, now_ms=now_ms), "merged").output
                )
        subtask = SubtaskState(keyed=tuple(files))
        made = msgspec.structs.replace(job.newest, operators=(operator([subtask], job.newest.operators[0].states),))
        expected = {
            group: {
                name: {
                    scope: live_at(name, stored, now_ms) if clean and name in EXPIRING else stored
                    for scope, stored in rows.items()
                }
                for name, rows in states.items()
            }
            for group, states in originals.items()
        }
        assert held([job.restored(made, 0)]) == without_nothing(expected)


def without_nothing(held: Held) -> Held:
    kept = {
        g: {n: {s: stored for s, stored in rows.items() if stored} for n, rows in states.items()}
        for g, states in held.items()
    }
    return {g: found for g, states in kept.items() if (found := {n: rows for n, rows in states.items() if rows})}


def test_laying_changelogs_together_drops_nothing_that_has_expired(store: CheckpointStore) -> None:
    job = Job(store, 1)
    job.epoch([Do((name, "write"), 0, 1) for name in EXPIRING])
    job.epoch([Do((name, "write"), 1, 1) for name in EXPIRING])
    job.clock.set(1000)
    for chosen in job.mergeable():
        if chosen.kind is FileKind.CHANGELOG:
            cleaned = TtlRef.of(StateTtlConfig(timedelta(milliseconds=3), cleanup_full_snapshot=True))
            state = msgspec.structs.replace(chosen.state, ttl=cleaned)
            job.lay_together(msgspec.structs.replace(chosen, state=state, now_ms=1000), 0)
    job.epoch([])
    assert len(job.newest.operators[0].subtasks[0].keyed) == len(EXPIRING)
    job.check()
