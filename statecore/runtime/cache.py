"""State kept in the memory of a Python worker from one epoch to the next.

A cache and nothing more: each key group carries the token of the state version it holds. A subtask takes the key
groups whose version its epoch starts from, brings others up to date from the changelogs they miss, and loads the rest.
While a subtask works, its key groups are out of the cache; they come back when its files are written, so a failed
attempt leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from statecore.model import DistributionMode, KeyGroupRange
from statecore.runtime.messages import EpochSpec, OperatorSpec
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import KeyedFile, OperatorState, StateSchema
from statecore.snapshot.operator_files import decode_elements
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files, find_operator
from statecore.state import (
    Clock,
    HeapKeyedStateBackend,
    OperatorListSnapshot,
    OperatorStateBackend,
)
from statecore.state.keyed import Key

# A key group nobody asked for in so many epochs has moved to another worker.
_EPOCHS_KEPT = 4

_Values = dict[Key, object]
_Operator = tuple[str, str]


@dataclass(slots=True)
class _CachedGroup:
    token: str
    epoch: int
    states: dict[str, tuple[str, str, _Values]]


@dataclass(frozen=True, slots=True)
class _CachedOperator:
    token: str
    epoch: int
    backend: OperatorStateBackend


_keyed: dict[_Operator, dict[int, _CachedGroup]] = {}
_operator: dict[tuple[str, str, int], _CachedOperator] = {}


class SubtaskStateLoader:
    """Brings the state of one subtask into memory, reading as little as it can."""

    def __init__(self, spec: OperatorSpec, epoch: EpochSpec, subtask: int, clock: Clock) -> None:
        self._spec = spec
        self._epoch = epoch
        self._subtask = subtask
        self._clock = clock
        self._store = CheckpointStore.at(spec.store_url)
        self._own = (spec.store_url, spec.uid)
        self._cache = _keyed.setdefault(self._own, {})
        self._restored: OperatorState | None = None
        self.cached_key_groups = 0

    def keyed(self) -> HeapKeyedStateBackend:
        """Return the keyed state that the epoch starts from."""
        start, end = self._epoch.subtasks[self._subtask].key_groups
        backend = HeapKeyedStateBackend(self._spec.max_parallelism, KeyGroupRange(start, end), self._clock)
        stale: dict[int, str] = {}
        for first, last, head in self._epoch.subtasks[self._subtask].heads:
            for key_group in range(first, last + 1):
                cached = self._cache.pop(key_group, None)
                if cached is not None:
                    _attach(backend, key_group, cached)
                if cached is not None and cached.token == head:
                    self.cached_key_groups += 1
                elif head:
                    stale[key_group] = "" if cached is None else cached.token
                elif cached is not None:
                    _detach(backend, key_group)
        if stale:
            self._catch_up(backend, stale)
        self._evict()
        return backend

    def operator(self) -> OperatorStateBackend:
        """Return the operator state that the epoch starts from."""
        cached = _operator.pop((*self._own, self._subtask), None)
        token = self._epoch.subtasks[self._subtask].operator_token
        if cached is not None and token and cached.token == token:
            return cached.backend
        backend = OperatorStateBackend()
        if self.is_restored():
            operator = self._manifest_state()
            schemas = {state.name: state for state in operator.states if state.scope == "operator"}
            for item in operator.subtasks[self._subtask].operator:
                elements = decode_elements(self._store.read_file(item.file), item.partitions.offsets)
                backend.restore([{item.state: _snapshot(schemas[item.state], item.partitions.mode, elements)}])
        return backend

    def is_restored(self) -> bool:
        """Whether the operator has state of an earlier epoch."""
        return self._epoch.previous is not None

    def keep(
        self,
        keyed: HeapKeyedStateBackend,
        operator: OperatorStateBackend,
        tokens: dict[int, str],
        operator_token: str,
    ) -> None:
        """Put the state back, as the versions that the subtask has just written."""
        for key_group in range(keyed.key_groups.start, keyed.key_groups.end + 1):
            states = {
                name: (table.kind, table.type, table.groups[key_group])
                for name, table in keyed.tables.items()
                if key_group in table.groups
            }
            self._cache[key_group] = _CachedGroup(tokens[key_group], self._epoch.epoch, states)
        if operator_token:
            held = _CachedOperator(operator_token, self._epoch.epoch, operator)
            _operator[*self._own, self._subtask] = held

    def _catch_up(self, backend: HeapKeyedStateBackend, stale: dict[int, str]) -> None:
        operator = self._manifest_state()
        files = operator.subtasks[self._subtask].keyed
        first_file = {key_group: _after(files, key_group, token) for key_group, token in stale.items()}
        for key_group, position in first_file.items():
            if position == 0:
                _detach(backend, key_group)
        apply_keyed_files(backend, self._store, operator, files, first_file)

    def _manifest_state(self) -> OperatorState:
        if self._restored is None:
            assert self._epoch.previous is not None
            # The manifest may be of another parallelism; what this epoch's subtasks get follows from it alone.
            written = self._store.manifest(self._epoch.previous)
            manifest = rescale_by_reference(written, len(self._epoch.subtasks))
            self._restored = find_operator(manifest.operators, self._spec.uid, self._epoch.previous)
        return self._restored

    def _evict(self) -> None:
        oldest = self._epoch.epoch - _EPOCHS_KEPT
        for key_group in [g for g, cached in self._cache.items() if cached.epoch < oldest]:
            del self._cache[key_group]
        for held in [key for key, cached in _operator.items() if key[:2] == self._own and cached.epoch < oldest]:
            del _operator[held]


def _after(files: Sequence[KeyedFile], key_group: int, token: str) -> int:
    """Return the index of the first file that a key group at version ``token`` misses; 0 to load it anew."""
    position = 0
    for index, item in enumerate(files):
        start, end = item.key_groups
        if token and start <= key_group <= end and item.token == token:
            position = index + 1
    return position


def _attach(backend: HeapKeyedStateBackend, key_group: int, cached: _CachedGroup) -> None:
    for name, (kind, type_ddl, values) in cached.states.items():
        backend.restored_table(name, kind, type_ddl).groups[key_group] = values


def _detach(backend: HeapKeyedStateBackend, key_group: int) -> None:
    for table in backend.tables.values():
        table.groups.pop(key_group, None)


def _snapshot(schema: StateSchema, mode: DistributionMode, elements: list[object]) -> OperatorListSnapshot:
    return OperatorListSnapshot(mode, schema.type, schema.strategy or "contiguous", tuple(elements))
