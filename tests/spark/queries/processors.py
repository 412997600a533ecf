"""Functions with state that the streams' queries run in Spark's Python workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

OUTPUT = "k long, event string, n long, total long"
GAP_MS = 45 * 60_000
TTL_MS = 30 * 24 * 3_600_000


def count_until_idle(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Count and add up a key's rows until none has come for a while of event time or, without that, forever."""
    if state.hasTimedOut:
        n, total = state.get
        state.remove()
        yield _frame(key, "idle", n, total)
        return
    n, total = state.get if state.exists else (0, 0)
    for frame in frames:
        n, total = n + len(frame), total + int(frame["v"].sum())
    state.update((n, total))
    if state._timeout_conf == GroupStateTimeout.EventTimeTimeout:
        state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + GAP_MS)
    elif state._timeout_conf == GroupStateTimeout.ProcessingTimeTimeout:
        state.setTimeoutDuration(TTL_MS)
    yield _frame(key, "rows", n, total)


def _frame(key: tuple[Any, ...], event: str, n: int, total: int) -> pd.DataFrame:
    return pd.DataFrame({"k": pd.array([key[0]], dtype="Int64"), "event": [event], "n": [n], "total": [total]})


class EveryState(StatefulProcessor):
    """Remembers a key's rows in a value, a list and a map; a timer of event time sums up and forgets the list.

    Attributes:
        ttl_ms: Time to live of all three in milliseconds, or None. With one Spark counts entries of lists and maps.
        timers: Whether to register timers.

    """

    def __init__(self, ttl_ms: int | None, timers: bool) -> None:
        self.ttl_ms = ttl_ms
        self.timers = timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.totals = handle.getValueState("totals", "n long, total long", self.ttl_ms)
        self.values = handle.getListState("values", "v long, name string", self.ttl_ms)
        self.names = handle.getMapState("names", "name string", "n long", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        # Each call crosses a socket, which takes up to 40 ms.
        before = self.totals.get() or (0, 0)
        added = list(self.read(rows))
        n, total = before[0] + len(added), before[1] + sum(v for v, _ in added)
        self.totals.update((n, total))
        self.values.appendList(added)
        for name, count in sorted(Counter(name for _, name in added).items()):
            known = self.names.getValue((name,)) or (0,)
            self.names.updateValue((name,), (known[0] + count,))
        if self.timers:
            due = timerValues.getCurrentWatermarkInMs() + GAP_MS
            self.handle.registerTimer(due)
            self.handle.registerTimer(due + GAP_MS)
            self.handle.deleteTimer(due + GAP_MS // 2)
        yield self.written(key, "rows", n, total)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        values = list(self.values.get())
        weighed = sum(place * value[0] for place, value in enumerate(values, 1))
        self.values.clear()
        yield self.written(key, "timer", len(values), weighed)

    def read(self, rows: Iterator[Any]) -> Iterator[tuple[int, str]]:
        return ((row.v, row.name) for row in rows)

    def written(self, key: Any, event: str, n: int, total: int) -> Any:
        return Row(k=key[0], event=event, n=n, total=total)

    def close(self) -> None:
        pass


class EveryStateInPandas(EveryState):
    """The same, on data frames."""

    def read(self, rows: Iterator[Any]) -> Iterator[tuple[int, str]]:
        for frame in rows:
            for v, name in zip(frame["v"], frame["name"], strict=True):
                yield int(v), name

    def written(self, key: Any, event: str, n: int, total: int) -> Any:
        return _frame(key, event, n, total)
