"""State of every kind, read as tables and rewritten: the rewritten savepoint restores to the same state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from statecore.errors import ManifestError, StateConflictError
from statecore.model import (
    StateKind,
    key_group_for,
    subtask_for_key_group,
)
from statecore.runtime.epoch.operator import merged_schemas
from statecore.runtime.messages import KEY_GROUP, SUBTASK
from statecore.runtime.offline.rewrite import base_writer
from statecore.runtime.offline.tables import base_reader, keyed_reader
from statecore.snapshot import keyed_files
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import (
    KeyedFile,
    Manifest,
    SubtaskState,
)
from statecore.snapshot.restore import find_state
from tests.support.every_kind import GROUPS, KEYS, STATES, TYPES, expected, keyed, restored, written
from tests.support.handmade import operator


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))


def test_columns_that_were_read_are_written_again_with_nothing_lost(store: CheckpointStore) -> None:
    before = written(store, 2)
    after = rewritten_without_spark(store, before, parallelism=3, max_parallelism=64)
    assert restored(store, before) == expected(GROUPS)
    assert restored(store, after) == expected(64)
    for subtask in after.operators[0].subtasks:
        assert [item.footer for item in subtask.keyed] == [
            keyed_files.footer_of(store.read_file(item.file)) for item in subtask.keyed
        ]


def rewritten_without_spark(
    store: CheckpointStore, before: Manifest, *, parallelism: int, max_parallelism: int
) -> Manifest:
    """Do what the rewrite job does, with the shuffle done here."""
    old = before.operators[0]
    files: list[list[KeyedFile]] = [[] for _ in range(parallelism)]
    for schema in STATES:
        read = base_reader(store.files.url, before, old, schema)
        rows = pa.concat_tables([read(index) for index in range(before.parallelism)])
        names = rows.schema.names
        for index in range(parallelism):
            writer = base_writer(store.files.url, "state/new", "t", schema.name, names, parallelism, max_parallelism)
            for (text,) in (
                batch.column(0).to_pylist() for batch in writer(_shuffled(rows, index, parallelism, max_parallelism))
            ):
                files[index].append(msgspec.json.decode(text, type=tuple[int, KeyedFile])[1])
    made = operator([SubtaskState(keyed=tuple(keyed)) for keyed in files], old.states, old.key_fields)
    return msgspec.structs.replace(before, parallelism=parallelism, max_parallelism=max_parallelism, operators=(made,))


def _shuffled(rows: pa.Table, index: int, parallelism: int, max_parallelism: int) -> Iterator[pa.RecordBatch]:
    keys = zip(rows.column("k").to_pylist(), rows.column("n").to_pylist(), strict=True)
    groups = [key_group_for(key, TYPES, max_parallelism) for key in keys]
    placed = rows.drop_columns([keyed_files.KEY_GROUP]).append_column(KEY_GROUP, pa.array(groups, pa.int32()))
    subtasks = [subtask_for_key_group(max_parallelism, parallelism, group) for group in groups]
    placed = placed.append_column(SUBTASK, pa.array(subtasks, pa.int32()))
    yield from placed.filter(pa.array([each == index for each in subtasks])).sort_by(KEY_GROUP).to_batches()


def test_a_state_is_shown_with_one_row_per_key_and_window(store: CheckpointStore) -> None:
    before = written(store, 2)
    for schema in STATES:
        read = keyed_reader(store.files.url, before, before.operators[0], schema)
        rows = pa.concat_tables([read(index) for index in range(2)])
        assert sorted(zip(rows.column("k").to_pylist(), rows.column("n").to_pylist(), strict=True)) == sorted(KEYS)
        assert (keyed_files.WINDOW_START in rows.schema.names) == schema.windowed
        assert not {keyed_files.TIMESTAMP, keyed_files.MAP_KEY} & set(rows.schema.names)


def test_timers_are_no_state_that_can_be_asked_for() -> None:
    of_timers = operator([], tuple(STATES))
    with pytest.raises(ManifestError, match=r"found the states \['total', 'fresh',.*'means'\] .*'__event_timers'"):
        find_state(of_timers, "__event_timers")


def test_one_state_under_two_types_in_two_subtasks_is_refused() -> None:
    old, new = keyed("s", StateKind.VALUE, "int"), keyed("s", StateKind.VALUE, "bigint")
    with pytest.raises(StateConflictError, match=r"'s' as value of int in one .* value of bigint in another.*open\(\)"):
        merged_schemas((), [(old,), (new,)])


def test_what_subtasks_found_overrules_what_was_restored_and_a_window_that_one_of_them_met_counts_for_all() -> None:
    old, new = keyed("s", StateKind.VALUE, "int", windowed=True), keyed("s", StateKind.VALUE, "bigint")
    kept = keyed("kept", StateKind.LIST, "int")
    assert merged_schemas((old, kept), [(new,), ()]) == (kept, msgspec.structs.replace(new, windowed=True))
    windowed = msgspec.structs.replace(new, windowed=True)
    assert merged_schemas((), [(windowed,), (new,)]) == merged_schemas((), [(new,), (windowed,)]) == (windowed,)
