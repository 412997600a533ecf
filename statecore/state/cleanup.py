"""Incremental clean-up: a few keys are looked at on every access, and what has expired is removed.

As in Flink's ``TtlIncrementalCleanup``: one walk through all keys, which goes on where it stopped and begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from statecore.model import StateTtlConfig
from statecore.state.tables import KEEPERS, Scope, StateTable


class IncrementalCleanup:
    """Walks through one state's keys.

    Args:
        table: The state.
        ttl: Its time to live, with an incremental clean-up.
        now_ms: The epoch's clock.

    """

    def __init__(self, table: StateTable, ttl: StateTtlConfig, now_ms: Callable[[], int]) -> None:
        assert ttl.cleanup_incremental is not None
        self.every_record = ttl.cleanup_incremental[1]
        self._size = ttl.cleanup_incremental[0]
        self._table = table
        self._ttl_ms = ttl.ttl_ms
        self._now_ms = now_ms
        self._walk: Iterator[tuple[int, Scope]] = iter(())

    def run(self) -> None:
        """Look at the next keys."""
        for _ in range(self._size):
            position = next(self._walk, None)
            if position is None:
                self._walk = _positions(self._table)
                position = next(self._walk, None)
                if position is None:
                    return
            self._check(*position)

    def _check(self, key_group: int, scope: Scope) -> None:
        table = self._table
        rows = table.groups[key_group]
        stored = rows.get(scope)
        if stored is None:
            return
        kept = KEEPERS[table.kind](stored, self._ttl_ms, self._now_ms())
        if kept is None:
            del rows[scope]
        elif len(kept) < len(stored):
            rows[scope] = kept
        else:
            return
        table.changed[key_group].add(scope)
        table.changed_entries[key_group].pop(scope, None)


def _positions(table: StateTable) -> Iterator[tuple[int, Scope]]:
    for key_group in sorted(table.groups):
        # A copy, since the key group changes while it is walked through.
        for scope in list(table.groups[key_group]):
            yield key_group, scope
