"""Selects the savepoints of a job that retention drops."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statecore.catalog.records import SavepointRecord


def superfluous_savepoints(
    savepoints: Sequence[SavepointRecord], *, keep: int, max_age_ms: int, now_ms: int, needed: Collection[str] = ()
) -> list[SavepointRecord]:
    """Return the savepoints beyond the newest ``keep`` and those older than ``max_age_ms``, oldest first.

    The newest one always stays, whatever its age: it may be the only one left. Savepoints at the paths ``needed``,
    which are in use, stay and count towards ``keep``.
    """
    newest_first = sorted(savepoints, key=lambda each: (each.created_ms, each.epoch), reverse=True)
    surplus = [
        each
        for position, each in enumerate(newest_first)
        if position >= max(keep, 1) or (position > 0 and now_ms - each.created_ms > max_age_ms)
    ]
    return [each for each in reversed(surplus) if each.path not in needed]
