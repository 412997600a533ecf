"""The keyed backend keeps its contract, whichever way its state moves: in memory, in base files, with changelogs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from weakref import WeakKeyDictionary

import pytest

from statecore import HeapKeyedStateBackend, KeyGroupRange
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.keyed_files import encode_base, encode_changelog, key_schema, rows_table
from statecore.snapshot.live_rows import base_rows, changelog_rows, drop_expired
from statecore.snapshot.manifest import FieldRef, FileKind, KeyedFile, StateSchema
from statecore.snapshot.restore import apply_keyed_files
from statecore.testing import ManualClock
from tests.support.handmade import operator

pytest.register_assert_rewrite("tests.contracts.keyed_state")

from tests.contracts.keyed_state import GROUPS, KEY_FIELDS, Adapter, KeyedBackendContract  # noqa: E402


class InMemory:
    """Moves state by the backend's own snapshots."""

    def make(self, key_groups: KeyGroupRange, clock: ManualClock) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(GROUPS, key_groups, clock)

    def epoch(self, backend: HeapKeyedStateBackend) -> None:
        backend.clear_changes()

    def move(self, backends: Sequence[HeapKeyedStateBackend], key_groups: KeyGroupRange) -> HeapKeyedStateBackend:
        moved = HeapKeyedStateBackend(GROUPS, key_groups, backends[0].clock)
        moved.restore([backend.snapshot() for backend in backends])
        return moved


class InFiles:
    """Moves state by one base per state and subtask."""

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._names = count()

    def make(self, key_groups: KeyGroupRange, clock: ManualClock) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(GROUPS, key_groups, clock)

    def epoch(self, backend: HeapKeyedStateBackend) -> None:
        backend.clear_changes()

    def move(self, backends: Sequence[HeapKeyedStateBackend], key_groups: KeyGroupRange) -> HeapKeyedStateBackend:
        moved = HeapKeyedStateBackend(GROUPS, key_groups, backends[0].clock)
        for backend in backends:
            files = self.files(backend)
            states = tuple(
                StateSchema(
                    name=name, scope="keyed", kind=table.kind, type=table.type, stamped=table.stamped,
                    windowed=table.windowed,
                )
                for name, table in backend.tables.items()
            )  # fmt: skip
            keys = tuple(FieldRef(name=name, type=ddl) for name, ddl in KEY_FIELDS)
            apply_keyed_files(moved, self._store, operator((), states, keys), files, dict.fromkeys(key_groups, 0))
        return moved

    def files(self, backend: HeapKeyedStateBackend) -> list[KeyedFile]:
        return self.write(backend, FileKind.BASE)

    def write(self, backend: HeapKeyedStateBackend, kind: FileKind) -> list[KeyedFile]:
        written = []
        for name, table in backend.tables.items():
            if kind is FileKind.BASE:
                drop_expired(table, backend.clock.now_ms())
            rows = base_rows(table) if kind is FileKind.BASE else changelog_rows(table)
            encode = encode_base if kind is FileKind.BASE else encode_changelog
            data = encode(rows_table(rows, key_schema(KEY_FIELDS), table.schema, name))
            file = self._store.write_file(f"state/{next(self._names)}", data)
            groups = (backend.key_groups.start, backend.key_groups.end)
            written.append(
                KeyedFile(file=file, state=name, kind=kind, token="t", key_groups=groups, rows=len(rows.keys))
            )
        return written


class InFilesWithChangelogs(InFiles):
    """Moves state by a base of the first epoch and changelogs of the later ones."""

    def __init__(self, store: CheckpointStore) -> None:
        super().__init__(store)
        self._files: WeakKeyDictionary[HeapKeyedStateBackend, list[KeyedFile]] = WeakKeyDictionary()

    def epoch(self, backend: HeapKeyedStateBackend) -> None:
        if backend in self._files and not backend.rewrite_needed:
            self._files[backend] += self.write(backend, FileKind.CHANGELOG)
        else:
            self._files[backend] = self.write(backend, FileKind.BASE)
        backend.clear_changes()

    def files(self, backend: HeapKeyedStateBackend) -> list[KeyedFile]:
        self.epoch(backend)
        return list(self._files[backend])


@pytest.fixture(scope="module", params=["in memory", "in files", "in files with changelogs"])
def adapter(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Adapter:
    if request.param == "in memory":
        return InMemory()
    store = CheckpointStore.at(str(tmp_path_factory.mktemp("store")))
    return InFiles(store) if request.param == "in files" else InFilesWithChangelogs(store)


class TestHeapKeyedStateBackend(KeyedBackendContract):
    pass
