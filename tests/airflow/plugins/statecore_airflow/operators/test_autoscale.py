"""Decisions on their way from the catalog to runs of the DAG rescale."""

from __future__ import annotations

import asyncio
import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import (
    AirflowFailException,
    DagRunTriggerException,
    TaskDeferred,
)
from statecore_airflow.operators.autoscale import CarryOutOperator, TakeDecisionsOperator, give_up, run_of
from statecore_airflow.triggers import autoscale as decisions_module
from statecore_airflow.triggers.autoscale import DecisionTrigger, payload_of

from statecore.catalog import Catalog, DecisionRecord, EpochRecord
from statecore.errors import CatalogError
from statecore.operations.autoscaling.evaluation import evaluate
from tests.airflow.rescale_runs import FakeTask
from tests.airflow.running import sent
from tests.support.waiting import PATIENCE_S
from tests.support.webhook import Webhook

SETTINGS = {"max_parallelism": 8, "subtasks_per_worker": 2}


@pytest.fixture
def policy(catalog: Catalog, job: str) -> str:
    """A job that is outside of its policy's limits: that alone is enough for a decision."""
    catalog.jobs.set_desired(job, state="running", parallelism=2)
    generation = catalog.generations.claim(job, log_path="log").generation
    catalog.generations.heartbeat(job, generation)
    commit(catalog, job, 1)
    catalog.policies.set(job, {**SETTINGS, "min_parallelism": 4, "cooldown_s": 0})
    return job


def commit(catalog: Catalog, job: str, number: int) -> None:
    catalog.epochs.record(EpochRecord(job, 1, number, 1, 2, 10, 10, number, number, 1))


def decide(catalog: Catalog, job: str) -> DecisionRecord:
    (found,) = DecisionTrigger().look(catalog)
    assert found.job == job
    return found


def fired(monkeypatch: pytest.MonkeyPatch, looks: int) -> list[Any]:
    """Return what the trigger fires while it looks so many times; it arrives in the triggerer first."""
    looked: list[int] = []
    look = DecisionTrigger.look

    def counted(self: DecisionTrigger, catalog: Catalog) -> Any:
        looked.append(1)
        return look(self, catalog)

    async def collect() -> list[Any]:
        events: list[Any] = []

        async def run() -> None:
            async for event in sent(DecisionTrigger()).run():
                events.append(event.payload)

        task = asyncio.create_task(run())
        # What a look finds is fired before the next one begins.
        while len(looked) <= looks and not task.done():
            await asyncio.wait([task], timeout=decisions_module.POLL_S)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return events

    with monkeypatch.context() as patch:
        patch.setattr(DecisionTrigger, "look", counted)
        return asyncio.run(collect())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions_module, "POLL_S", 0.05)


def test_the_trigger_fires_once_for_a_decision_and_carries_it(
    catalog: Catalog, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (event,) = fired(monkeypatch, looks=3)
    (decision,) = catalog.policies.decisions(policy)
    assert event == payload_of(decision) == json.loads(json.dumps(event))
    assert (event["job"], event["parallelism"], event["workers"], event["method"]) == (policy, 4, 2, "live")
    assert "outside the limits 4 to 8" in event["reason"]
    # Another triggerer, or the same one after a restart, has nothing to add.
    assert fired(monkeypatch, looks=2) == []
    assert catalog.policies.decisions(policy) == [decision]


def test_an_observed_decision_fires_once_changes_nothing_and_a_run_by_hand_takes_none(
    catalog: Catalog, policy: str
) -> None:
    catalog.policies.set(policy, {**SETTINGS, "min_parallelism": 4, "cooldown_s": 0, "observe": True})
    observed = decide(catalog, policy)
    assert DecisionTrigger().look(catalog) == []
    assert (observed.state, observed.to_parallelism) == ("observed", 4)
    carry_out(observed).execute(FakeTask().context)
    assert catalog.policies.decisions(policy) == [observed]
    taken = TakeDecisionsOperator(task_id="take_decisions").execute({"triggering_asset_events": {}})
    assert taken == []


@pytest.mark.parametrize("observe", [False, True])
def test_a_decision_is_told_once_with_its_reason_as_it_is_taken_up(
    catalog: Catalog, policy: str, webhook: Webhook, observe: bool
) -> None:
    catalog.policies.set(policy, {**SETTINGS, "min_parallelism": 4, "cooldown_s": 0, "observe": observe})
    operator, task = carry_out(decide(catalog, policy)), FakeTask()
    if observe:
        operator.execute(task.context)
    else:
        # The task goes on after it was deferred, or another run has the same decision.
        for _ in range(2):
            with pytest.raises(DagRunTriggerException):
                operator.execute(task.context)
    said = "would scale out" if observe else "scale out"
    (message,) = webhook.messages
    assert message["text"].startswith(
        f"Job {policy} has a decision of its policy. {said}: parallelism 2 is outside the limits 4 to 8 "
        "(parallelism 2 → 4, workers 1 → 2)\nRun: "
    )


def test_a_refused_decision_is_not_told_and_a_webhook_that_fails_holds_nothing_up(
    catalog: Catalog, policy: str, webhook: Webhook
) -> None:
    wanted = {**SETTINGS, "min_parallelism": 4, "cooldown_s": 0}
    operator = carry_out(decide(catalog, policy))
    catalog.policies.set(policy, wanted, enabled=False)
    operator.execute(FakeTask().context)
    assert catalog.policies.decisions(policy)[0].state == "refused" and webhook.messages == []
    catalog.policies.set(policy, wanted)
    webhook.answer = 404
    with pytest.raises(DagRunTriggerException):
        carry_out(decide(catalog, policy)).execute(FakeTask().context)


def test_what_was_decided_before_the_catalog_went_away_is_announced_nevertheless(
    catalog: Catalog, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No later look would announce a decision that is only observed.
    catalog.policies.set(policy, {**SETTINGS, "min_parallelism": 4, "cooldown_s": 0, "observe": True})
    catalog.jobs.register("z-last", artifact="a", store="s", master_url="m", parallelism=1, max_parallelism=1)
    catalog.policies.set("z-last", SETTINGS)

    def goes_away(catalog: Catalog, found: Any, now_ms: int) -> Any:
        if found.job == "z-last":
            raise CatalogError("gone")
        return evaluate(catalog, found, now_ms)

    monkeypatch.setattr(decisions_module, "evaluate", goes_away)
    assert [each.job for each in DecisionTrigger().look(catalog)] == [policy]
    with pytest.raises(CatalogError):
        DecisionTrigger().look(catalog)


def test_the_trigger_survives_what_goes_wrong_with_one_job_and_with_the_catalog(
    catalog: Catalog, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "campaigns"
    catalog.jobs.register(other, artifact="a", store="s", master_url="m", parallelism=1, max_parallelism=1)
    catalog.policies.set(other, {"max_paralelism": 1})
    trigger = DecisionTrigger()
    (found,) = trigger.look(catalog)
    assert found.job == policy
    catalog.policies.end_decision(found.id, "done")
    assert "max_paralelism" in trigger._said[other]
    connection = os.environ["AIRFLOW_CONN_STATECORE_CATALOG"]
    monkeypatch.delenv("AIRFLOW_CONN_STATECORE_CATALOG")

    async def run() -> Any:
        events = DecisionTrigger().run()
        first = asyncio.ensure_future(anext(events))
        await asyncio.wait([first], timeout=0.3)
        assert not first.done()
        monkeypatch.setenv("AIRFLOW_CONN_STATECORE_CATALOG", connection)
        catalog.policies.set(policy, {**SETTINGS, "min_parallelism": 6, "cooldown_s": 0})
        event = await asyncio.wait_for(first, PATIENCE_S)
        await events.aclose()  # type: ignore[attr-defined]
        return event.payload

    assert asyncio.run(run())["parallelism"] == 6


def test_decisions_come_from_the_events_once_each_and_by_hand_from_the_catalog(catalog: Catalog, policy: str) -> None:
    decision = decide(catalog, policy)
    event = SimpleNamespace(extra={"from_trigger": True, "payload": payload_of(decision)})
    take = TakeDecisionsOperator(task_id="take_decisions")
    assert take.execute({"triggering_asset_events": {"asset": [event, event]}}) == [payload_of(decision)]
    by_hand = SimpleNamespace(extra={"from_rest_api": True})
    for events in ({}, {"asset": [by_hand]}):
        assert take.execute({"triggering_asset_events": events}) == [payload_of(decision)]


def carry_out(decision: DecisionRecord) -> CarryOutOperator:
    return CarryOutOperator(task_id="carry_out", decision=payload_of(decision))


def test_a_decision_becomes_one_run_of_rescale_however_often_it_is_tried(catalog: Catalog, policy: str) -> None:
    decision, task = decide(catalog, policy), FakeTask()
    with pytest.raises(DagRunTriggerException) as triggered:
        carry_out(decision).execute(task.context)
    asked = triggered.value
    assert asked.skip_when_already_exists
    assert (asked.trigger_dag_id, asked.dag_run_id) == ("rescale", run_of(decision))
    assert asked.conf == {name: payload_of(decision)[name] for name in asked.conf or ()}
    assert set(asked.conf) == {"job", "parallelism", "workers", "method", "reason"}
    assert (catalog.policies.decision(decision.id).state, catalog.policies.decision(decision.id).run_id) == (
        "triggered",
        run_of(decision),
    )
    # Killed before Airflow heard of it: it is asked again. Killed afterwards: the run is there, and is waited for.
    with pytest.raises(DagRunTriggerException):
        carry_out(decision).execute(task.context)
    task.runs[run_of(decision)] = "running"
    with pytest.raises(TaskDeferred) as deferred:
        carry_out(decision).execute(task.context)
    assert deferred.value.trigger.run_ids == [run_of(decision)]
    task.runs[run_of(decision)] = "success"
    carry_out(decision).execute(task.context)
    assert catalog.policies.decision(decision.id).state == "done"
    # Announced twice: the second run finds nothing left.
    carry_out(decision).execute(FakeTask().context)


def end(decision: DecisionRecord, state: str) -> None:
    event = ("DagStateTrigger", {"run_ids": [run_of(decision)], run_of(decision): state})
    carry_out(decision).execute_complete(FakeTask().context, event)


def test_a_held_lease_refuses_a_decision_before_or_after_its_run_began_and_is_no_error(
    catalog: Catalog, policy: str
) -> None:
    first = decide(catalog, policy)
    catalog.leases.acquire(policy, "manual-7", 60_000)
    carry_out(first).execute(FakeTask().context)
    refused = catalog.policies.decision(first.id)
    assert (refused.state, refused.outcome) == ("refused", "manual-7 holds the lease on the job")
    catalog.leases.release(policy, "manual-7")
    second = decide(catalog, policy)
    catalog.policies.claim_decision(second.id, run_of(second))
    end(second, "failed")
    assert catalog.policies.decision(second.id).state == "refused"


def test_a_rescale_that_fails_is_an_error_and_both_are_kept(catalog: Catalog, policy: str) -> None:
    decision = decide(catalog, policy)
    catalog.policies.claim_decision(decision.id, run_of(decision))
    catalog.runs.start(run_of(decision), policy, from_parallelism=2, to_parallelism=4)
    catalog.runs.finish(run_of(decision), error="no room for 2 workers")
    with pytest.raises(AirflowFailException, match="no room for 2 workers"):
        end(decision, "failed")
    found = catalog.policies.decision(decision.id)
    assert found.state == "failed" and "no room for 2 workers" in (found.outcome or "")


def test_a_rescale_that_is_done_counts_as_such_although_surplus_workers_did_not_go(
    catalog: Catalog, policy: str
) -> None:
    decision = decide(catalog, policy)
    catalog.policies.claim_decision(decision.id, run_of(decision))
    catalog.runs.start(run_of(decision), policy, from_parallelism=4, to_parallelism=2)
    catalog.runs.finish(run_of(decision))
    end(decision, "failed")
    assert catalog.policies.decision(decision.id).state == "done"


def test_a_decision_that_is_too_old_or_whose_policy_was_turned_off_is_refused(
    catalog: Catalog, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    decision = decide(catalog, policy)
    catalog.policies.set(policy, SETTINGS, enabled=False)
    carry_out(decision).execute(FakeTask().context)
    assert catalog.policies.decision(decision.id).outcome == "the policy was turned off"
    catalog.policies.set(policy, {**SETTINGS, "min_parallelism": 4, "cooldown_s": 0})
    old = decide(catalog, policy)
    monkeypatch.setattr("statecore_airflow.operators.autoscale.LAPSES_AFTER_MS", 0)
    carry_out(old).execute(FakeTask().context)
    assert "older than" in (catalog.policies.decision(old.id).outcome or "")


def test_a_task_that_gives_up_leaves_no_decision_under_way(catalog: Catalog, policy: str) -> None:
    decision, task = decide(catalog, policy), FakeTask(paused=True)
    operator = carry_out(decision)
    with pytest.raises(Exception, match="paused") as error:
        operator.execute(task.context)
    assert catalog.policies.decision(decision.id).state == "triggered"
    give_up({**task.context, "task": operator, "exception": error.value})  # type: ignore[typeddict-item]
    found = catalog.policies.decision(decision.id)
    assert found.state == "failed" and "paused" in (found.outcome or "")
