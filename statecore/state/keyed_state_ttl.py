"""Keyed state with a time to live: Flink's ``Ttl*State``, tested against its recorded behaviour.

Stored values, elements and entries are cells ``(value, timestamp in ms)``. A read of an expired cell removes it; the
visibility decides whether that read still returns it. Elements and entries expire one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

from statecore.model import StateTtlConfig, StateVisibility, UpdateType
from statecore.model.ttl import MAX_TIMESTAMP_MS, is_expired
from statecore.state.batches import BatchKeys
from statecore.state.keyed_backend import KeyedScope
from statecore.state.keyed_state import (
    HeapAggregatingState,
    HeapListState,
    HeapMapState,
    HeapReducingState,
    HeapState,
    HeapValueState,
)
from statecore.state.tables import Cell, Scope, StateTable


class TtlRule:
    """The time to live of one state, with the epoch's clock.

    Attributes:
        refresh_on_read: Whether a read of a live cell renews its timestamp.
        return_expired: Whether a read returns an expired cell that was not removed yet.
        accessed: Called at every access; the incremental clean-up, if there is one.

    """

    __slots__ = ("accessed", "now_ms", "refresh_on_read", "return_expired", "ttl_ms")

    def __init__(self, ttl: StateTtlConfig, now_ms: Callable[[], int], accessed: Callable[[], None] | None) -> None:
        self.ttl_ms = ttl.ttl_ms
        self.now_ms = now_ms
        self.refresh_on_read = ttl.update_type is UpdateType.ON_READ_AND_WRITE
        self.return_expired = ttl.visibility is StateVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        self.accessed = accessed

    def touch(self) -> None:
        """Let the incremental clean-up check a few keys."""
        if self.accessed is not None:
            self.accessed()

    def expired(self, cell: Cell) -> bool:
        """Return whether a cell has expired now."""
        return is_expired(cell[1], self.ttl_ms, self.now_ms())

    def usable(self, cell: Cell | None) -> Any:
        """Return the value that an addition folds into, or None to start from nothing."""
        if cell is None or (self.expired(cell) and not self.return_expired):
            return None
        return cell[0]


class _TtlState(HeapState):
    """State with a rule; subclasses declare its slot, because Python cannot combine two bases with slots."""

    __slots__ = ()
    _rule: TtlRule

    def __init__(self, backend: KeyedScope, table: StateTable, descriptor: Any, rule: TtlRule) -> None:
        super().__init__(backend, table, descriptor)
        self._rule = rule  # type: ignore[misc]


class TtlValueState(_TtlState, HeapValueState):
    """One value per key that expires."""

    __slots__ = ("_rule",)

    def value(self) -> Any:
        """Return the value of the current key, or None."""
        backend, rule = self.backend, self._rule
        scope = backend.scope
        if scope is None:
            raise self.no_key()
        if rule.accessed is not None:
            rule.accessed()
        group = self._groups[backend.key_group]
        cell = group.get(scope)
        if cell is None:
            return None
        now = rule.now_ms()
        # The rule of model.ttl, written out: this is the hottest line of state with a time to live.
        if cell[1] + rule.ttl_ms <= now or now >= MAX_TIMESTAMP_MS:
            del group[scope]
            self._written[backend.key_group].append(scope)
            return self._given(cell[0]) if rule.return_expired else None
        if rule.refresh_on_read and cell[1] != now:
            group[scope] = (cell[0], now)
            self._written[backend.key_group].append(scope)
        return cell[0] if self._copy is None else self._copy(cell[0])

    def update(self, value: Any) -> None:
        """Replace the value of the current key and stamp it; None clears it."""
        backend, rule = self.backend, self._rule
        scope = backend.scope
        if scope is None:
            raise self.no_key()
        if rule.accessed is not None:
            rule.accessed()
        if type(value) is int and self._low <= value <= self._high:
            stored = value
        elif value is None:
            super().clear()
            return
        else:
            stored = self._stored_form(value)
        if backend.namespace is not None:
            self.table.windowed = True
        key_group = backend.key_group
        self._groups[key_group][scope] = (stored, rule.now_ms())
        written = self._written[key_group]
        if not written or written[-1] is not scope:
            written.append(scope)

    def clear(self) -> None:
        """Remove the stored value of the current key."""
        super().clear()
        self._rule.touch()


class TtlListState(_TtlState, HeapListState):
    """A list per key whose elements expire one by one; they stay stored until the last has expired."""

    __slots__ = ("_rule",)

    def get(self) -> Iterator[Any]:
        """Return the elements of the current key, in the order they were added.

        An iteration that finds all of them expired removes them at its end.
        """
        rule, scope = self._rule, self._scope()
        rule.touch()
        cells = self._groups[self.backend.key_group].get(scope)
        if cells is None:
            return iter(())
        live = [cell for cell in cells if not rule.expired(cell)]
        shown = list(cells) if rule.return_expired else live
        if not live:
            return self._expired_elements(self.backend.key_group, scope, cells, len(cells), shown)
        if rule.refresh_on_read:
            now = rule.now_ms()
            if len(live) < len(cells) or any(stamp != now for _, stamp in live):
                self._write([(value, now) for value, _ in live])
        return iter([self._given(cell[0]) for cell in shown])

    def _expired_elements(
        self, key_group: int, scope: Scope, cells: list[Cell], size: int, shown: list[Cell]
    ) -> Iterator[Any]:
        rows = self._groups[key_group]
        for cell in shown:
            yield self._given(cell[0])
        if rows.get(scope) is cells and len(cells) == size:
            del rows[scope]
            self._written[key_group].append(scope)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append all elements, or none when one is refused."""
        self._scope()
        self._rule.touch()
        self._append(self._elements(values))

    def update(self, values: Iterable[Any]) -> None:
        """Replace all elements; no elements clear the list."""
        self._rule.touch()
        super().update(values)

    def _elements(self, values: Iterable[Any]) -> list[Any]:
        now = self._rule.now_ms()
        return [(element, now) for element in super()._elements(values)]


class TtlMapState(_TtlState, HeapMapState):
    """A map per key whose entries expire one by one."""

    __slots__ = ("_rule",)

    def get(self, key: Any) -> Any:
        """Return the value of a user key, or None."""
        cell = self._read(key)
        return None if cell is None else self._given(cell[0])

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a user key and stamp it; the value may be None."""
        self._rule.touch()
        super().put(key, value)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set and stamp all entries, or none when one is refused."""
        self._rule.touch()
        super().put_all(entries)

    def remove(self, key: Any) -> None:
        """Remove a user key, if it is there."""
        self._rule.touch()
        super().remove(key)

    def contains(self, key: Any) -> bool:
        """Return whether a user key is there; this counts as a read."""
        return self._read(key) is not None

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return the current entries; the map may change during iteration."""
        self._scope()
        rule = self._rule
        rule.touch()
        entries = self._entries()
        given: list[tuple[Any, Any]] = []
        for user_key, cell in list(entries.items()):
            expired = rule.expired(cell)
            if not expired or rule.return_expired:
                given.append((user_key, self._given(cell[0])))
            if expired:
                del entries[user_key]
                self._entry_removed(user_key)
            elif rule.refresh_on_read:
                self._refresh(entries, user_key, cell)
        return iter(given)

    def keys(self) -> Iterator[Any]:
        """Return the current user keys; this counts as a read of the entries."""
        return (key for key, _ in self.items())

    def is_empty(self) -> bool:
        """Return whether nothing is stored; expired entries that were not removed yet count."""
        self._rule.touch()
        return super().is_empty()

    def _read(self, key: Any) -> Cell | None:
        rule, user_key = self._rule, self._user_key(key)
        self._scope()
        rule.touch()
        entries = self._entries()
        cell: Cell | None = entries.get(user_key)
        if cell is None:
            return None
        if rule.expired(cell):
            del entries[user_key]
            self._entry_removed(user_key)
            self._drop_if_empty(entries)
            return cell if rule.return_expired else None
        if rule.refresh_on_read:
            self._refresh(entries, user_key, cell)
        return cell

    def _refresh(self, entries: dict[Any, Any], user_key: Any, cell: Cell) -> None:
        now = self._rule.now_ms()
        if cell[1] != now:
            entries[user_key] = (cell[0], now)
            self._entry_written(user_key, new=False)

    def _put(self, stored: Mapping[Any, Any]) -> None:
        now = self._rule.now_ms()
        super()._put({user_key: (value, now) for user_key, value in stored.items()})


def _read_cell(state: HeapState, rule: TtlRule) -> Any:
    """Return the value in the current key's cell under the rules of its time to live."""
    backend = state.backend
    scope = backend.scope
    if scope is None:
        raise state.no_key()
    rule.touch()
    group = state.table.groups[backend.key_group]
    cell: Cell | None = group.get(scope)
    if cell is None:
        return None
    if rule.expired(cell):
        state.clear()
        return cell[0] if rule.return_expired else None
    now = rule.now_ms()
    if rule.refresh_on_read and cell[1] != now:
        group[scope] = (cell[0], now)
        state.table.written[backend.key_group].append(scope)
    return cell[0]


class _TtlBatch(_TtlState):
    """Reads and writes the cells of a batch's keys; each key counts as one access."""

    __slots__ = ()

    def batch_values(self, keys: BatchKeys, absent: Any) -> list[Any]:
        """Return the value that an addition to each key folds into; ``absent`` for a key without one."""
        values = map(self._rule.usable, super().batch_values(keys, None))
        return [absent if value is None else value for value in values]

    def write_batch(self, keys: BatchKeys, stored: Sequence[Any]) -> None:
        """Replace and stamp the stored value of each key."""
        for _ in keys.scopes:
            self._rule.touch()
        super().write_batch(keys, list(zip(stored, repeat(self._rule.now_ms()))))


class TtlReducingState(_TtlBatch, HeapReducingState):
    """A reduced value per key that expires."""

    __slots__ = ("_rule",)

    def get(self) -> Any:
        """Return the reduced value of the current key, or None."""
        return self._given(_read_cell(self, self._rule))

    def add(self, value: Any) -> None:
        """Fold a value in and stamp the result; None only renews the timestamp."""
        scope, rule = self._scope(), self._rule
        rule.touch()
        added = self._stored_form(value)
        current = rule.usable(self._groups[self.backend.key_group].get(scope))
        if current is None or added is None:
            reduced = current if added is None else added
        else:
            reduced = self._stored_form(self.reduce(self._given(current), added))
        self._write((reduced, rule.now_ms()))


class TtlAggregatingState(_TtlBatch, HeapAggregatingState):
    """An accumulator per key that expires."""

    __slots__ = ("_rule",)

    def accumulator(self) -> Any:
        """Return the accumulator of the current key, or None."""
        return self._given(_read_cell(self, self._rule))

    def add(self, value: Any) -> None:
        """Fold a value in and stamp the accumulator; None clears."""
        scope = self._scope()
        self._rule.touch()
        if value is None:
            self.clear()
        else:
            self._fold(self._rule.usable(self._groups[self.backend.key_group].get(scope)), value)

    def _write(self, stored: Any) -> None:
        super()._write((stored, self._rule.now_ms()))
