"""The first step of a rescale: it refuses what cannot be done, and shows what will be."""

from __future__ import annotations

from typing import Any

import msgspec
from airflow.sdk import BaseOperator, Context
from airflow.sdk.bases.skipmixin import SkipMixin

from statecore.catalog import JobRecord
from statecore.operations.downtime import Downtime, downtime_words, expected_downtime
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.plan import RescalePlan, newest_to_plan, plan_rescale
from statecore_airflow.faults import Place, fault_point
from statecore_airflow.operators.approval import ApprovalWhenAskedOperator
from statecore_airflow.operators.base import CatalogOperator, now_ms
from statecore_airflow.operators.step import change_id, find_run, require_free
from statecore_airflow.params.rescale import RescaleRequest


class PlanOperator(CatalogOperator, SkipMixin):
    """Plans a rescale from the job's newest epoch; nothing is changed. A dry run skips all other steps.

    The result is ``{"text": Markdown, "plan": RescalePlan, "rows": …, "skew": …, "downtime_ms": … or None}``; ``plan``
    is None for a live rescale of a job that has not committed an epoch yet.

    Args:
        **kwargs: See ``CatalogOperator``.

    """

    step = "plan"
    inherits_from_skipmixin = True

    def execute(self, context: Context) -> dict[str, Any]:
        """Check, plan, and show."""
        request = RescaleRequest.of(context["params"])
        with self.catalog() as catalog:
            fault_point(self.step, Place.BEGUN)
            # What the lease would refuse later, perhaps after somebody was asked to approve it; and before all else,
            # because how the job is while another run changes it is no reason.
            require_free(catalog, request.job, change_id(context))
            # A run that has begun was checked; when it is cleared, it may have stopped the job itself.
            has_begun = find_run(catalog, change_id(context)) is not None
            job = catalog.job(request.job) if has_begun else request.checked(catalog)
            planned = _planned(job, request)
            downtime = expected_downtime(catalog.rescale_runs(job.name), request.method)
            workers = None if job.cluster is None else catalog.cluster(job.cluster).desired_workers
        text = describe_plan(job, request, planned, workers, downtime)
        self.log.info("%s", text)
        result = {
            "text": text,
            "plan": None if planned is None else msgspec.to_builtins(planned),
            "rows": None if planned is None else planned.rows,
            "skew": None if planned is None else planned.skew,
            "downtime_ms": None if downtime is None else downtime.median_ms,
        }
        if self.has_dag():
            # What follows ends this task with an exception, so its result is put down here.
            context["ti"].xcom_push(key="return_value", value=result)
            self.skip(context["ti"], self._needless(request))
        return result

    def _needless(self, request: RescaleRequest) -> list[BaseOperator]:
        later = [task for task in self.get_flat_relatives(upstream=False) if not task.is_teardown]
        if request.dry_run:
            self.log.info("A dry run: nothing was changed, and nothing will be")
            return later
        return [] if request.approval else [task for task in later if isinstance(task, ApprovalWhenAskedOperator)]


def describe_plan(
    job: JobRecord, request: RescaleRequest, plan: RescalePlan | None, workers: int | None, downtime: Downtime | None
) -> str:
    """Return a plan in Markdown, for logs and for whoever has to approve it.

    Args:
        job: The job as it is.
        request: What was asked for.
        plan: What becomes of the state; None without any.
        workers: Workers as they are; None without a cluster.
        downtime: What earlier rescales by this method took; None when there was none.

    """
    lines = [
        f"Job {job.name}, method {request.method}: parallelism {job.parallelism} to {request.parallelism}"
        f"{_change(', workers', workers, request.workers)}"
        f"{_change(', max parallelism', job.max_parallelism, request.max_parallelism)}.",
        f"Reason: {request.reason or 'none given'}.",
        f"Expected downtime: {downtime_words(request.method, downtime)}.",
    ]
    if plan is None:
        return "\n\n".join([*lines, "No epoch is committed yet, so there is no state to plan for."])
    written = sum(subtask.bytes for subtask in plan.subtasks) if request.method == "rewrite" else 0
    lines.append(
        f"State as of epoch {plan.epoch} of lineage {plan.lineage}: {plan.rows:,} rows, {written:,} bytes to write, "
        f"skew {plan.skew:.2f} (rows of the fullest subtask per rows of the average one)."
    )
    lines += [f"Operator {uid} keeps its own parallelism, {fixed}." for uid, fixed in plan.fixed]
    table = ["| subtask | key groups | files | rows | bytes |", "| ---: | ---: | ---: | ---: | ---: |"]
    for each in plan.subtasks:
        start, end = each.key_groups
        table.append(f"| {each.subtask} | {start}..{end} | {each.files:,} | {each.rows:,} | {each.bytes:,} |")
    return "\n\n".join([*lines, "\n".join(table)])


def _planned(job: JobRecord, request: RescaleRequest) -> RescalePlan | None:
    store = CheckpointStore.at(job.store)
    if request.method == "live" and store.newest() is None:
        return None
    newest = newest_to_plan(store, job.name)
    path = store.manifest_path(newest.lineage, newest.epoch)
    # The stream goes on, and would clean up what it has followed by others.
    with claimed(store.files, path, f"the plan of a rescale to {request.parallelism}, {now_ms()}"):
        return plan_rescale(store, newest, request.parallelism, request.max_parallelism)


def _change(what: str, old: int | None, new: int | None) -> str:
    return "" if old is None or new is None or new == old else f"{what} {old} to {new}"
