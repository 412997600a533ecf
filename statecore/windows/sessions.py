"""The sessions of a key, and where the state of each lies.

::

    __sessions    list state of the key: struct<start, end, state_start, state_end>, sorted by start

A session's bounds change with its records; the namespace of its state and timers does not. It is the window that the
session's first record opened, as in Flink's ``MergingWindowSet``. So a record that extends a session writes one small
row, and a savepoint needs no rows that move from window to window. When sessions merge, the earliest keeps its
namespace, and the state of the others moves there.

The list is needed: state is found by key, and nothing else tells which windows a key has.
"""

from __future__ import annotations

from typing import NamedTuple

from statecore.state import KeyedStateBackend, Window
from statecore.state.keyed_state import HeapListState
from statecore.windows.assigners import SessionWindows
from statecore.windows.library_state import LibraryListState

_SESSIONS = LibraryListState("__sessions", "struct<start:bigint,end:bigint,state_start:bigint,state_end:bigint>")


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
        opened_by: Returns the window that a record opens.

    """

    def __init__(self, backend: KeyedStateBackend, windows: SessionWindows) -> None:
        self.opened_by = windows.opened_by
        held = backend.get_list_state(_SESSIONS)
        assert isinstance(held, HeapListState)
        self._list = held

    def join_newest(self, window: Window, watermark: int) -> Session | None:
        """Let the window of a record join the newest session, as records in order do; None if it takes more than that.

        It takes more if the window reaches other sessions, or if the watermark has passed the session's end.
        """
        held = self._list.held()
        if not held:
            return None
        start, end, state_start, state_end = held[-1]
        if not start <= window.start <= end or end - 1 <= watermark:
            return None
        if window.end <= end:
            return Session(start, end, state_start, state_end)
        joined = Session(start, window.end, state_start, state_end)
        self._list.hold([*held[:-1], joined])
        return joined

    def merged(self, window: Window) -> tuple[Session, list[Session]]:
        """Return the session that a record's window makes, and the sessions that merge into it, earliest first."""
        parts = [Session(*held) for held in self._list.held() if held[0] <= window.end and window.start <= held[1]]
        if not parts:
            return Session(*window, *window), parts
        first, last = parts[0], parts[-1]
        return Session(min(first.start, window.start), max(last.end, window.end), *first.namespace), parts

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
