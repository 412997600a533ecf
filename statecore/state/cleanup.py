"""Incremental clean-up: every access checks a few keys and removes expired state.

Like Flink's ``TtlIncrementalCleanup``, it walks through all keys and starts over at the end. A backend lives for one
epoch, which may be too short for a full walk, so each walk starts at a different key, derived from the epoch's time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from random import Random

from statecore.model import StateTtlConfig
from statecore.state.tables import KEEPERS, Scope, StateTable


class IncrementalCleanup:
    """Walks through the keys of one state whose time to live requests incremental clean-up."""

    def __init__(self, table: StateTable, ttl: StateTtlConfig, now_ms: Callable[[], int]) -> None:
        assert ttl.cleanup_incremental is not None
        self.every_record = ttl.cleanup_incremental[1]
        self._size = ttl.cleanup_incremental[0]
        self._table = table
        self._ttl_ms = ttl.ttl_ms
        self._now_ms = now_ms
        self._walk: Iterator[tuple[int, Scope]] = iter(())

    def run(self) -> None:
        """Check the next keys."""
        positions = list(islice(self._walk, self._size))
        if len(positions) < self._size:
            self._walk = _positions(self._table, Random(self._now_ms()))  # noqa: S311 - repeatable, not secret
            positions += islice(self._walk, self._size - len(positions))
        for key_group, scope in positions:
            self._check(key_group, scope)

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
        table.written[key_group].append(scope)
        table.changed_entries[key_group].pop(scope, None)


def _positions(table: StateTable, place: Random) -> Iterator[tuple[int, Scope]]:
    """Yield every key once, starting at a random key and wrapping around."""
    key_groups = sorted(key_group for key_group, rows in table.groups.items() if rows)
    if not key_groups:
        return
    first = place.randrange(len(key_groups))
    for key_group in key_groups[first:] + key_groups[:first]:
        # A copy, because the key group changes during the walk.
        scopes = list(table.groups[key_group])
        start = place.randrange(len(scopes)) if scopes else 0
        for scope in scopes[start:] + scopes[:start]:
            yield key_group, scope
