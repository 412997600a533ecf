"""Routes: data of the charts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query

from statecore.catalog import MINUTE_MS, QUARTER_MS, Catalog, Epochs, KeyGroupsRecord, OperatorFigures, SourceBacklog
from statecore.catalog.rollups import KEPT_MS
from statecore.operations.status.rates import LATE_EPOCHS
from statecore_airflow.web.access import JobName
from statecore_airflow.web.answers import Mark, SeriesAnswer, Spread, SpreadAnswer
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter()

_FURTHEST = 90 * 1_440
"""Minutes that the oldest roll-up reaches back."""
_STEPS = 180
_EPOCHS_PER_STEP = 4
_UNITS_MS = (QUARTER_MS, MINUTE_MS, 1_000)
"""What steps are whole multiples of; the catalog has roll-ups of the first two."""
_PHASES = ("read", "transfer", "work", "commit", "publish")
"""Phases that add up to an epoch; ``work`` is what the other two leave of ``run``."""
_BINS = 512
_MARKED = 50


@router.get("/api/series")
def get_series(
    name: JobName,
    catalog: CatalogDep,
    minutes: Annotated[int, Query(ge=1, le=_FURTHEST, description="How far back.")] = 15,
    until_ms: Annotated[int | None, Query(ge=0, description="End of the span; now by default.")] = None,
) -> SeriesAnswer:
    """Return a job's figures over time, in as many steps as a screen shows."""
    catalog.jobs.get(name)
    now_ms = catalog.now_ms()
    end_ms = now_ms if until_ms is None else min(until_ms, now_ms)
    step_ms = _step_ms(catalog.epochs, name, minutes, now_ms, end_ms)
    # Whole steps only: one that has not ended would look like a drop.
    until_ms = min(-(-end_ms // step_ms), now_ms // step_ms) * step_ms
    since_ms = until_ms - -(-minutes * 60_000 // step_ms) * step_ms
    points = catalog.epochs.series(name, since_ms=since_ms, until_ms=until_ms, step_ms=step_ms)
    open_ms = _open_since_ms(catalog.epochs, name, now_ms)
    backlogs = [point.backlog or SourceBacklog("") for point in points]
    phases = [phases_of(point.phases) for point in points]
    return SeriesAnswer(
        now_ms=now_ms,
        since_ms=since_ms,
        until_ms=end_ms,
        step_ms=step_ms,
        at_ms=[point.at_ms for point in points],
        rows_per_second=[point.rows_per_second if point.at_ms + step_ms <= open_ms else None for point in points],
        backlog_records=[backlog.records for backlog in backlogs],
        backlog_bytes=[backlog.bytes for backlog in backlogs],
        backlog_files=[backlog.files for backlog in backlogs],
        event_time_lag_ms=[backlog.event_time_lag_ms for backlog in backlogs],
        epoch_ms=[point.epoch_ms for point in points],
        phases={phase: [each.get(phase) for each in phases] for phase in _PHASES},
        parallelism=[point.parallelism for point in points],
        marks=_marks(catalog, name, since_ms, end_ms),
    )


@router.get("/api/key-groups")
def get_key_groups(name: JobName, catalog: CatalogDep) -> SpreadAnswer:
    """Return the distribution of a job's keyed state."""
    catalog.jobs.get(name)
    newest = catalog.epochs.subtasks(name, limit=1)
    figures = {operator.uid: operator for operator in (newest[0].operators if newest else ())}
    operators = [_spread(sample, figures.get(sample.uid)) for sample in catalog.epochs.key_groups(name)]
    return SpreadAnswer(now_ms=catalog.now_ms(), operators=operators)


def _step_ms(epochs: Epochs, name: str, minutes: int, now_ms: int, end_ms: int) -> int:
    """Return a step long enough for a few epochs, and no shorter than what is still known of that time.

    With too few epochs per step, the rate would oscillate.
    """
    newest = epochs.of(name, limit=10)
    apart_ms = 0
    if len(newest) > 1:
        apart_ms = (newest[-1].committed_ms - newest[0].committed_ms) // (len(newest) - 1)
    # Capped, so that a pause of the job does not make all steps long.
    wanted_ms = min(_EPOCHS_PER_STEP * apart_ms, minutes * 60_000 // 15)
    step_ms = max(minutes * 60_000 // _STEPS, wanted_ms, _UNITS_MS[-1])
    # Rounded to the nearest: eight minutes would be read from a minute's roll-ups, 1,440 of a day.
    unit_ms = next((unit_ms for unit_ms in _UNITS_MS if 2 * step_ms >= unit_ms), _UNITS_MS[-1])
    unit_ms = max(unit_ms, _known_ms(epochs, name, now_ms, end_ms - minutes * 60_000))
    return -(-step_ms // unit_ms) * unit_ms


def _known_ms(epochs: Epochs, name: str, now_ms: int, since_ms: int) -> int:
    """Return the shortest unit that is still known of a job since a time."""
    if since_ms < now_ms - KEPT_MS[MINUTE_MS]:
        return QUARTER_MS
    return _UNITS_MS[-1] if epochs.has_all_since(name, since_ms) else MINUTE_MS


def _open_since_ms(epochs: Epochs, name: str, now_ms: int) -> int:
    """Return the time from which rows are unknown: those of a running epoch are counted at its commit."""
    newest = epochs.of(name, limit=1)
    if not newest or now_ms - newest[0].committed_ms > LATE_EPOCHS * newest[0].duration_ms:
        return now_ms
    return newest[0].committed_ms


def phases_of(phases: Mapping[str, float]) -> Mapping[str, float]:
    """Return the phases that add up to an epoch; earlier releases recorded no ``read`` and no ``transfer``."""
    if "run" not in phases:
        return {}
    within = {phase: phases.get(phase, 0.0) for phase in ("read", "transfer")}
    return {**phases, **within, "work": max(0.0, phases["run"] - sum(within.values()))}


def _marks(catalog: Catalog, name: str, since_ms: int, until_ms: int) -> list[Mark]:
    """Return the marks of the newest rescales and decisions of the policy in a span."""
    rescales = [
        Mark(
            at_ms=run.created_ms,
            kind=f"rescale {run.state}",
            text=f"{run.from_parallelism} → {run.to_parallelism}" if run.artifact is None else "upgrade",
        )
        for run in catalog.runs.of(name, limit=_MARKED, since_ms=since_ms, until_ms=until_ms)
    ]
    decisions = [
        Mark(
            at_ms=each.decided_ms,
            kind=f"decision {each.state}",
            text=f"{'would take' if each.state == 'observed' else 'decided'} {each.to_parallelism}",
        )
        for each in catalog.policies.decisions(name, limit=_MARKED, since_ms=since_ms, until_ms=until_ms)
    ]
    return rescales + decisions


def _spread(sample: KeyGroupsRecord, figures: OperatorFigures | None) -> Spread:
    groups = len(sample.rows)
    per_bin = max(1, -(-groups // _BINS))
    # Without figures per subtask the borders are unknown: show one range.
    owned = figures.key_groups if figures is not None and sum(figures.key_groups) == groups else (groups,)
    ends = list(itertools.accumulate(owned))
    rows = [sum(sample.rows[end - count : end]) for count, end in zip(owned, ends, strict=True)]
    return Spread(
        uid=sample.uid,
        measured_ms=sample.committed_ms,
        max_parallelism=groups,
        groups_per_bin=per_bin,
        rows=[sum(sample.rows[first : first + per_bin]) for first in range(0, groups, per_bin)],
        borders=ends[:-1],
        rows_of_subtasks=rows,
        skew=max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0,
    )
