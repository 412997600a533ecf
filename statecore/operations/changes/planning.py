"""The plan of a rescale, before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from statecore.catalog import Catalog, JobRecord, RescaleMethod
from statecore.operations.changes.request import RescaleRequest
from statecore.operations.downtime import Downtime, downtime_words, expected_downtime
from statecore.operations.kinds import kind_of
from statecore.queries.show import ShownCheckpoint
from statecore.snapshot.plan import RescalePlan

_EARLIER_RUNS = 50


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a rescale.

    Attributes:
        request: The requested rescale.
        method: How state gets to its new subtasks; ``auto`` is resolved.
        job: The job before the rescale.
        workers: Workers before the rescale; None without a cluster.
        contents: The plan of the job's state, or the checkpoint of a query of Spark's own; None for a job that has not
            committed an epoch.
        downtime: Downtime of earlier rescales by this method; None without any.

    """

    request: RescaleRequest
    method: RescaleMethod
    job: JobRecord
    workers: int | None
    contents: RescalePlan | ShownCheckpoint | None
    downtime: Downtime | None

    @property
    def state(self) -> RescalePlan | None:
        """The plan of the state of a job of statecore."""
        return self.contents if isinstance(self.contents, RescalePlan) else None

    @property
    def query(self) -> ShownCheckpoint | None:
        """The checkpoint of a query of Spark's own."""
        return self.contents if isinstance(self.contents, ShownCheckpoint) else None

    def markdown(self) -> str:
        """Return the plan for a log, or for the person who approves it."""
        request, job = self.request, self.job
        lines = [
            f"Job {job.name}, method {self.method}: parallelism {job.parallelism} to {request.parallelism}"
            f"{_change(', workers', self.workers, request.workers)}"
            f"{_change(', max parallelism', job.max_parallelism, request.max_parallelism)}.",
            f"Reason: {request.reason or 'none given'}.",
            f"Expected downtime: {downtime_words(self.method, self.downtime)}.",
        ]
        if self.query is not None:
            return "\n\n".join([*lines, *self.query_lines()])
        state = self.state
        if state is None:
            return "\n\n".join([*lines, "No epoch is committed yet, so there is no state to plan for."])
        lines.append(
            f"State as of epoch {state.epoch} of lineage {state.lineage}: {state.rows:,} rows, {state.bytes:,} bytes; "
            f"{state.bytes_written:,} bytes to write; "
            f"skew {state.skew:.2f} (rows of the fullest subtask per rows of the average one)."
        )
        lines += [f"Operator {each.uid}: {each.rows:,} rows, {each.bytes:,} bytes." for each in state.operators]
        lines += [f"Operator {uid} keeps its own parallelism, {fixed}." for uid, fixed in state.fixed]
        table = ["| subtask | key groups | files | rows | bytes |", "| ---: | ---: | ---: | ---: | ---: |"]
        for each in state.subtasks:
            start, end = each.key_groups
            table.append(f"| {each.subtask} | {start}..{end} | {each.files:,} | {each.rows:,} | {each.bytes:,} |")
        return "\n\n".join([*lines, "\n".join(table)])

    def query_lines(self) -> list[str]:
        """Describe the checkpoint of a query, in lines; none for a job of statecore."""
        return [] if self.query is None else list(_of_query(self.query))


def plan(catalog: Catalog, request: RescaleRequest, *, check: bool = True) -> Plan:
    """Plan a rescale from the job's newest epoch; changes nothing.

    Do not ``check`` a rescale that has begun: it was checked, and may have stopped the job.

    Raises:
        StatecoreError: The rescale is not possible; see ``RescaleRequest.checked``.

    """
    job = request.checked(catalog) if check else catalog.jobs.get(request.job)
    method = request.resolved(catalog)
    return Plan(
        request=request,
        method=method,
        job=job,
        workers=None if job.cluster is None else catalog.clusters.get(job.cluster).desired_workers,
        contents=kind_of(job).rescale_plan(request.parallelism, request.max_parallelism, method),
        downtime=expected_downtime(catalog.runs.of(job.name, limit=_EARLIER_RUNS), method),
    )


def _of_query(shown: ShownCheckpoint) -> Iterator[str]:
    yield f"Checkpoint {shown.path} at batch {shown.batch}: {shown.files:,} files, {shown.bytes:,} bytes."
    if shown.refusal is not None:
        yield f"It cannot be rescaled: {shown.refusal}"
    for each in shown.operators:
        known = [rows for rows in each.rows if rows is not None]
        rows = f"{sum(known):,} rows" if len(known) == len(each.rows) else "rows not recorded"
        skew = "" if each.skew is None else f", largest partition {each.skew:.2f} of the average"
        yield f"Operator {each.number}, {each.kind}: {each.partitions} state partitions, {rows}{skew}."


def _change(what: str, old: int | None, new: int | None) -> str:
    return "" if old is None or new is None or new == old else f"{what} {old} to {new}"
