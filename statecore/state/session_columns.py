"""Sessions of one key group as columns of numbers, for sessions whose contents fold to one integer.

A session in the tables of a backend is a dozen Python objects: its list, its namespace, its scope, its timer. Here it
is a row of numbers, and what happens to all sessions at once is done by numpy::

    owner     number of the session's key
    start, end, state_start, state_end    as in the table of sessions
    timer     the session's one timer
    total     its contents
    before    end of the key's session before it, the least integer without one; also when that one has ended

A key's sessions lie either here or in the tables, never in both. Files know only the tables' form: ``changed_rows``
gives a changelog's rows in it, and ``settle`` moves everything to the tables. ``release`` moves one key there when it
needs something that is not done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np

from statecore.state.batches import Mask, Positions
from statecore.state.folding import Folding, Numbers
from statecore.state.tables import Key, Scope, StateTable, Window, joined_scope, split_scope
from statecore.state.timers import TimerTable, key_text

SESSIONS_STATE = "__sessions"
"""Name of the state with the bounds of a key's sessions, each with the window that its state lies in."""

_OWNER, _START, _END, _STATE_START, _STATE_END, _TIMER, _TOTAL, _BEFORE = range(8)
_WIDTH = 8
_LEAST, _MOST = -(2**63), 2**63 - 1

# Without the Python frame of the constructor.
_window = partial(tuple.__new__, Window)

_ALIVE, _ENDED, _RELEASED = range(3)
_NEW_TOTAL, _NEW_BOUNDS, _NEW_TIMER = 1, 2, 4


class SessionTables(NamedTuple):
    """The tables of a backend that hold sessions.

    Attributes:
        sessions: Per key a list of (start, end, state_start, state_end).
        contents: Per session an integer.
        timers: Per session its timers.

    """

    sessions: StateTable
    contents: StateTable
    timers: TimerTable


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of sessions, sorted by key and time; those of one key neither overlap nor touch.

    Attributes:
        keys: The position of each part's key.
        starts: First millisecond, inclusive.
        ends: Last millisecond, exclusive.
        values: Folded values.

    """

    keys: Positions
    starts: Positions
    ends: Positions
    values: Positions

    def __getitem__(self, wanted: slice | Mask) -> Parts:
        return Parts(self.keys[wanted], self.starts[wanted], self.ends[wanted], self.values[wanted])

    def __len__(self) -> int:
        return len(self.keys)


NO_PARTS = Parts(*[np.empty(0, np.int64)] * 4)


class End(NamedTuple):
    """The end of a session.

    Attributes:
        order: Timestamp and key group; ends and timers of the same order go by key text.

    """

    order: tuple[int, int]
    key: Key
    window: Window
    namespace: Window
    total: int

    def precedes(self, timestamp: int, key_group: int, scope: Scope) -> bool:
        """Return whether this comes before a timer."""
        other = (timestamp, key_group)
        if self.order != other:
            return self.order < other
        return key_text(self.key, self.namespace) < key_text(*split_scope(scope))


class ColumnRows(NamedTuple):
    """A changelog's rows of one state, in one key group.

    Attributes:
        deleted: Which rows remove what files hold.
        values: The integer of each row, or the elements of all lists.
        windows: Start and end of each row's window; None for state of the key alone.
        lengths: Number of elements of each row's list; None for contents.

    """

    keys: list[Key]
    deleted: Mask
    values: Numbers
    windows: Numbers | None
    lengths: Numbers | None


class SessionGroup:
    """The sessions of one key group.

    Args:
        names: The names of the tables of sessions, contents and timers.

    """

    def __init__(self, names: tuple[str, str, str]) -> None:
        self.names = names
        self._ids: dict[Key, int] = {}
        self._keys: list[Key] = []
        # Per key the row of its newest session, -1 without one.
        self._newest = np.empty(0, np.int64)
        self._rows = np.empty((0, _WIDTH), np.int64)
        self._status = np.empty(0, np.uint8)
        self._changes = np.empty(0, np.uint8)
        # Files hold the rows before this one.
        self._kept = 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._status == _ALIVE))

    def count(self, state: str) -> int:
        """Return how many rows of a state lie here."""
        if state not in self.names:
            return 0
        return int(np.count_nonzero(self._newest >= 0)) if state == self.names[0] else len(self)

    @property
    def earliest_timer(self) -> int | None:
        """The earliest timer, in ms."""
        timers = self._rows[self._status == _ALIVE, _TIMER]
        return int(timers.min()) if len(timers) else None

    def take(self, tables: SessionTables, key_group: int) -> None:
        """Take over the sessions that a key group of the tables holds; files hold them, too."""
        sessions, contents, timers = (table.groups[key_group] for table in tables)
        rows = []
        for key, held in list(sessions.items()):
            scopes = [joined_scope(key, Window(state_start, state_end)) for _, _, state_start, state_end in held]
            own = zip(scopes, [timers.get(scope, ()) for scope in scopes], held, strict=True)
            # Another version of the program may have left a session without contents, or waiting for late records.
            if not all(scope in contents and len(of) == 1 and max(of) < session[1] for scope, of, session in own):
                continue
            del sessions[key]
            owner = self._ids[key] = len(self._keys)
            self._keys.append(key)
            before = _LEAST
            for scope, session in zip(scopes, held, strict=True):
                (timer,) = timers.pop(scope)
                rows.append((owner, *session, timer, contents.pop(scope), before))
                before = session[1]
        tables.timers.touched(key_group)
        self._newest = np.full(len(self._keys), -1)
        self._append(np.array(rows, np.int64).reshape(-1, _WIDTH))
        self._kept = len(self._rows)

    def add(self, parts: Parts, scopes: Sequence[Key], elsewhere: Mapping[Key, object], fold: Folding) -> Mask:
        """Add parts to sessions; return the parts that need more: release their keys first.

        Each part of a key joins the key's newest session, or opens one after it. Sessions that the watermark has ended
        are not here any more.
        """
        first = np.flatnonzero(np.diff(parts.keys, prepend=-1))
        key_of_part = np.repeat(np.arange(len(first)), np.diff(first, append=len(parts)))
        keys = [scopes[position] for position in parts.keys[first].tolist()]
        ids = np.fromiter(map(self._ids.get, keys, repeat(-1)), np.int64, len(keys))
        newest = np.full(len(keys), -1)
        newest[ids >= 0] = self._newest[ids[ids >= 0]]
        has = newest >= 0
        held = np.zeros((len(keys), _WIDTH), np.int64)
        held[has] = self._rows[newest[has]]
        start, end = parts.starts[first], parts.ends[first]
        # The start of a key's second part.
        following = np.full(len(keys), _MOST)
        several = np.flatnonzero(np.diff(first, append=len(parts)) > 1)
        following[several] = parts.starts[first[several] + 1]
        overlaps = has & (start <= held[:, _END])
        totals, certain = fold.fold(held[:, _TOTAL], parts.values[first], np.arange(len(keys)))
        joins = overlaps & (end >= held[:, _START]) & (start > held[:, _BEFORE]) & (following > held[:, _END]) & certain
        left = overlaps & ~joins
        if elsewhere:
            left |= np.fromiter(map(elsewhere.__contains__, keys), np.bool_, len(keys))
        joins &= ~left
        ends = parts.ends.copy()
        ends[first[joins]] = np.maximum(end, held[:, _END])[joins]
        self._join(newest[joins], start[joins], ends[first[joins]], totals[joins])
        self._number(keys, ids, ~left & (ids < 0))
        opened = ~left[key_of_part]
        opened[first[joins]] = False
        before = np.empty_like(ends)
        before[1:] = ends[:-1]
        before[first] = np.where(has, held[:, _END], _LEAST)
        new = [ids[key_of_part], parts.starts, ends, parts.starts, ends, ends - 1, parts.values, before]
        self._append(np.stack(new, axis=1)[opened])
        return left[key_of_part]

    def end(self, watermark: int, key_group: int) -> list[End]:
        """Remove and return the sessions whose end the watermark has reached, in no order."""
        timers = np.flatnonzero((self._status == _ALIVE) & (self._rows[:, _TIMER] <= watermark))
        last = self._rows[timers, _END] - 1
        # As in the tables, a session that has become longer gets a timer at its new end.
        longer = timers[last > watermark]
        self._rows[longer, _TIMER] = self._rows[longer, _END] - 1
        self._changes[longer] |= _NEW_TIMER
        ended = timers[last <= watermark]
        self._status[ended] = _ENDED
        owners = self._rows[ended, _OWNER]
        gone = owners[self._newest[owners] == ended]
        self._newest[gone] = -1
        keys = self._keys
        return [
            End((end - 1, key_group), keys[owner], _window((start, end)), _window((state_start, state_end)), total)
            for owner, start, end, state_start, state_end, _, total, _ in self._rows[ended].tolist()
        ]

    def release(self, key: Key, tables: SessionTables, key_group: int) -> None:
        """Move the sessions of a key to the tables, if it is here."""
        owner = self._ids.pop(key, None)
        if owner is None:
            return
        own = np.flatnonzero((self._rows[:, _OWNER] == owner) & (self._status != _RELEASED))
        self._put(own, tables, key_group)
        self._status[own] = _RELEASED
        self._newest[owner] = -1

    def settle(self, tables: SessionTables, key_group: int) -> None:
        """Move all sessions to the tables; what files lack counts as changes of the tables."""
        self._put(np.flatnonzero(self._status != _RELEASED), tables, key_group)

    def changed_rows(self, state: str) -> ColumnRows:
        """Return the rows of a state for the next changelog."""
        if state == self.names[0]:
            return self._changed_sessions()
        is_contents = state == self.names[1]
        chosen = np.flatnonzero(self._has_changed(_NEW_TOTAL if is_contents else _NEW_TIMER))
        deleted = self._status[chosen] == _ENDED
        rows = self._rows[chosen]
        keys = list(map(self._keys.__getitem__, rows[:, _OWNER].tolist()))
        windows = rows[:, _STATE_START : _STATE_END + 1]
        if is_contents:
            return ColumnRows(keys, deleted, rows[:, _TOTAL], windows, None)
        return ColumnRows(keys, deleted, rows[~deleted, _TIMER], windows, (~deleted).astype(np.int64))

    def clear_changes(self) -> None:
        """Forget the changes, because files hold them now."""
        left = self._status == _ALIVE
        if not left.all():
            rows = self._rows[left]
            owners, rows[:, _OWNER] = np.unique(rows[:, _OWNER], return_inverse=True)
            self._keys = list(map(self._keys.__getitem__, owners.tolist()))
            self._ids = dict(zip(self._keys, range(len(self._keys)), strict=True))
            self._newest = np.full(len(owners), -1)
            self._rows, self._status, self._changes = rows[:0], self._status[:0], self._changes[:0]
            self._append(rows)
        self._changes[:] = 0
        self._kept = len(self._rows)

    def _join(self, rows: Positions, starts: Positions, ends: Positions, totals: Positions) -> None:
        held = self._rows[rows]
        starts = np.minimum(starts, held[:, _START])
        moved = (starts != held[:, _START]) | (ends != held[:, _END])
        held[:, _START], held[:, _END], held[:, _TOTAL] = starts, ends, totals
        self._rows[rows] = held
        self._changes[rows] |= _NEW_TOTAL
        self._changes[rows[moved]] |= _NEW_BOUNDS

    def _number(self, keys: list[Key], ids: Positions, unknown: Mask) -> None:
        """Give numbers to the keys that have none."""
        new = [keys[position] for position in np.flatnonzero(unknown).tolist()]
        numbers = range(len(self._keys), len(self._keys) + len(new))
        ids[unknown] = numbers
        self._ids.update(zip(new, numbers, strict=True))
        self._keys += new
        self._newest = np.append(self._newest, np.full(len(new), -1))

    def _append(self, rows: Positions) -> None:
        # The last assignment to an owner wins.
        self._newest[rows[:, _OWNER]] = np.arange(len(self._rows), len(self._rows) + len(rows))
        self._rows = np.concatenate([self._rows, rows])
        self._status = np.append(self._status, np.full(len(rows), _ALIVE, np.uint8))
        self._changes = np.append(self._changes, np.zeros(len(rows), np.uint8))

    def _has_changed(self, what: int) -> Mask:
        """Return which sessions are new or changed, or were removed from what files hold."""
        kept = np.arange(len(self._rows)) < self._kept
        alive = self._status == _ALIVE
        changed: Mask = alive & (~kept | ((self._changes & what) != 0)) | (self._status == _ENDED) & kept
        return changed

    def _changed_sessions(self) -> ColumnRows:
        owners = np.unique(self._rows[self._has_changed(_NEW_BOUNDS), _OWNER])
        of_changed = np.zeros(len(self._keys), np.bool_)
        of_changed[owners] = True
        alive = np.flatnonzero(of_changed[self._rows[:, _OWNER]] & (self._status == _ALIVE))
        # Those of a key stay in their order, by start.
        rows = self._rows[alive[np.argsort(self._rows[alive, _OWNER], kind="stable")]]
        lengths = np.bincount(rows[:, _OWNER], minlength=len(self._keys))[owners]
        keys = list(map(self._keys.__getitem__, owners.tolist()))
        return ColumnRows(keys, lengths == 0, rows[:, _START : _STATE_END + 1], None, lengths)

    def _put(self, chosen: Positions, tables: SessionTables, key_group: int) -> None:
        sessions, contents, timers = (table.groups[key_group] for table in tables)
        written = [table.written[key_group] for table in tables]
        status, changes = self._status[chosen].tolist(), self._changes[chosen].tolist()
        for at, row, state, changed in zip(chosen.tolist(), self._rows[chosen].tolist(), status, changes, strict=True):
            owner, start, end, state_start, state_end, timer, total, _ = row
            key = self._keys[owner]
            scope = joined_scope(key, _window((state_start, state_end)))
            if state == _ALIVE:
                sessions.setdefault(key, []).append((start, end, state_start, state_end))
                contents[scope] = total
                timers[scope] = {timer}
                wanted = changed if at < self._kept else _NEW_BOUNDS | _NEW_TOTAL | _NEW_TIMER
            else:
                wanted = _NEW_BOUNDS | _NEW_TOTAL | _NEW_TIMER if at < self._kept else 0
            for scopes, each, what in zip(
                written, (key, scope, scope), (_NEW_BOUNDS, _NEW_TOTAL, _NEW_TIMER), strict=True
            ):
                if wanted & what:
                    scopes.append(each)
        tables.timers.touched(key_group)
