"""Sessions with contents that fold, in columns: the common cases, for all sessions of a subtask at once.

A part of a key's records joins the newest session of the key, or opens one after it; and a session ends. When more than
that happens to a key, its sessions move to the tables, where the window function finds them, and stay there until
they have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter

import numpy as np

from statecore.state import KeyedStateBackend
from statecore.state.batches import BatchKeys, Mask
from statecore.state.folding import Folding
from statecore.state.session_columns import End, Parts, SessionGroup, SessionTables
from statecore.state.tables import Key
from statecore.state.timers import key_text

_BY_ORDER = attrgetter("order")


class FoldedSessions:
    """The sessions of one subtask.

    Args:
        backend: Keyed state of the subtask.
        tables: The tables that hold the sessions which are not in columns.
        fold: Folds contents.

    """

    def __init__(self, backend: KeyedStateBackend, tables: SessionTables, fold: Folding) -> None:
        self._columns, self._tables, self._fold = backend.columns, tables, fold
        for key_group, held in list(tables.sessions.groups.items()):
            # Where a key group has columns, its sessions in the tables were released from them.
            if held and key_group not in self._columns:
                self._group(key_group).take(tables, key_group)

    def add(self, parts: Parts, keys: BatchKeys) -> Mask:
        """Add parts to sessions; return which parts need more, and must be processed one by one."""
        left = np.zeros(len(parts), np.bool_)
        for key_group, first, end in keys.runs():
            start, stop = np.searchsorted(parts.keys, (first, end)).tolist()
            if start < stop:
                self._tables.contents.windowed = self._tables.timers.windowed = True
                group, elsewhere = self._group(key_group), self._tables.sessions.groups[key_group]
                own = parts[start:stop]
                left[start:stop] = group.add(own, keys.scopes, elsewhere, self._fold)
        return left

    def release(self, key: Key, key_group: int) -> None:
        """Move the sessions of a key to the tables."""
        group = self._columns.get(key_group)
        if group is not None:
            group.release(key, self._tables, key_group)

    def end(self, watermark: int) -> Iterator[End]:
        """Remove the sessions whose end the watermark has reached; yield them as their timers would fire."""
        ends = [end for key_group, group in self._columns.items() for end in group.end(watermark, key_group)]
        ends.sort(key=_BY_ORDER)
        for _, same in groupby(ends, _BY_ORDER):
            tied = list(same)
            if len(tied) > 1:
                tied.sort(key=lambda end: key_text(end.key, end.namespace))
            yield from tied

    def _group(self, key_group: int) -> SessionGroup:
        group = self._columns.get(key_group)
        if group is None:
            names = tuple(table.name for table in self._tables)
            group = self._columns[key_group] = SessionGroup((names[0], names[1], names[2]))
            for table in self._tables:
                # A key group is detached with these, also when all its sessions are in columns.
                table.groups[key_group]
        return group
