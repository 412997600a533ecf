"""Detects idle sources, so that the watermark advances without them.

Only the driver's memory knows when a source last had records. So the time in which no driver runs does not count:
after an outage, records that wait in a source are read before it can be found idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from statecore.runtime.job import Source


class Idleness:
    """Tracks which sources have had no record for longer than their ``idle_after``.

    Args:
        sources: The job's sources.
        now_ms: The time when the driver starts.

    """

    def __init__(self, sources: Sequence[Source], now_ms: int) -> None:
        self._after_ms = {
            source.name: source.idle_after // timedelta(milliseconds=1)
            for source in sources
            if source.idle_after is not None
        }
        self._active_ms = dict.fromkeys(self._after_ms, now_ms)

    def note(self, rows: Mapping[str, int], now_ms: int) -> frozenset[str]:
        """Note the records of an epoch; return the sources that are idle after it.

        Args:
            rows: Per source the number of its records.
            now_ms: The epoch's time.

        """
        for name in self._after_ms:
            if rows.get(name):
                self._active_ms[name] = now_ms
        return frozenset(name for name, due_ms in self._due_ms().items() if due_ms <= now_ms)

    def next_ms(self, now_ms: int) -> int | None:
        """Return the time when the next source will be idle unless it has records; None when there is none."""
        return min((due_ms for due_ms in self._due_ms().values() if due_ms > now_ms), default=None)

    def _due_ms(self) -> dict[str, int]:
        return {name: active_ms + self._after_ms[name] + 1 for name, active_ms in self._active_ms.items()}
