"""Messages to people: what they say, where they go, and what becomes of the address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from statecore.errors import ConfigurationError
from tests.support.webhook import Webhook


def context(result: str | None = None, **more: Any) -> Any:
    task = SimpleNamespace(
        dag_id="rescale", run_id="manual__1 +é", task_id="restart", xcom_pull=lambda task_ids: result
    )
    return {"ti": task, "params": {"job": "flights"}, **more}


def test_a_failure_is_told_with_its_reason_and_where_to_look(webhook: Webhook) -> None:
    from statecore_airflow.notifications.job import Event, JobNotifier

    JobNotifier(Event.FAILED)(context(exception=RuntimeError("found no worker; expected 2; start them")))
    assert webhook.messages == [
        {
            "text": "Run of rescale for job flights failed at restart. found no worker; expected 2; start them\n"
            "Run: /dags/rescale/runs/manual__1%20%2B%C3%A9\n"
            "Job: /plugin/statecore/statecore/job?name=flights"
        }
    ]


def test_a_reason_is_told_without_its_secrets(webhook: Webhook) -> None:
    from statecore_airflow.notifications.job import Event, JobNotifier

    JobNotifier(Event.FAILED)(context(exception=RuntimeError("found password=hunter2 for //me:hun/ter2@db")))
    assert "failed at restart. found password=*** for //db\n" in webhook.messages[0]["text"]


def test_a_rollback_is_told_when_there_was_one_and_a_drained_backlog_in_any_case(webhook: Webhook) -> None:
    from statecore_airflow.notifications.job import Event, JobNotifier

    JobNotifier(Event.ROLLED_BACK)(context(result=None))
    assert webhook.messages == []
    JobNotifier(Event.ROLLED_BACK)(context(result="step restart failed; it goes on from epoch 7"))
    JobNotifier(Event.DRAINED, job="clicks")(context(result=None))
    back, drained = (message["text"] for message in webhook.messages)
    assert back.startswith("Job flights was rolled back. step restart failed; it goes on from epoch 7\n")
    assert drained.startswith("Job clicks has drained its backlog.\n")


def test_a_decision_is_told_in_its_own_words(webhook: Webhook) -> None:
    from statecore_airflow.notifications.job import Event, JobNotifier

    JobNotifier(Event.DECIDED, job="clicks").tell(context(), "would scale out: 9 rows/s arrive (parallelism 2 → 4)")
    assert [message["text"].partition("\n")[0] for message in webhook.messages] == [
        "Job clicks has a decision of its policy. would scale out: 9 rows/s arrive (parallelism 2 → 4)"
    ]


def test_a_webhook_that_does_not_take_it_is_named_without_its_address(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statecore_airflow.notifications.job import Event, JobNotifier

    webhook.answer = 404
    with pytest.raises(ConfigurationError, match=r"found the status 404 .* 'statecore_webhook'") as refused:
        JobNotifier(Event.FAILED)(context())
    assert "s3cret" not in str(refused.value)
    monkeypatch.setenv("AIRFLOW_CONN_STATECORE_WEBHOOK", '{"conn_type": "generic"}')
    with pytest.raises(ConfigurationError, match="found no password"):
        JobNotifier(Event.FAILED)(context())
    monkeypatch.delenv("AIRFLOW_CONN_STATECORE_WEBHOOK")
    JobNotifier(Event.FAILED)(context())
