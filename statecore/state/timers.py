"""Timers: keyed state that finds its earliest timestamp.

A key (within a namespace) has a set of timestamps. Each is a timer, so registering is idempotent. Snapshots and files
hold these sets. In memory, each key group also has a heap in firing order. A heap entry is stale when its timestamp has
left its set; stale entries are skipped, and a heap of mostly stale entries is rebuilt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, NamedTuple

from statecore.errors import StateTypeError
from statecore.model import StateKind
from statecore.state.tables import Key, Scope, StateTable, TableSchema, split_scope

if TYPE_CHECKING:
    from statecore.state.undo import UndoLog

EVENT_TIMERS = "__event_timers"
PROCESSING_TIMERS = "__processing_timers"

_LEAST, _MOST = -(2**63), 2**63 - 1
_STALE_ENTRIES = 64


class Timer(NamedTuple):
    """A timer that is due."""

    timestamp: int
    key_group: int
    scope: Scope


# Timers with the same timestamp fire by key group and key text, so the order survives a restore.
_Entry = tuple[int, str, Scope]


@dataclass(slots=True)
class TimerTable(StateTable):
    """Timers of one time domain.

    Attributes:
        undo_log: Notes each scope before it changes; None for a function whose failure ends the epoch.

    """

    undo_log: UndoLog | None = None
    _heaps: dict[int, list[_Entry]] = field(default_factory=dict)
    _stale: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _heads: list[tuple[int, int]] | None = None
    _head_of: dict[int, int] = field(default_factory=dict)

    def register(self, key_group: int, scope: Scope, timestamp: int) -> None:
        """Add a timer; adding it again has no effect. StateTypeError unless the timestamp is a 64-bit integer."""
        _check(timestamp)
        if self.undo_log is not None:
            self.undo_log.note(self, key_group, scope)
        timestamps: set[int] = self.groups[key_group].setdefault(scope, set())
        if timestamp in timestamps:
            return
        timestamps.add(timestamp)
        self.written[key_group].append(scope)
        if split_scope(scope)[1] is not None:
            self.windowed = True
        heap = self._heaps.get(key_group)
        if heap is not None:
            heappush(heap, _entry(timestamp, scope))
        if self._heads is not None and timestamp < self._head_of.get(key_group, _MOST + 1):
            self._set_head(self._heads, key_group, timestamp)

    def delete(self, key_group: int, scope: Scope, timestamp: int) -> None:
        """Remove a timer, if it is there."""
        _check(timestamp)
        if self.undo_log is not None:
            self.undo_log.note(self, key_group, scope)
        if timestamp in self.groups[key_group].get(scope, ()):
            self._remove(key_group, scope, timestamp)
            heap = self._heaps.get(key_group)
            if heap is not None:
                self._stale[key_group] += 1
                # Otherwise a timer that moves with every record leaves a stale entry each time.
                if self._stale[key_group] > len(heap) // 2 + _STALE_ENTRIES:
                    self.touched(key_group)

    def delete_all(self, key_group: int, scope: Scope) -> None:
        """Remove all timers of a scope."""
        for timestamp in sorted(self.groups[key_group].get(scope, ())):
            self.delete(key_group, scope, timestamp)

    def due(self, now_ms: int) -> Iterator[Timer]:
        """Remove and yield the timers up to ``now_ms`` in firing order, with those that are registered meanwhile."""
        taken = self._taken(now_ms)
        taken.reverse()
        try:
            while taken:
                timestamp, key_group, text, scope = taken[-1]
                heads = self._built_heads()
                # What is in a heap was registered meanwhile.
                if heads and heads[0] <= (timestamp, key_group) and self._first() < (timestamp, key_group, text):
                    yield self._pop()
                    continue
                taken.pop()
                rows = self.groups[key_group]
                timestamps = rows.get(scope)
                if timestamps is None or timestamp not in timestamps:
                    self._stale[key_group] -= 1
                    continue
                timestamps.remove(timestamp)
                if not timestamps:
                    del rows[scope]
                self.written[key_group].append(scope)
                yield Timer(timestamp, key_group, scope)
        finally:
            for _, key_group, _, _ in taken:
                self.touched(key_group)
        while (earliest := self.earliest()) is not None and earliest <= now_ms:
            yield self._pop()

    def earliest(self) -> int | None:
        """Return the timestamp of the earliest timer, or None."""
        heads = self._built_heads()
        while heads:
            timestamp, key_group = heads[0]
            if self._head_of.get(key_group) != timestamp:
                heappop(heads)
                continue
            heap = self._live_heap(key_group)
            if heap and heap[0][0] == timestamp:
                return timestamp
            # The head's timer was deleted.
            self._next_head(heads, heap)
        return None

    def touched(self, key_group: int) -> None:
        """Discard the key group's heap, to be rebuilt when needed."""
        self._heaps.pop(key_group, None)
        self._stale.pop(key_group, None)
        self._heads = None

    def detach(self, key_group: int) -> Any:
        """Take a key group out, heap included."""
        self._heads = None
        heap, stale = self._heaps.pop(key_group, None), self._stale.pop(key_group, 0)
        rows = self.groups.pop(key_group, None)
        return None if rows is None else (rows, heap, stale)

    def attach(self, key_group: int, detached: Any) -> None:
        """Put back a detached key group."""
        self._heads = None
        rows, heap, stale = detached
        self.groups[key_group] = rows
        if heap is not None:
            self._heaps[key_group], self._stale[key_group] = heap, stale

    def reset(self) -> None:
        """Remove all timers."""
        # Named explicitly: super() fails in a dataclass with slots.
        StateTable.reset(self)
        self._heaps.clear()
        self._stale.clear()
        self._heads = None

    def _built_heads(self) -> list[tuple[int, int]]:
        if self._heads is None:
            self._heads, self._head_of = [], {}
            for key_group in list(self.groups):
                heap = self._live_heap(key_group)
                if heap:
                    self._set_head(self._heads, key_group, heap[0][0])
        return self._heads

    def _taken(self, now_ms: int) -> list[tuple[int, int, str, Scope]]:
        """Take the entries up to ``now_ms`` out of the heaps, in firing order; their timers stay."""
        heads, taken = self._built_heads(), []
        while heads and heads[0][0] <= now_ms:
            timestamp, key_group = heappop(heads)
            if self._head_of.get(key_group) != timestamp:
                continue
            del self._head_of[key_group]
            heap = self._live_heap(key_group)
            while heap and heap[0][0] <= now_ms:
                timestamp, text, scope = heappop(heap)
                taken.append((timestamp, key_group, text, scope))
            if heap:
                self._set_head(heads, key_group, heap[0][0])
        taken.sort()
        return taken

    def _first(self) -> tuple[int, int, str]:
        """Return the sort key of a heap's earliest timer; for an empty heap, one after all others."""
        timestamp = self.earliest()
        if timestamp is None:
            return _MOST + 1, 0, ""
        key_group = self._built_heads()[0][1]
        return timestamp, key_group, self._heaps[key_group][0][1]

    def _pop(self) -> Timer:
        """Remove and return the timer that ``earliest`` returned."""
        heads = self._built_heads()
        timestamp, key_group = heads[0]
        heap = self._heaps[key_group]
        timer = Timer(timestamp, key_group, heappop(heap)[2])
        self._remove(key_group, timer.scope, timestamp)
        self._next_head(heads, heap)
        return timer

    def _next_head(self, heads: list[tuple[int, int]], heap: list[_Entry]) -> None:
        """Replace the first head with the key group's next timestamp."""
        _, key_group = heads[0]
        if heap:
            self._head_of[key_group] = heap[0][0]
            heapreplace(heads, (heap[0][0], key_group))
        else:
            heappop(heads)
            del self._head_of[key_group]

    def _set_head(self, heads: list[tuple[int, int]], key_group: int, timestamp: int) -> None:
        """Record a key group's first timestamp; its older heads become stale."""
        self._head_of[key_group] = timestamp
        heappush(heads, (timestamp, key_group))

    def _remove(self, key_group: int, scope: Scope, timestamp: int) -> None:
        rows = self.groups[key_group]
        timestamps: set[int] = rows[scope]
        timestamps.remove(timestamp)
        if not timestamps:
            del rows[scope]
        self.written[key_group].append(scope)

    def _live_heap(self, key_group: int) -> list[_Entry]:
        """Return the key group's heap with a live timer on top, or empty."""
        rows = self.groups[key_group]
        heap = self._heaps.get(key_group)
        if heap is None:
            heap = [_entry(timestamp, scope) for scope, timestamps in rows.items() for timestamp in timestamps]
            heapify(heap)
            self._heaps[key_group] = heap
        while heap and heap[0][0] not in rows.get(heap[0][2], ()):
            heappop(heap)
            self._stale[key_group] -= 1
        return heap


def new_table(name: str, schema: TableSchema) -> StateTable:
    """Return an empty table, a ``TimerTable`` for timers."""
    kind = TimerTable if schema.kind is StateKind.TIMERS else StateTable
    return kind(name, schema.kind, schema.type, schema.stamped, schema.windowed)


def _entry(timestamp: int, scope: Scope) -> _Entry:
    return timestamp, key_text(*split_scope(scope)), scope


def key_text(key: Key, namespace: Any) -> str:
    """Return the text that orders timers of one timestamp and key group."""
    if namespace is None:
        return repr(key)
    # That of a named tuple is Python, and slow.
    window = tuple.__repr__(namespace) if isinstance(namespace, tuple) else repr(namespace)
    return f"{key!r}{window}"


def _check(timestamp: object) -> None:
    if type(timestamp) is not int or not _LEAST <= timestamp <= _MOST:
        raise StateTypeError(
            f"found the timestamp {timestamp!r} for a timer; expected milliseconds since 1970-01-01 UTC as a 64-bit "
            "integer; convert it with int(…)"
        )
