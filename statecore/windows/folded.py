"""Sessions with contents that fold, straight on the tables: the common cases, since they occur for every session.

A part of a key's records joins the newest session of the key, or opens one after it; and a session ends. All
else is left to the window function, which gives the same in these cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import cast

from statecore.state import KeyedStateBackend, Window
from statecore.state.keyed_state import HeapReducingState
from statecore.state.process import Record
from statecore.state.tables import NamespacedKey, StateTable, joined_scope
from statecore.state.timers import TimerTable
from statecore.windows.sessions import Session

# Without the Python frame of the constructors.
_window = partial(tuple.__new__, Window)
_session = partial(tuple.__new__, Session)


class FoldedSessions:
    """The sessions of one subtask.

    Args:
        backend: Keyed state of the subtask.
        sessions: The sessions of each key.
        contents: What the sessions hold: integers.
        bits: Width of these integers.
        timers: The timers of the sessions.

    """

    def __init__(
        self,
        backend: KeyedStateBackend,
        sessions: StateTable,
        contents: HeapReducingState,
        bits: int,
        timers: TimerTable,
    ) -> None:
        self._backend = backend
        self._sessions = sessions
        self._contents = contents.table
        self._reduce = contents.reduce
        self._limit = 1 << (bits - 1)
        self._timers = timers

    def add(self, parts: Iterator[Record], watermark: int) -> Iterator[Record]:
        """Add parts of sessions; yield those that take more, each to be added before the next is asked for."""
        sessions, contents, timers, reduce = self._sessions, self._contents, self._timers, self._reduce
        limit = self._limit
        for record in parts:
            key, key_group, (start, end, value), _ = record
            own, totals = sessions.groups[key_group], contents.groups[key_group]
            held = own.get(key, ())
            newest = held[-1] if held else None
            if newest is None or start > newest[1]:
                namespace = _window((start, end))
                scope = joined_scope(key, namespace)
                own[key] = [*held, _session((start, end, start, end))]
                sessions.written[key_group].append(key)
                totals[scope] = value
                contents.windowed = True
                timers.register(key_group, scope, end - 1)
            else:
                old_start, old_end, state_start, state_end = newest
                scope = joined_scope(key, _window((state_start, state_end)))
                total = totals.get(scope)
                joins_others = end < old_start or (len(held) > 1 and held[-2][1] >= start)
                if joins_others or old_end <= watermark + 1 or total is None:
                    yield record
                    continue
                total = reduce(total, value)
                if not -limit <= total < limit:
                    yield record
                    continue
                totals[scope] = total
                if start < old_start or end > old_end:
                    joined = _session((min(start, old_start), max(end, old_end), state_start, state_end))
                    own[key] = [*held[:-1], joined]
                    sessions.written[key_group].append(key)
            contents.written[key_group].append(scope)

    def on_timer(self, timestamp: int) -> tuple[()] | tuple[Window, int] | None:
        """Remove and return the session of the current scope, with its contents, if it ends at this time.

        Nothing if it ends later, for which it gets a timer; None if it takes more.
        """
        scope, key_group = cast(NamespacedKey, self._backend.scope), self._backend.key_group
        key, namespace, _ = scope
        own = self._sessions.groups[key_group]
        held = own.get(key, ())
        session = next((each for each in held if each[2:] == namespace), None)
        if session is None:
            return None
        start, end, *_ = session
        if end - 1 > timestamp:
            self._timers.register(key_group, scope, end - 1)
            return ()
        total = self._contents.groups[key_group].pop(scope, None) if end - 1 == timestamp else None
        if total is None:
            return None
        if len(held) == 1:
            del own[key]
        else:
            own[key] = [each for each in held if each is not session]
        self._sessions.written[key_group].append(key)
        self._contents.written[key_group].append(scope)
        return _window((start, end)), total
