"""Converts the reports of an epoch's subtasks to the catalog's records."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from statecore.catalog import Catalog, EpochRecord, KeyGroupsRecord, OperatorFigures
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.runtime.epoch.report import EpochReport
from statecore.runtime.messages import SubtaskCommit
from statecore.snapshot.manifest import Manifest, OperatorState

log = logging.getLogger(__name__)


class EpochRecorder:
    """Records the figures of each epoch, with the backlog after it, in the catalog."""

    def __init__(self, catalog: Catalog, backlog: BacklogMonitor) -> None:
        self._catalog = catalog
        self._backlog = backlog

    def committed(self, report: EpochReport) -> None:
        """Record an epoch; the figures are informational, so a failure is logged and the stream continues."""
        try:
            self._record(report)
        except Exception:
            log.exception("the figures of epoch %d could not be recorded", report.manifest.epoch)

    def _record(self, report: EpochReport) -> None:
        manifest = report.manifest
        record = EpochRecord(
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
            backlog=self._backlog.committed(manifest),
            memory_share=report.memory_share,
            late_rows=dict(report.late_rows),
            rows_out=manifest.rows_out,
            state_rows=manifest.state_rows,
            state_bytes=manifest.state_bytes,
        )
        operators = [_figures(uid, commits) for uid, commits in report.commits.items()]
        self._catalog.record_epoch(record, operators=operators, key_groups=list(_key_groups(manifest, report.commits)))


def _figures(uid: str, commits: Sequence[SubtaskCommit]) -> OperatorFigures:
    return OperatorFigures(
        uid=uid,
        rows=tuple(commit.rows + commit.broadcast_rows for commit in commits),
        load_ms=tuple(commit.load_ms for commit in commits),
        process_ms=tuple(commit.process_ms for commit in commits),
        write_ms=tuple(commit.write_ms for commit in commits),
        cached_key_groups=tuple(commit.cached_key_groups for commit in commits),
        key_groups=tuple(commit.key_groups for commit in commits),
    )


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
