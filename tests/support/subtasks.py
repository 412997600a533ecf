"""All subtasks of one keyed function, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statecore import KeyedCoProcessFunction, KeyedProcessFunction, OutputTag, key_group_for, subtask_for_key_group
from statecore.testing import HarnessSnapshot, KeyedOperatorHarness, TwoInputOperatorHarness, physical

MAX_PARALLELISM = 128


class Subtasks:
    """Sends each record to the subtask of its key, a string in the field ``k``; a rescale goes through snapshots."""

    _harness: Any = KeyedOperatorHarness

    def __init__(
        self, function: Callable[[], KeyedProcessFunction | KeyedCoProcessFunction], parallelism: int = 1
    ) -> None:
        self._function = function
        self._outputs: list[Any] = []
        self._all = self._started(parallelism, [])

    def process(self, value: Any, timestamp_ms: int | None) -> None:
        """Push a record."""
        self._owner(value).process(value, timestamp_ms)

    def watermark(self, timestamp_ms: int) -> None:
        """Advance event time."""
        for each in self._all:
            each.watermark(timestamp_ms)

    def set_processing_time(self, timestamp_ms: int) -> None:
        """Set the epoch's time."""
        for each in self._all:
            each.set_processing_time(timestamp_ms)

    def rescale(self, parallelism: int) -> None:
        """Go on from a snapshot of all subtasks."""
        snapshots = [each.snapshot() for each in self._all]
        self._outputs += self._taken()
        self._all = self._started(parallelism, snapshots)

    def output(self) -> list[Any]:
        """Return the outputs since the last call."""
        taken, self._outputs = [*self._outputs, *self._taken()], []
        return taken

    def side_output(self, tag: OutputTag) -> list[Any]:
        """Return the rows of a side output since the last call or rescale."""
        taken = [row for each in self._all for row in each.side_output(tag)]
        for each in self._all:
            each.side_output(tag).clear()
        return taken

    def physical(self, state: str) -> dict[Any, Any]:
        """Return a state as it is stored."""
        return {key: stored for each in self._all for key, stored in physical(each.keyed_backend, state).items()}

    def _owner(self, value: Any) -> Any:
        group = key_group_for((value.k,), ["string"], MAX_PARALLELISM)
        return self._all[subtask_for_key_group(MAX_PARALLELISM, len(self._all), group)]

    def _taken(self) -> list[Any]:
        taken = [output for each in self._all for output in each.output]
        for each in self._all:
            each.output.clear()
        return taken

    def _started(self, parallelism: int, snapshots: list[HarnessSnapshot]) -> list[Any]:
        return [
            self._harness(self._function(), parallelism=parallelism, subtask=subtask, restore_from=snapshots)
            for subtask in range(parallelism)
        ]


class TwoInputSubtasks(Subtasks):
    """The same for a function on two connected streams; records of both have the key in the field ``k``."""

    _harness = TwoInputOperatorHarness

    def process1(self, value: Any, timestamp_ms: int | None) -> None:
        """Push a record of the first stream."""
        self._owner(value).process1(value, timestamp_ms)

    def process2(self, value: Any, timestamp_ms: int | None) -> None:
        """Push a record of the second stream."""
        self._owner(value).process2(value, timestamp_ms)
