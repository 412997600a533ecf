"""The sessions of a key, and where the state of each lies.

::

    __sessions    list state of the key: struct<start, end, state_start, state_end>, sorted by start

A session's bounds change with its records; the namespace of its state and timers does not. It is the window that the
session's first record opened, or its first records together, as in Flink's ``MergingWindowSet``. So a record that
extends a session writes one small row, and a savepoint needs no rows that move from window to window. When sessions
merge, the earliest keeps its namespace, and the state of the others moves there.

The list is needed: state is looked up by key, and nothing else lists the windows of a key.
"""

from __future__ import annotations

from typing import NamedTuple

from statecore.state import KeyedStateBackend, Window
from statecore.state.keyed_state import HeapListState
from statecore.state.session_columns import SESSIONS_STATE
from statecore.windows.assigners import SessionWindows
from statecore.windows.library_state import LibraryListState

SESSIONS = LibraryListState(SESSIONS_STATE, "struct<start:bigint,end:bigint,state_start:bigint,state_end:bigint>")


class Session(NamedTuple):
    """A session of the current key.

    Attributes:
        start, end: Its bounds.
        state_start, state_end: The namespace of its state.

    """

    start: int
    end: int
    state_start: int
    state_end: int

    @property
    def window(self) -> Window:
        """The session as a window."""
        return Window(self.start, self.end)

    @property
    def namespace(self) -> Window:
        """The namespace of its state."""
        return Window(self.state_start, self.state_end)


class Sessions:
    """The sessions of the backend's current key, outside of namespaces; no two of them overlap or touch.

    Attributes:
        gap_of: Returns the gap after a record, in ms.
        table: Where they are stored.

    """

    def __init__(self, backend: KeyedStateBackend, windows: SessionWindows) -> None:
        self.gap_of = windows.gaps()
        held = backend.get_list_state(SESSIONS)
        assert isinstance(held, HeapListState)
        self._list = held
        self.table = held.table

    def join_newest(self, start: int, end: int, watermark: int) -> tuple[int, int, int, int] | None:
        """Let the window of a record join the newest session, the common case; None if it cannot.

        It cannot if the window reaches another session or none, or if the watermark has passed the session's end.
        """
        held = self._list.held()
        if not held:
            return None
        newest: tuple[int, int, int, int] = held[-1]
        old_start, old_end, state_start, state_end = newest
        if start > old_end or end < old_start or old_end <= watermark + 1 or (len(held) > 1 and held[-2][1] >= start):
            return None
        if old_start <= start and end <= old_end:
            return newest
        joined = Session(min(start, old_start), max(end, old_end), state_start, state_end)
        self._list.hold([*held[:-1], joined])
        return joined

    def merged(self, start: int, end: int) -> tuple[Session, list[Session]]:
        """Return the session that a record's window makes, and the sessions that merge into it, earliest first."""
        parts = [Session(*held) for held in self._list.held() if held[0] <= end and start <= held[1]]
        if not parts:
            return Session(start, end, start, end), parts
        first, last = parts[0], parts[-1]
        return Session(min(first.start, start), max(last.end, end), *first.namespace), parts

    def replace(self, parts: list[Session], session: Session) -> None:
        """Put a session in the place of those that merged into it."""
        self._list.hold(sorted([*(held for held in self._list.held() if held not in parts), session]))

    def of_namespace(self, namespace: Window) -> Session | None:
        """Return the session whose state lies in a namespace."""
        for held in self._list.held():
            if held[2:] == namespace:
                return Session(*held)
        return None

    def remove(self, session: Session) -> None:
        """Forget a session."""
        left = [held for held in self._list.held() if held != session]
        if left:
            self._list.hold(left)
        else:
            self._list.clear()
