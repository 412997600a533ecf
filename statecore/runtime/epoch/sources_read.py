"""An epoch's reads from the job's sources: records, event time, positions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from statecore.model.watermarks import StreamTime, combined_watermark
from statecore.runtime.job import Job, Source
from statecore.runtime.messages import StreamRead, SubtaskCommit
from statecore.snapshot.manifest import SourcePositions


class SourcesRead:
    """Figures of an epoch's sources, gathered from the commits of the operators that read them.

    Attributes:
        rows: Records of all sources.
        rows_of: Records of each source.
        moved: The sources whose newest event time has moved.
        late_rows: Per source with event time, the number of records that the watermark had passed.

    Args:
        job: The job.
        commits: Per operator uid its subtasks' commits.
        before: The sources after the previous epoch.
        observed: What was read of the sources that are transformed before operators read them.

    """

    def __init__(
        self,
        job: Job,
        commits: Mapping[str, Sequence[SubtaskCommit]],
        before: Sequence[SourcePositions],
        observed: Mapping[str, StreamRead],
    ) -> None:
        self._sources = job.sources
        self._newest = {source.name: source.max_event_time_ms for source in before}
        known = dict(self._newest)
        self.rows_of: dict[str, int] = {}
        late: dict[str, int] = {}
        for operator in job.operators:
            reads = [commit.read for commit in commits[operator.uid]]
            first_broadcast = len(operator.first.origins) if operator.broadcast else len(operator.origins)
            for number, origin in enumerate(operator.origins):
                if isinstance(origin, Source):
                    # Every subtask has read the whole broadcast input.
                    read = [each[number] for each in (reads if number < first_broadcast else reads[:1])]
                    # Another reader of the source has read the same records.
                    self.rows_of[origin.name] = sum(each.rows for each in read)
                    late[origin.name] = sum(each.late_rows for each in read)
                    self._note(origin, [each.max_event_time_ms for each in read])
        sources = {source.name: source for source in job.sources}
        for name, each in observed.items():
            self.rows_of[name] = each.rows
            self._note(sources[name], [each.max_event_time_ms])
        self.moved = frozenset(name for name, newest in self._newest.items() if newest != known.get(name))
        self.rows = sum(self.rows_of.values())
        self.late_rows = {source.name: late[source.name] for source in job.sources if source.event_time is not None}

    def watermark_ms(self, before: int | None, idle: Collection[str]) -> int | None:
        """Return the watermark after the epoch: that of the source that is furthest behind.

        Sources without event time do not hold it back.

        Args:
            before: The watermark before the epoch.
            idle: The sources that are idle.

        """
        return combined_watermark(before, list(self.times(idle).values()))

    def times(self, idle: Collection[str]) -> dict[str, StreamTime]:
        """Return the event time of each source that has event time; ``idle`` are the sources that are idle."""
        timed = [source for source in self._sources if source.event_time is not None]
        return {source.name: StreamTime(self._stands(source), source.name in idle) for source in timed}

    def positions(self, positions: Sequence[tuple[str, ...]]) -> tuple[SourcePositions, ...]:
        """Return the manifest's record of the sources; positions are in the order of the sources."""
        return tuple(
            SourcePositions(name=source.name, positions=own, max_event_time_ms=self._newest.get(source.name))
            for source, own in zip(self._sources, positions, strict=True)
        )

    def _note(self, source: Source, times: Sequence[int | None]) -> None:
        seen = [time for time in (self._newest.get(source.name), *times) if time is not None]
        self._newest[source.name] = max(seen, default=None)

    def _stands(self, source: Source) -> int | None:
        newest = self._newest.get(source.name)
        # One millisecond behind, as in Flink: another record with the newest event time may still arrive.
        return None if newest is None else newest - source.max_lateness // timedelta(milliseconds=1) - 1
