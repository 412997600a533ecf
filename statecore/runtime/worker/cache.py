"""Cache of state in the memory of a Python worker, from one epoch to the next.

Each key group carries the token of the state version it holds. A subtask uses the key groups that have the version its
epoch starts from, applies the missing changelogs to older ones, and loads the rest. A running subtask removes its key
groups and its operator state from the cache and returns them once its files are written, so a failed attempt leaves no
trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from statecore.model import KeyGroupRange
from statecore.runtime.messages import SUBTASK_DECODER, EpochSpec, OperatorSpec
from statecore.runtime.worker.garbage_collection import freeze_state
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import KeyedFile, OperatorFile, SubtaskState
from statecore.snapshot.restore import apply_keyed_files, operator_snapshots
from statecore.state import Clock, HeapKeyedStateBackend, OperatorStateBackend
from statecore.state.heap import DetachedKeyGroup
from statecore.state.operator_state import HeldOperatorState

# A key group that was unused for this many epochs has moved to another worker.
_EPOCHS_KEPT = 4

_Operator = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _CachedGroup:
    token: str
    epoch: int
    state: DetachedKeyGroup


@dataclass(frozen=True, slots=True)
class _CachedOperator:
    token: str
    epoch: int
    states: Mapping[str, HeldOperatorState]
    files: tuple[OperatorFile, ...]


_keyed: dict[_Operator, dict[int, _CachedGroup]] = {}
_operator: dict[tuple[str, str, int], _CachedOperator] = {}
# Scopes of each subtask when its state was last frozen (``garbage_collection``).
_frozen_scopes: dict[tuple[str, str, int], int] = {}


class SubtaskStateLoader:
    """Loads the state of one subtask, with as few reads as possible.

    Attributes:
        start: The state that the epoch starts from.
        cached_key_groups: Key groups whose state was already in memory.

    """

    def __init__(self, spec: OperatorSpec, epoch: EpochSpec, subtask: int, clock: Clock) -> None:
        self._spec = spec
        self._epoch = epoch
        self._subtask = subtask
        self._clock = clock
        self._store = CheckpointStore.at(epoch.foreign_store or spec.store_url)
        self._own = (spec.store_url, spec.uid)
        self._cache = _keyed.setdefault(self._own, {})
        self._state: SubtaskState | None = None
        self.start = SUBTASK_DECODER.decode(epoch.subtasks[subtask])
        self.cached_key_groups = 0

    def keyed(self) -> HeapKeyedStateBackend:
        """Return the keyed state that the epoch starts from."""
        start, end = self.start.key_groups
        backend = HeapKeyedStateBackend(self._spec.max_parallelism, KeyGroupRange(start, end), self._clock)
        stale: dict[int, _CachedGroup | None] = {}
        for first, last, head in self.start.heads:
            for key_group in range(first, last + 1):
                cached = self._cache.pop(key_group, None)
                if cached is not None and cached.token == head:
                    backend.attach_key_group(key_group, cached.state)
                    self.cached_key_groups += 1
                elif head:
                    stale[key_group] = cached
        if stale:
            self._catch_up(backend, stale)
        self._evict()
        return backend

    def operator(self) -> tuple[OperatorStateBackend, tuple[OperatorFile, ...]]:
        """Return the operator state that the epoch starts from, and the files that hold it."""
        backend = OperatorStateBackend()
        cached = _operator.pop((*self._own, self._subtask), None)
        token = self.start.operator_token
        if cached is not None and token and cached.token == token:
            backend.attach(cached.states)
            return backend, cached.files
        restored = self._epoch.restored
        if restored is None or not any(state.scope == "operator" for state in restored.states):
            return backend, ()
        files = self._files().operator
        backend.restore(operator_snapshots(self._store, restored.states, files))
        return backend, files

    def is_restored(self) -> bool:
        """Whether the operator has state of an earlier epoch."""
        return self._epoch.restored is not None

    def keep_keyed(self, keyed: HeapKeyedStateBackend, tokens: Mapping[int, str] | None = None) -> None:
        """Put keyed state back.

        Args:
            keyed: The state.
            tokens: Per key group the version that the subtask has just written; None for the version that the epoch
                starts from.

        """
        if tokens is None:
            tokens = {group: head for first, last, head in self.start.heads for group in range(first, last + 1)}
        scopes = sum(len(rows) for table in keyed.tables.values() for rows in table.groups.values())
        scopes += sum(map(len, keyed.columns.values()))
        for key_group in range(keyed.key_groups.start, keyed.key_groups.end + 1):
            state = keyed.detach_key_group(key_group)
            self._cache[key_group] = _CachedGroup(tokens[key_group], self._epoch.epoch, state)
        # Freeze after a load, and then whenever the state has doubled.
        place = (*self._own, self._subtask)
        if self.cached_key_groups < len(keyed.key_groups) or scopes > 2 * _frozen_scopes.get(place, 0):
            freeze_state()
            _frozen_scopes[place] = scopes

    def keep_operator(
        self, states: Mapping[str, HeldOperatorState], token: str, files: tuple[OperatorFile, ...]
    ) -> None:
        """Put detached operator state back under the version that was just written; drop it without a token."""
        if token:
            held = _CachedOperator(token, self._epoch.epoch, states, files)
            _operator[*self._own, self._subtask] = held

    def _catch_up(self, backend: HeapKeyedStateBackend, stale: Mapping[int, _CachedGroup | None]) -> None:
        assert self._epoch.restored is not None
        files = self._files().keyed
        first_file = {}
        for key_group, cached in stale.items():
            first_file[key_group] = 0 if cached is None else _after(files, key_group, cached.token)
            # A version that no file continues belongs to another history, perhaps with other types; do not use it.
            if cached is not None and first_file[key_group]:
                backend.attach_key_group(key_group, cached.state)
                backend.settle((key_group,))
        apply_keyed_files(backend, self._store, self._epoch.restored, files, first_file)

    def _files(self) -> SubtaskState:
        """Return the subtask's files: as the driver says, or as its part of the manifest does."""
        if self._state is None:
            state, part, previous = self.start.state, self.start.part, self._epoch.previous
            if state is None:
                assert part is not None and previous is not None
                state = self._store.subtask_state(previous, part)
            self._state = state
        return self._state

    def _evict(self) -> None:
        oldest = self._epoch.epoch - _EPOCHS_KEPT
        for key_group in [g for g, cached in self._cache.items() if cached.epoch < oldest]:
            del self._cache[key_group]
        for held in [key for key, cached in _operator.items() if key[:2] == self._own and cached.epoch < oldest]:
            del _operator[held]


def _after(files: Sequence[KeyedFile], key_group: int, token: str) -> int:
    """Return the index of the first file that a key group at version ``token`` lacks; 0 to load all."""
    position = 0
    for index, item in enumerate(files):
        start, end = item.key_groups
        if token and start <= key_group <= end and item.token == token:
            position = index + 1
    return position
