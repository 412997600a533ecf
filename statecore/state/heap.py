"""Keyed state of one subtask, on the heap."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from statecore.errors import ConfigurationError, MaxParallelismError, StateConflictError, StateError
from statecore.model import (
    AggregatingStateDescriptor,
    KeyGroupRange,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    StateTtlConfig,
    ValueStateDescriptor,
)
from statecore.state.adoption import adopt
from statecore.state.batches import BatchKeys
from statecore.state.cleanup import IncrementalCleanup
from statecore.state.keyed_backend import Clock
from statecore.state.keyed_state import (
    HeapAggregatingState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
)
from statecore.state.keyed_state_ttl import (
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlRule,
    TtlValueState,
)
from statecore.state.session_columns import SessionGroup, SessionTables
from statecore.state.tables import (
    Groups,
    Key,
    NamespacedKey,
    Scope,
    StateTable,
    TableSchema,
    conflict_of_snapshots,
    copied_rows,
    describe,
    joined_scope,
    split_scope,
)
from statecore.state.timers import TimerTable, new_table
from statecore.state.undo import NotedGroups, UndoLog

# The class of each kind without and with a time to live.
_CLASSES: Mapping[StateKind, tuple[type[Any], type[Any]]] = {
    StateKind.VALUE: (HeapValueState, TtlValueState),
    StateKind.LIST: (HeapListState, TtlListState),
    StateKind.MAP: (HeapMapState, TtlMapState),
    StateKind.REDUCING: (HeapReducingState, TtlReducingState),
    StateKind.AGGREGATING: (HeapAggregatingState, TtlAggregatingState),
}

_State = TypeVar("_State", bound=HeapState)


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """State of some key groups at one moment, isolated from later writes.

    Attributes:
        max_parallelism: Number of key groups of the job.
        states: Per state name its schema and ``{key group: {scope: stored}}``.

    """

    max_parallelism: int
    states: Mapping[str, tuple[TableSchema, Groups]]


@dataclass(frozen=True, slots=True)
class DetachedKeyGroup:
    """State of a key group that was taken out of a backend.

    Attributes:
        tables: Per state name its schema and what its table detached.
        columns: The sessions that lie in columns; None without any.

    """

    tables: Mapping[str, tuple[TableSchema, Any]]
    columns: SessionGroup | None


class HeapKeyedStateBackend:
    """State of the key groups of one subtask.

    Args:
        max_parallelism: Number of key groups of the job.
        key_groups: The key groups that this backend owns.
        clock: The epoch's time.

    Attributes:
        scope: The current key within the current namespace; None without a current key.
        batch: The keys of the current batch; None without one.
        columns: Sessions that lie in columns and not in tables, per key group.
        rewrite_needed: Whether files hold a state in another type or form than memory, so that a changelog cannot
            extend them.

    """

    def __init__(self, max_parallelism: int, key_groups: KeyGroupRange, clock: Clock) -> None:
        self.max_parallelism = max_parallelism
        self.key_groups = key_groups
        self.clock = clock
        self.namespace: Hashable | None = None
        self.scope: Scope | None = None
        self.batch: BatchKeys | None = None
        self.key_group = -1
        self.tables: dict[str, StateTable] = {}
        self.columns: dict[int, SessionGroup] = {}
        self.rewrite_needed = False
        self._sealed = False
        self._restored: set[str] = set()
        self._first, self._last = key_groups.start, key_groups.end
        self._states: dict[str, HeapState] = {}
        self._last_used: tuple[StateDescriptor, HeapState] | None = None
        self._every_record: list[Callable[[], None]] = []
        self._undo_log: UndoLog | None = None

    def note_changes(self, log: UndoLog) -> None:
        """Log all changes from now on, of states that are registered later."""
        self._undo_log = log

    def set_current_key(self, key: Key, key_group: int) -> None:
        """Scope keyed state to ``key`` until the next call; StateError when its key group is another backend's."""
        if not self._first <= key_group <= self._last:
            raise self._foreign(key, key_group)
        self.scope = key if self.namespace is None else joined_scope(key, self.namespace)
        self.key_group = key_group
        if self._every_record:
            for clean_up in self._every_record:
                clean_up()

    def set_current_scope(self, scope: Scope, key_group: int) -> None:
        """Scope keyed state to a key within its namespace, as timers have them; else like ``set_current_key``."""
        key, self.namespace = split_scope(scope)
        if not self._first <= key_group <= self._last:
            raise self._foreign(key, key_group)
        self.scope = scope
        self.key_group = key_group
        for clean_up in self._every_record:
            clean_up()

    def set_current_batch(self, keys: BatchKeys) -> None:
        """Let columns be added to keyed state, a value for each row of a batch, until ``forget_current_batch``.

        Raises:
            StateError: A key belongs to a key group of another backend.

        """
        for position in (0, -1):
            self.set_current_key(keys.scopes[position], int(keys.key_groups[position]))
        self.forget_current_key()
        for clean_up in self._every_record:
            for _ in keys.scopes:
                clean_up()
        self.batch = keys

    def forget_current_batch(self) -> None:
        """Leave keyed state without a batch and without a key."""
        self.batch = None
        self.forget_current_key()

    def set_current_namespace(self, namespace: Hashable | None) -> None:
        """Scope keyed state to a window, within the current key and those to come; None is no namespace."""
        self.namespace = namespace
        scope = self.scope
        if scope is not None:
            self.scope = joined_scope(scope.key if type(scope) is NamespacedKey else scope, namespace)

    def forget_current_key(self) -> None:
        """Leave keyed state without a scope, as between records."""
        self.scope = None

    @property
    def current_key(self) -> Key | None:
        """The key that keyed state is scoped to, None without one."""
        scope = self.scope
        return None if scope is None else split_scope(scope)[0]

    def get_value_state(self, descriptor: ValueStateDescriptor) -> HeapValueState:
        """Return the value state of that descriptor, registering it on first use."""
        return self._state(descriptor, HeapValueState)

    def get_list_state(self, descriptor: ListStateDescriptor) -> HeapListState:
        """Return the list state of that descriptor, registering it on first use."""
        return self._state(descriptor, HeapListState)

    def get_map_state(self, descriptor: MapStateDescriptor) -> HeapMapState:
        """Return the map state of that descriptor, registering it on first use."""
        return self._state(descriptor, HeapMapState)

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> HeapReducingState:
        """Return the reducing state of that descriptor, registering it on first use."""
        return self._state(descriptor, HeapReducingState)

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> HeapAggregatingState:
        """Return the aggregating state of that descriptor, registering it on first use."""
        return self._state(descriptor, HeapAggregatingState)

    def get_state(self, descriptor: StateDescriptor) -> HeapState:
        """Return the state of a descriptor of any kind."""
        return self._state(descriptor, HeapState)

    def each_key(self, descriptor: StateDescriptor) -> Generator[Key]:
        """Walk through the keys that have a state, outside of windows, with keyed state scoped to each in turn."""
        try:
            for key_group, rows in list(self.get_state(descriptor).table.groups.items()):
                # A copy, because the caller may clear the key's state.
                for scope in list(rows):
                    key, namespace = split_scope(scope)
                    if namespace is None:
                        self.set_current_key(key, key_group)
                        yield key
        finally:
            self.forget_current_key()

    def timers(self, name: str) -> TimerTable:
        """Return the timers of a time domain."""
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = new_table(name, TableSchema(StateKind.TIMERS, "bigint"))
        assert isinstance(table, TimerTable)
        table.undo_log = self._undo_log
        return table

    def timer_tables(self) -> list[TimerTable]:
        """Return the timers of all time domains."""
        return [table for table in self.tables.values() if isinstance(table, TimerTable)]

    def seal(self) -> None:
        """Refuse from now on to migrate restored state: the first record comes next."""
        self._sealed = True

    def unregistered(self) -> list[str]:
        """Return the names of restored states that were not registered again."""
        restored = [self.tables[name] for name in sorted(self._restored)]
        return [table.name for table in restored if table.descriptor is None and table.kind is not StateKind.TIMERS]

    def restored_table(self, name: str, schema: TableSchema) -> StateTable:
        """Return the table for restored rows of a state; StateConflictError when the name has another kind or type."""
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = new_table(name, schema)
        table.require(schema)
        self._restored.add(name)
        return table

    def detach_key_group(self, key_group: int) -> DetachedKeyGroup:
        """Take a key group's state out, for ``attach_key_group`` of a later backend."""
        detached = {name: (table.schema, table.detach(key_group)) for name, table in self.tables.items()}
        tables = {name: (schema, rows) for name, (schema, rows) in detached.items() if rows is not None}
        return DetachedKeyGroup(tables, self.columns.pop(key_group, None))

    def attach_key_group(self, key_group: int, detached: DetachedKeyGroup) -> None:
        """Take over a key group's state that another backend detached."""
        for name, (schema, rows) in detached.tables.items():
            self.restored_table(name, schema).attach(key_group, rows)
        if detached.columns is not None:
            self.columns[key_group] = detached.columns

    def settle(self, key_groups: Iterable[int] | None = None) -> None:
        """Move state from columns to the tables, for readers of the tables; by default of all key groups."""
        for key_group in list(self.columns) if key_groups is None else key_groups:
            columns = self.columns.pop(key_group, None)
            if columns is not None:
                columns.settle(self._tables_of(columns), key_group)

    def _tables_of(self, columns: SessionGroup) -> SessionTables:
        sessions, contents, timers = map(self.tables.__getitem__, columns.names)
        assert isinstance(timers, TimerTable)
        return SessionTables(sessions, contents, timers)

    def clear_changes(self) -> None:
        """Forget which keys were written, because files hold them now."""
        self.rewrite_needed = False
        for table in self.tables.values():
            table.clear_changes()
        for columns in self.columns.values():
            columns.clear_changes()

    def snapshot(self) -> KeyedSnapshot:
        """Return the state of all key groups, isolated from later writes; without expired state if so configured."""
        self.settle()
        now_ms = self.clock.now_ms()
        states = {name: (table.schema, table.snapshot_groups(now_ms)) for name, table in self.tables.items()}
        return KeyedSnapshot(self.max_parallelism, states)

    def restore(self, snapshots: Iterable[KeyedSnapshot] | KeyedSnapshot) -> None:
        """Replace all state with this backend's key groups from any number of snapshots.

        The backend forgets the current key, the namespace and all registrations: get states again, by the same
        descriptors or others. Refused snapshots change nothing.

        Raises:
            MaxParallelismError: A snapshot has another number of key groups.
            StateConflictError: Two snapshots hold the same state with different kinds or types.

        """
        checked = self._checked(snapshots)
        self._start_afresh()
        for snapshot in checked:
            for name, (schema, groups) in snapshot.states.items():
                held = self.tables.get(name)
                if held is not None and not held.schema.has_form_of(schema):
                    self.tables[name] = new_table(name, schema)
                table = self.restored_table(name, schema)
                for key_group, rows in groups.items():
                    if key_group in self.key_groups:
                        table.groups[key_group].update(copied_rows(schema.kind, rows))
                        table.touched(key_group)

    def _foreign(self, key: Key, key_group: int) -> StateError:
        return StateError(
            f"found key {key!r} in key group {key_group}; expected a key group of this subtask, "
            f"{self._first} to {self._last}; check how the stream was partitioned"
        )

    def _checked(self, snapshots: Iterable[KeyedSnapshot] | KeyedSnapshot) -> list[KeyedSnapshot]:
        # Listed before any table is emptied: a generator may read the snapshots from this very backend.
        listed = [snapshots] if isinstance(snapshots, KeyedSnapshot) else list(snapshots)
        schemas: dict[str, TableSchema] = {}
        for snapshot in listed:
            if snapshot.max_parallelism != self.max_parallelism:
                raise MaxParallelismError(
                    f"found a snapshot of max parallelism {snapshot.max_parallelism}; expected {self.max_parallelism}, "
                    "since otherwise keys belong to other key groups; rewrite the savepoint (method rewrite)"
                )
            for name, (schema, _) in snapshot.states.items():
                if not schemas.setdefault(name, schema).has_form_of(schema):
                    raise conflict_of_snapshots(name, schemas[name], schema)
        return listed

    def _start_afresh(self) -> None:
        """Empty every table and forget all registrations."""
        self.namespace = None
        self.forget_current_batch()
        self._states.clear()
        self._last_used = None
        self._every_record.clear()
        self._restored.clear()
        self.columns.clear()
        self.rewrite_needed = self._sealed = False
        for table in self.tables.values():
            table.reset()
            table.descriptor = None

    def _state(self, descriptor: StateDescriptor, expected: type[_State]) -> _State:
        # Fast path: functions usually request the state that they used last.
        last = self._last_used
        if last is not None and last[0] is descriptor:
            state = last[1]
        else:
            _require_kind(descriptor, expected)
            state = self._registered(descriptor)
            self._last_used = (descriptor, state)
        if not isinstance(state, expected):
            raise _wrong_getter(descriptor)
        return state

    def _registered(self, descriptor: StateDescriptor) -> HeapState:
        table = self.tables.get(descriptor.name)
        if table is not None and table.descriptor == descriptor:
            return self._states[descriptor.name]
        wanted = TableSchema(descriptor.kind, descriptor.type_ddl(), _ttl_in_force(descriptor) is not None)
        if table is None or not (table.descriptor or table.name in self._restored or table.schema.has_form_of(wanted)):
            # An empty table left over from before a restore is not restored state.
            table = self.tables[descriptor.name] = new_table(descriptor.name, wanted)
        elif table.descriptor is not None:
            _require_same(table, table.descriptor, descriptor, wanted)
        elif adopt(table, descriptor, wanted, self.clock.now_ms(), sealed=self._sealed):
            self.rewrite_needed = True
        replaced = table.descriptor is not None
        table.descriptor = descriptor
        plain, expiring = _CLASSES[descriptor.kind]
        ttl = table.ttl
        state: HeapState
        if ttl is None:
            state = plain(self, table, descriptor)
        else:
            accessed = self._clean_up(table, register=not replaced)
            state = expiring(self, table, descriptor, TtlRule(ttl, self.clock.now_ms, accessed))
        if self._undo_log is not None:
            state.note_changes(NotedGroups(table, self._undo_log))
        self._states[descriptor.name] = state
        return state

    def _clean_up(self, table: StateTable, *, register: bool) -> Callable[[], None] | None:
        ttl = table.ttl
        if ttl is None or ttl.cleanup_incremental is None:
            return None
        clean_up = IncrementalCleanup(table, ttl, self.clock.now_ms)
        if register and clean_up.every_record:
            self._every_record.append(clean_up.run)
        return clean_up.run


def _require_kind(descriptor: object, expected: type[HeapState]) -> None:
    if not isinstance(descriptor, StateDescriptor):
        raise ConfigurationError(
            f"found {descriptor!r} requested as a state; expected a descriptor; give for example "
            "ValueStateDescriptor(name, type)"
        )
    if not issubclass(_CLASSES[descriptor.kind][0], expected):
        raise _wrong_getter(descriptor)


def _wrong_getter(descriptor: StateDescriptor) -> StateConflictError:
    getter = "get_state" if descriptor.kind is StateKind.VALUE else f"get_{descriptor.kind}_state"
    return StateConflictError(
        f"found {descriptor.kind} state {descriptor.name!r} requested as another kind; expected the getter of its "
        f"kind; call {getter}()"
    )


def _ttl_in_force(descriptor: StateDescriptor) -> StateTtlConfig | None:
    return descriptor.ttl if descriptor.ttl is not None and descriptor.ttl.enabled else None


def _require_same(table: StateTable, first: StateDescriptor, second: StateDescriptor, wanted: TableSchema) -> None:
    if (table.kind, table.type) != (wanted.kind, wanted.type):
        requested, expected = describe(wanted), describe(table.schema)
    elif _ttl_in_force(first) != _ttl_in_force(second):
        requested, expected = f"{describe(wanted)} {second.ttl}", f"{describe(table.schema)} {first.ttl}"
    else:
        return
    raise StateConflictError(
        f"found state {second.name!r} requested as {requested}; expected {expected}, as it was registered; "
        "give one of the two states another name"
    )
