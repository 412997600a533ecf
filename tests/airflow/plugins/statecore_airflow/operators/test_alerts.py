"""Changes of alerts on their way from the catalog to people."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from statecore_airflow.operators.alerts import TellAlertsOperator
from statecore_airflow.triggers import alerts as alerts_module
from statecore_airflow.triggers.alerts import AlertTrigger, payload_of

from statecore.catalog import Catalog
from statecore.catalog.transactions import Transactions
from statecore.operations.status import alerts
from statecore.operations.status.alerts import AlertChange
from statecore.release import RELEASE
from tests.airflow.running import sent
from tests.support.waiting import PATIENCE_S
from tests.support.webhook import Webhook


@pytest.fixture(autouse=True)
def resolved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alert is resolved as soon as it is over; tests of the rules prove how long it waits."""
    monkeypatch.setattr(alerts, "RESOLVED_AFTER_MS", 0)


@pytest.fixture
def looping(catalog: Catalog, job: str) -> str:
    """A job whose drivers fail one after the other."""
    for _ in range(2):
        claimed = catalog.generations.claim(job, log_path="/logs/{generation}.log")
        catalog.generations.end(job, claimed.generation, state="failed", error="ValueError: negative")
    return job


def context(*changes: AlertChange) -> Any:
    events = [SimpleNamespace(extra={"from_trigger": True, "payload": payload_of(each)}) for each in changes]
    # A person may create an event, too.
    return {"triggering_asset_events": {"asset": [*events, SimpleNamespace(extra={"from_rest_api": True})]}}


def tell(*changes: AlertChange) -> list[str]:
    return TellAlertsOperator(task_id="tell").execute(context(*changes))


def test_the_trigger_fires_once_for_a_change_and_carries_it(
    catalog: Catalog, looping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts_module, "INTERVAL_S", 0.05)
    looks: list[int] = []
    look = AlertTrigger.look

    def counted(self: AlertTrigger, catalog: Catalog) -> Any:
        looks.append(1)
        return look(self, catalog)

    monkeypatch.setattr(AlertTrigger, "look", counted)

    async def fired() -> list[Any]:
        events: list[Any] = []

        async def run() -> None:
            async for event in sent(AlertTrigger()).run():
                events.append(event.payload)

        task = asyncio.create_task(run())
        while len(looks) <= 3 and not task.done():
            await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return events

    (event,) = asyncio.run(fired())
    assert event == json.loads(json.dumps(event))
    assert (event["subject"], event["alert"], event["firing"]) == (looping, "crash_loop", True)
    # Another triggerer has nothing to add.
    looks.clear()
    assert asyncio.run(fired()) == []


def test_a_change_is_posted_once_with_the_jobs_page_however_often_its_run_is_tried(
    catalog: Catalog, looping: str, webhook: Webhook
) -> None:
    (change,) = AlertTrigger().look(catalog)
    (text,) = tell(change, change)
    assert text.startswith(f"CRITICAL crash_loop, job {looping}: ")
    assert text.endswith(f"Job: /plugin/statecore/statecore/job?name={looping}")
    assert tell(change) == []
    assert webhook.messages == [{"text": text}]
    catalog.jobs.set_desired(looping, state="stopped")
    (over,) = AlertTrigger().look(catalog)
    assert tell(over)[0].startswith(f"RESOLVED crash_loop, job {looping}")
    assert len(webhook.messages) == 2
    assert AlertTrigger().look(catalog) == []


def test_what_the_webhook_does_not_accept_is_announced_again(
    catalog: Catalog, looping: str, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook.answer = 500
    with monkeypatch.context() as patch:
        # The claim has expired at once.
        patch.setattr(alerts_module, "CLAIM_MS", 0)
        (change,) = AlertTrigger().look(catalog)
    with pytest.raises(AirflowFailException, match=r"found the status 500 .* 'statecore_webhook'"):
        tell(change)
    webhook.answer = 200
    (again,) = AlertTrigger().look(catalog)
    # The message counts the seconds.
    assert replace(again, text="") == replace(change, text="") and len(tell(again)) == 1
    assert AlertTrigger().look(catalog) == []


def test_without_a_webhook_the_message_is_the_result_of_the_task(catalog: Catalog, looping: str) -> None:
    (change,) = AlertTrigger().look(catalog)
    assert len(tell(change)) == 1


def test_a_dead_supervisor_is_told_once_for_all_jobs_until_one_acts_again(
    catalog: Catalog, job: str, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beat(name: str) -> None:
        catalog.supervisors.lead(name, host="blue", pid=7, process_started_ms=0, version=RELEASE)

    acting = catalog.supervisors.last()
    assert acting is not None
    catalog.supervisors.resign(acting.id)
    beat("first")
    catalog.jobs.set_desired(job, state="stopped")
    assert AlertTrigger().look(catalog) == []
    last = catalog.supervisors.last()
    assert last is not None
    with monkeypatch.context() as patch:
        patch.setattr(Transactions, "now_ms", lambda _: last.heartbeat_ms + 90_000)
        (change,) = AlertTrigger().look(catalog)
        (text,) = tell(change)
        assert AlertTrigger().look(catalog) == []
    assert text.startswith(
        "CRITICAL supervisor_dead, all jobs: the last supervisor, process 7 on blue, was last heard of 1 min 30 s ago"
    )
    assert "Job: " not in text
    beat("first")
    (over,) = AlertTrigger().look(catalog)
    assert tell(over)[0].startswith("RESOLVED supervisor_dead, all jobs")


def test_the_trigger_survives_a_catalog_that_was_away(
    catalog: Catalog, looping: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts_module, "INTERVAL_S", 0.05)
    looks: list[int] = []
    look = AlertTrigger.look

    def failing(self: AlertTrigger, catalog: Catalog) -> Any:
        looks.append(1)
        if len(looks) == 1:
            raise OSError("gone")
        return look(self, catalog)

    monkeypatch.setattr(AlertTrigger, "look", failing)

    async def first() -> Any:
        return await asyncio.wait_for(anext(sent(AlertTrigger()).run()), PATIENCE_S)

    assert asyncio.run(first()).payload["subject"] == looping
