"""The tasks of the DAG ``autoscale``: each decision becomes one run of the DAG ``rescale``."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException
from airflow.utils.state import DagRunState

from statecore.catalog import Catalog, DecisionRecord
from statecore.errors import StatecoreError
from statecore.operations.autoscaling.evaluation import LAPSES_AFTER_MS, decision_words
from statecore.operations.changes import find_run
from statecore_airflow.hooks.settings import CATALOG_CONNECTION, CatalogSettings
from statecore_airflow.notifications.job import Event, JobNotifier
from statecore_airflow.operators.base import CatalogWideOperator, open_catalog
from statecore_airflow.operators.trigger_rescale import TriggerRescaleOperator
from statecore_airflow.triggers.autoscale import payload_of


class TakeDecisionsOperator(CatalogWideOperator):
    """Returns the decisions that triggered the run; for a run triggered by hand, the open ones."""

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Read the events; a run may carry several, and a decision may have been announced twice."""
        events = [event for of_asset in context["triggering_asset_events"].values() for event in of_asset]
        # An event that a person created announces no decision.
        payloads = [event.extra["payload"] for event in events if "payload" in event.extra]
        announced = {payload["decision"]: payload for payload in payloads}
        if announced:
            return list(announced.values())
        with open_catalog(self.conn_id) as catalog:
            return [payload_of(decision) for decision in catalog.policies.open_decisions()]


def give_up(context: Context) -> None:
    """Record that a decision failed, with its task's error."""
    task: Any = context["task"]
    with Catalog(CatalogSettings.load(task.conn_id).url) as catalog:
        reason = context.get("exception") or "the task was ended from outside"
        catalog.policies.end_decision(task.decision["decision"], "failed", str(reason))


class CarryOutOperator(TriggerRescaleOperator):
    """Has the DAG ``rescale`` carry out one decision of ``TakeDecisionsOperator``, and records the outcome.

    It sends a message when it takes up a decision. A decision that was only observed is sent, but not carried out.

    A refusal is no error: another run is changing the job, and the policy decides again later.
    """

    def __init__(self, *, decision: dict[str, Any], conn_id: str = CATALOG_CONNECTION, **kwargs: Any) -> None:
        job = decision["job"]
        # A mapped task passes None instead of leaving the argument out.
        kwargs["on_failure_callback"] = kwargs.get("on_failure_callback") or [
            give_up,
            JobNotifier(Event.FAILED, job=job),
        ]
        # If two tasks have the same decision at once, the second finds the run and waits for it.
        super().__init__(job=job, skip_when_already_exists=True, **kwargs)
        self.decision = decision
        self.conn_id = conn_id

    def execute(self, context: Context) -> None:
        """Trigger the rescale, unless the decision has ended."""
        with open_catalog(self.conn_id) as catalog:
            decision = catalog.policies.decision(self.decision["decision"])
            was = decision.state
            if was == "open":
                decision = self._take(catalog, decision)
        if (was, decision.state) in (("open", "triggered"), ("observed", "observed")):
            self._tell(context, decision)
        if decision.state != "triggered":
            self.log.info("Decision %d is %s: %s", decision.id, decision.state, decision.outcome or "nothing to do")
            return
        self.conf = {name: self.decision[name] for name in ("job", "parallelism", "workers", "method", "reason")}
        super().execute(context)

    def run_ids(self, context: Context) -> list[str]:
        """Return the one run of this decision; if it fails, the policy decides again."""
        with open_catalog(self.conn_id) as catalog:
            return [run_of(catalog.policies.decision(self.decision["decision"]))]

    def ended(self, context: Context, run_id: str, state: str) -> None:
        """Record the outcome of the decision.

        Raises:
            AirflowFailException: The rescale began and failed.

        """
        with open_catalog(self.conn_id) as catalog:
            record = find_run(catalog.runs, run_id)
            # A run also fails when surplus workers do not go; the rescale itself is done then.
            if state == DagRunState.SUCCESS or (record is not None and record.state == "done"):
                catalog.policies.end_decision(self.decision["decision"], "done")
            elif record is None:
                outcome = f"run {run_id} was refused before it changed anything; see its log"
                self.log.warning("Decision %d: %s", self.decision["decision"], outcome)
                catalog.policies.end_decision(self.decision["decision"], "refused", outcome)
            else:
                outcome = f"run {run_id} failed: {record.error or 'no reason given'}"
                catalog.policies.end_decision(self.decision["decision"], "failed", outcome)
                raise AirflowFailException(f"found that {outcome}; expected success; the policy decides again")

    def _tell(self, context: Context, decision: DecisionRecord) -> None:
        """Send a message about a decision; a delivery failure is only logged."""
        try:
            JobNotifier(Event.DECIDED, job=decision.job).tell(context, decision_words(decision))
        except StatecoreError as error:
            self.log.warning("Decision %d was told nobody: %s", decision.id, error)

    def _take(self, catalog: Catalog, decision: DecisionRecord) -> DecisionRecord:
        """Take up an open decision, or end it."""
        refusal = _refusal(catalog, decision)
        if refusal is not None:
            return catalog.policies.end_decision(decision.id, "refused", refusal)
        return catalog.policies.claim_decision(decision.id, run_of(decision))


def run_of(decision: DecisionRecord) -> str:
    """Return the id of a decision's run; the time distinguishes it from the runs of a lost catalog."""
    return f"autoscale__{decision.job}__{decision.decided_ms}"


def _refusal(catalog: Catalog, decision: DecisionRecord) -> str | None:
    policy, lease = catalog.policies.find(decision.job), catalog.leases.find(decision.job)
    if policy is None or not policy.enabled:
        return "the policy was turned off"
    now_ms = catalog.now_ms()
    if now_ms - decision.decided_ms >= LAPSES_AFTER_MS:
        return f"its figures were older than {LAPSES_AFTER_MS // 60_000} minutes when it was to be carried out"
    if lease is not None and now_ms < lease.expires_ms:
        return f"{lease.owner} holds the lease on the job"
    return None
