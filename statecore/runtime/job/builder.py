"""The job that ``build(job)`` describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING

from statecore.arguments import require, require_callable
from statecore.errors import JobDefinitionError
from statecore.runtime.job.checks import check_name, check_sinks
from statecore.runtime.job.places import calling_line
from statecore.runtime.job.plans import JobPlan, Source
from statecore.runtime.job.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Job(JobPlan):
    """The job that ``build(job)`` describes.

    Attributes:
        settings: The job's settings as registered, read-only.

    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.settings: Mapping[str, str] = MappingProxyType(dict(settings or {}))

    def source(
        self,
        name: str,
        read: Callable[[SparkSession], DataFrame],
        event_time: str | None = None,
        max_lateness: timedelta | None = None,
        idle_after: timedelta | None = None,
    ) -> Stream:
        """Add a source.

        Args:
            name: Its identity in savepoints: letters, digits, ``_``, ``-`` and ``.``.
            read: Returns the streaming DataFrame, given a session. Limit what one epoch reads, for example with
                ``maxFilesPerTrigger``.
            event_time: Column of type timestamp with the records' event time. A null there means none.
            max_lateness: How far the watermark stays behind the newest event time; zero by default.
            idle_after: Time without records after which the watermark of the job goes on without this source. Without
                it, a source that has no records holds back the event time of all. Records that come later may be late.

        Returns:
            The source's records.

        Raises:
            JobDefinitionError: The name is taken or unusable, an argument has another type, the lateness is negative,
                ``idle_after`` is not positive, or one of the two comes without event time.

        """
        check_name("source", name, [source.name for source in self.sources])
        require_callable("read", read, "a function that returns a streaming DataFrame, given a session")
        require("event_time", event_time, (str, NoneType), "the name of a column")
        require("max_lateness", max_lateness, (timedelta, NoneType), "a timedelta")
        require("idle_after", idle_after, (timedelta, NoneType), "a timedelta")
        if max_lateness is not None and (event_time is None or max_lateness < timedelta(0)):
            raise JobDefinitionError(
                f"found max_lateness={max_lateness!r} and event_time={event_time!r} for source {name!r}; expected a "
                "timedelta that is not negative, and an event-time column; name the column, or omit max_lateness"
            )
        if idle_after is not None and (event_time is None or idle_after <= timedelta(0)):
            raise JobDefinitionError(
                f"found idle_after={idle_after!r} and event_time={event_time!r} for source {name!r}; expected a "
                "positive timedelta, and an event-time column; name the column, or omit idle_after"
            )
        lateness = max_lateness or timedelta(0)
        source = Source(name, read, event_time, lateness, idle_after, line=calling_line())
        self.sources.append(source)
        return Stream(self, (source,))

    def validated(self) -> Job:
        """Return this job if it can run.

        Raises:
            JobDefinitionError: It has no operator, a source that no operator reads, or two sinks with one folder.

        """
        if not self.operators:
            raise JobDefinitionError(
                f"found {len(self.sources)} sources and no operator; expected at least one; "
                "call process(…) on a stream in build(job)"
            )
        read = {each.name for operator in self.operators for each in operator.origins if isinstance(each, Source)}
        unread = [source.name for source in self.sources if source.name not in read]
        if unread:
            raise JobDefinitionError(
                f"found the sources {unread}, which no operator reads; expected every source to be read; "
                "remove them, or process them"
            )
        check_sinks(self.sinks)
        return self
