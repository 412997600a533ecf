"""Converts the reports of an epoch's subtasks to the catalog's records."""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import nlargest
from operator import attrgetter

import msgspec

from statecore.catalog import (
    Catalog,
    EpochRecord,
    HeavyKeyFigure,
    HeavyKeyGroupFigure,
    KeyGroupsRecord,
    OperatorFigures,
    SourceBacklog,
    SourceTime,
    SystemClock,
)
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.runtime.epoch.report import EpochReport
from statecore.runtime.messages import SubtaskCommit
from statecore.snapshot.manifest import Manifest, OperatorState

log = logging.getLogger(__name__)


_MOST_WAITING = 1_000
_CLOSE_TIMEOUT_S = 10.0
# A smaller difference is the duration of the query itself.
_SKEW_MS = 1_000
# For keys, and for key groups.
_HEAVIEST = 8


class EpochRecorder:
    """Records the figures of each epoch, with the backlog after it, in the catalog.

    A thread writes them, so that a catalog that does not answer delays no epoch. The figures are informational: what
    cannot be recorded is logged, and the stream continues.
    """

    def __init__(self, catalog: Catalog, backlog: BacklogMonitor) -> None:
        self._catalog = catalog
        self._backlog = backlog
        self._times: dict[str, SourceTime] = {}
        self._waiting: queue.Queue[_Figures | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, name="statecore-metrics", daemon=True)
        self._thread.start()

    def committed(self, report: EpochReport) -> None:
        """Record an epoch soon; never raises."""
        try:
            self._times = _source_times(self._times, report)
            self._waiting.put_nowait(_figures(report, self._backlog.committed(report.manifest), self._times))
        except Exception:
            log.exception("the figures of epoch %d are not recorded", report.manifest.epoch)

    def close(self) -> None:
        """Record the queued epochs; give up after 20 seconds."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSE_TIMEOUT_S)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while (figures := self._waiting.get()) is not None:
            try:
                epoch = self._by_the_catalog(figures.epoch)
                self._catalog.epochs.record(epoch, operators=figures.operators, key_groups=figures.key_groups)
            except Exception:
                log.exception("the figures of epoch %d could not be recorded", figures.epoch.epoch)

    def _by_the_catalog(self, epoch: EpochRecord) -> EpochRecord:
        """Return an epoch with the times of the catalog's clock, which all its records have."""
        skew_ms = self._catalog.now_ms() - SystemClock().now_ms()
        if abs(skew_ms) < _SKEW_MS:
            return epoch
        times = {
            name: each if each.moved_ms is None else replace(each, moved_ms=each.moved_ms + skew_ms)
            for name, each in epoch.source_times.items()
        }
        started_ms, committed_ms = epoch.started_ms + skew_ms, epoch.committed_ms + skew_ms
        return replace(epoch, started_ms=started_ms, committed_ms=committed_ms, source_times=times)


@dataclass(frozen=True, slots=True)
class _Figures:
    """What the catalog records of an epoch."""

    epoch: EpochRecord
    operators: Sequence[OperatorFigures]
    key_groups: Sequence[KeyGroupsRecord]


def _source_times(before: Mapping[str, SourceTime], report: EpochReport) -> dict[str, SourceTime]:
    """Return the event time of the sources after an epoch; ``before`` is that after this driver's epoch before."""
    times = {}
    for name, stream in report.source_times.items():
        known_ms = before[name].moved_ms if name in before else None
        moved_ms = report.manifest.committed_ms if name in report.moved else known_ms
        times[name] = SourceTime(stream.watermark_ms, stream.idle, moved_ms)
    return times


def _figures(
    report: EpochReport, backlog: tuple[SourceBacklog, ...], source_times: Mapping[str, SourceTime]
) -> _Figures:
    manifest = report.manifest
    epoch = EpochRecord(
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        generation=manifest.generation,
        parallelism=manifest.parallelism,
        rows=manifest.rows,
        rows_total=manifest.rows_total,
        started_ms=report.started_ms,
        committed_ms=manifest.committed_ms,
        duration_ms=report.duration_ms,
        phases={name: float(ms) for name, ms in report.phases_ms.items()},
        cache_hits=report.cached_subtasks,
        subtasks=sum(map(len, report.commits.values())),
        backlog=backlog,
        memory_share=report.memory_share,
        host_share=report.host_share,
        late_rows=dict(report.late_rows),
        rows_out=manifest.rows_out,
        state_rows=manifest.state_rows,
        state_bytes=manifest.state_bytes,
        publish_ms=dict(report.publish_ms),
        watermark_ms=manifest.watermark_ms,
        source_times=dict(source_times),
        metrics={
            each.uid: each.metrics for each in manifest.operators if not isinstance(each.metrics, msgspec.UnsetType)
        },
        source_rows=dict(report.source_rows),
        sink_rows=manifest.rows_of_sinks,
    )
    operators = [_of_operator(uid, commits) for uid, commits in report.commits.items()]
    return _Figures(epoch, operators, list(_key_groups(manifest, report.commits)))


def _of_operator(uid: str, commits: Sequence[SubtaskCommit]) -> OperatorFigures:
    return OperatorFigures(
        uid=uid,
        rows=tuple(commit.rows for commit in commits),
        load_ms=tuple(commit.load_ms for commit in commits),
        process_ms=tuple(commit.process_ms for commit in commits),
        write_ms=tuple(commit.write_ms for commit in commits),
        cached_key_groups=tuple(commit.cached_key_groups for commit in commits),
        key_groups=tuple(commit.key_groups for commit in commits),
        read_ms=tuple(commit.read_ms for commit in commits),
        heavy_keys=_heavy_keys(commits),
        heavy_key_groups=_heavy_key_groups(commits),
    )


def _heavy_keys(commits: Sequence[SubtaskCommit]) -> tuple[HeavyKeyFigure, ...]:
    """Return the keys with the largest shares of the work of all subtasks; one subtask has all rows of a key."""
    figures = [
        HeavyKeyFigure(heavy.key, round(heavy.share * part, 4), heavy.key_group)
        for commit, part in zip(commits, _parts(commits), strict=True)
        for heavy in commit.heavy_keys
    ]
    return tuple(nlargest(_HEAVIEST, figures, key=attrgetter("share")))


def _heavy_key_groups(commits: Sequence[SubtaskCommit]) -> tuple[HeavyKeyGroupFigure, ...]:
    """Return the key groups likewise."""
    figures = [
        HeavyKeyGroupFigure(heavy.key_group, round(heavy.share * part, 4))
        for commit, part in zip(commits, _parts(commits), strict=True)
        for heavy in commit.heavy_key_groups
    ]
    return tuple(nlargest(_HEAVIEST, figures, key=attrgetter("share")))


def _parts(commits: Sequence[SubtaskCommit]) -> list[float]:
    """Return the share of each subtask in the work of all."""
    work = [commit.read_ms + commit.process_ms for commit in commits]
    if not any(work):
        work = [commit.rows for commit in commits]
    whole = max(1, sum(work))
    return [own / whole for own in work]


def _key_groups(manifest: Manifest, commits: Mapping[str, Sequence[SubtaskCommit]]) -> Iterator[KeyGroupsRecord]:
    """Yield the state per key group of each keyed operator whose subtasks counted it."""
    for operator in manifest.operators:
        counted = commits[operator.uid]
        if any(commit.key_group_rows is None for commit in counted):
            continue
        yield KeyGroupsRecord(
            job=manifest.job,
            lineage=manifest.lineage,
            epoch=manifest.epoch,
            uid=operator.uid,
            committed_ms=manifest.committed_ms,
            rows=_spread(counted, defaultdict(lambda: 1.0)),
            bytes=_spread(counted, _row_bytes(operator)),
        )


def _spread(commits: Sequence[SubtaskCommit], weights: Mapping[str, float]) -> tuple[int, ...]:
    """Return the rows of each key group, weighted by state."""
    # The subtasks' ranges are contiguous, from the first key group to the last.
    return tuple(
        round(sum(rows[group] * weights[state] for state, rows in (commit.key_group_rows or {}).items()))
        for commit in commits
        for group in range(commit.key_groups)
    )


def _row_bytes(operator: OperatorState) -> Mapping[str, float]:
    """Return per state the average size of a row in its files, in bytes."""
    size: dict[str, int] = defaultdict(int)
    rows: dict[str, int] = defaultdict(int)
    for item in (item for subtask in operator.subtasks for item in subtask.keyed):
        size[item.state] += item.file.size
        rows[item.state] += item.rows
    return defaultdict(float, {state: size[state] / rows[state] for state in size if rows[state]})
