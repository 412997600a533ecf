"""Tables for the end of the demo: epochs around each rescale, and how long each step of a rescale took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter

from rich import box
from rich.table import Table

from examples.demo.feeder import Fed, rows_fed_by
from statecore.catalog import EpochRecord, RescaleRunRecord, StepTimes

_BEFORE, _AFTER = 3, 5
"""Epochs shown before and after a change of parallelism."""


def epoch_table(epochs: Sequence[EpochRecord], history: Sequence[Fed]) -> Table:
    """Return the epochs around each change of parallelism.

    ``hits`` are the subtasks that found their state in memory, out of all that ran.

    Args:
        epochs: All epochs of the job, in any order.
        history: All deliveries; the backlog is the number of rows visible at the commit but not yet read.

    """
    table = Table(title="Epochs around each rescale", box=box.SIMPLE_HEAD)
    for heading in (
        "lineage",
        "epoch",
        "parallelism",
        "rows",
        "seconds",
        "rows/s",
        "backlog",
        "hits",
    ):
        table.add_column(heading, justify="right")
    shown_before = None
    in_order = sorted(epochs, key=lambda epoch: epoch.committed_ms)
    for position in _around_changes([epoch.parallelism for epoch in in_order]):
        if shown_before is not None and position > shown_before + 1:
            table.add_row(*["..."] * len(table.columns))
        elif shown_before is not None and in_order[position].parallelism != in_order[shown_before].parallelism:
            table.add_section()
        table.add_row(*_epoch_cells(in_order[position], history))
        shown_before = position
    return table


def step_table(runs: Sequence[RescaleRunRecord]) -> Table:
    """Return the duration of each step of each rescale run, in seconds."""
    table = Table(title="Duration of each step", box=box.SIMPLE_HEAD)
    table.add_column("step")
    in_order = sorted(runs, key=lambda run: run.created_ms)
    for run in in_order:
        table.add_column(f"{run.from_parallelism} -> {run.to_parallelism}, {run.method}", justify="right")
    for step in _steps_of_all(in_order):
        table.add_row(step, *(_seconds(run.steps.get(step, StepTimes())) for run in in_order))
    table.add_section()
    table.add_row("from first start to last end", *(_seconds(_whole(run)) for run in in_order))
    return table


def _around_changes(parallelisms: Sequence[int]) -> Iterator[int]:
    """Yield, in order, the positions near a change of parallelism."""
    changes = [i for i in range(1, len(parallelisms)) if parallelisms[i] != parallelisms[i - 1]]
    for position in range(len(parallelisms)):
        if any(change - _BEFORE <= position < change + _AFTER for change in changes):
            yield position


def _epoch_cells(epoch: EpochRecord, history: Sequence[Fed]) -> list[str]:
    seconds = epoch.duration_ms / 1000
    return [
        str(epoch.lineage),
        str(epoch.epoch),
        str(epoch.parallelism),
        f"{epoch.rows:,}",
        f"{seconds:.2f}",
        f"{epoch.rows / seconds:,.0f}" if seconds else "-",
        f"{rows_fed_by(history, epoch.committed_ms) - epoch.rows_total:,}",
        f"{epoch.cache_hits}/{epoch.subtasks}",
    ]


def _steps_of_all(runs: Sequence[RescaleRunRecord]) -> list[str]:
    """Merge the steps of all runs into one order that preserves the order of each run."""
    merged = TopologicalSorter[str]()
    for run in runs:
        steps = _steps_in_order(run)
        for position, step in enumerate(steps):
            merged.add(step, *steps[:position])
    return list(merged.static_order())


def _steps_in_order(run: RescaleRunRecord) -> list[str]:
    started = {step: times.started_ms for step, times in run.steps.items() if times.started_ms is not None}
    return sorted(started, key=started.__getitem__)


def _whole(run: RescaleRunRecord) -> StepTimes:
    started = [times.started_ms for times in run.steps.values() if times.started_ms is not None]
    ended = [times.ended_ms for times in run.steps.values() if times.ended_ms is not None]
    return StepTimes(min(started, default=None), max(ended, default=None))


def _seconds(times: StepTimes) -> str:
    if times.started_ms is None or times.ended_ms is None:
        return "-"
    return f"{(times.ended_ms - times.started_ms) / 1000:.1f} s"
