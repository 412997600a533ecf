"""Figures of a committed epoch."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from statecore.model.watermarks import StreamTime
from statecore.runtime.epoch.sources_read import SourcesRead
from statecore.runtime.messages import SubtaskCommit
from statecore.runtime.worker.memory import NEARLY_FULL
from statecore.snapshot.manifest import Manifest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """When an epoch began and how long the driver took for its phases.

    Attributes:
        started_ms: Milliseconds since the epoch, UTC.
        run_s: Seconds in Spark.
        commit_s: Seconds until the manifest was written.
        publish_s: Seconds until all sinks had published the outputs.
        publish_ms: Milliseconds of each sink that had outputs.

    """

    started_ms: int
    run_s: float
    commit_s: float
    publish_s: float
    publish_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class EpochReport:
    """Figures of a committed and published epoch.

    Attributes:
        commits: Per operator uid its subtasks' commits, in order.
        cached_subtasks: Subtasks that found all of their state in memory.
        phases_ms: Duration of the driver's phases, and within ``run``: what Spark takes before and between the subtasks
            (``read``), the longest wait of a subtask for its input (``transfer``), and the longest of each other phase
            of the subtasks.
        memory_share: The largest share of its memory that a worker uses.
        host_share: The largest share of its memory that a worker's host uses; None if containers limit all workers.
        late_rows: Rows at or behind the watermark that applied to the epoch, per source with event time.
        publish_ms: Duration of publishing in each sink that had outputs.
        source_rows: Rows read, per source.
        source_times: Event time of each source that has event time.
        moved: The sources whose event time has moved in this epoch.

    """

    manifest: Manifest
    commits: Mapping[str, Sequence[SubtaskCommit]]
    started_ms: int
    duration_ms: int
    cached_subtasks: int
    phases_ms: Mapping[str, int]
    memory_share: float
    host_share: float | None
    late_rows: Mapping[str, int]
    publish_ms: Mapping[str, float]
    source_rows: Mapping[str, int]
    source_times: Mapping[str, StreamTime] = field(default_factory=dict)
    moved: Collection[str] = ()


def epoch_report(
    manifest: Manifest,
    commits: Mapping[str, Sequence[SubtaskCommit]],
    timing: Timing,
    read: SourcesRead,
    idle: Collection[str],
) -> EpochReport:
    """Return the figures of an epoch after which some sources are idle; warn about a worker whose memory is full."""
    every = [commit for of_operator in commits.values() for commit in of_operator]
    phases = {"run": _ms(timing.run_s), "commit": _ms(timing.commit_s), "publish": _ms(timing.publish_s)}
    phases["read"] = max(0, phases["run"] - sum(max(map(_took_ms, each)) for each in commits.values()))
    phases["transfer"] = max(commit.read_ms for commit in every)
    for phase in ("load_ms", "process_ms", "write_ms"):
        phases[phase.removesuffix("_ms")] = max(getattr(commit, phase) for commit in every)
    fullest = max(every, key=lambda commit: commit.memory_used / commit.memory_limit)
    share = fullest.memory_used / fullest.memory_limit
    if share >= NEARLY_FULL:
        _warn_of_memory(fullest)
    return EpochReport(
        manifest=manifest,
        commits=commits,
        started_ms=timing.started_ms,
        duration_ms=_ms(timing.run_s + timing.commit_s + timing.publish_s),
        cached_subtasks=sum(commit.cached_key_groups == commit.key_groups for commit in every),
        phases_ms=phases,
        memory_share=share,
        host_share=max((commit.host_share for commit in every if commit.host_share is not None), default=None),
        late_rows=read.late_rows,
        publish_ms=timing.publish_ms,
        source_rows=read.rows_of,
        source_times=read.times(idle),
        moved=read.moved,
    )


def _took_ms(commit: SubtaskCommit) -> int:
    return commit.load_ms + commit.read_ms + commit.process_ms + commit.write_ms


def _warn_of_memory(commit: SubtaskCommit) -> None:
    log.warning(
        "found the worker of subtask %d of %r with %.1f of %.1f GiB in use; expected less than %.0f %%, because state "
        "is kept in memory and a full worker is killed; rescale to a higher parallelism on more workers, give each "
        "more memory, or let state expire",
        commit.subtask, commit.uid, commit.memory_used / 2**30, commit.memory_limit / 2**30, NEARLY_FULL * 100,
    )  # fmt: skip


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
