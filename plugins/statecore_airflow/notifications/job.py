"""Task callbacks that report a failed run, a rollback, a drained backlog or a decision of a policy.

Each message is logged. If Airflow has the connection ``statecore_webhook``, the message is also posted there as
``{"text": …}``, the JSON of chat webhooks. The address is the connection's password, because it is a secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from airflow.sdk import BaseNotifier, Context

from statecore.redaction import redacted
from statecore_airflow.hooks.settings import WEBHOOK_CONNECTION
from statecore_airflow.links.addresses import job_page, run_page
from statecore_airflow.notifications.webhook import webhook


class Event(StrEnum):
    """The reported event."""

    FAILED = "failed"
    ROLLED_BACK = "was rolled back"
    DRAINED = "has drained its backlog"
    DECIDED = "has a decision of its policy"


class JobNotifier(BaseNotifier):
    """Reports an event of a job; pass it to a task as ``on_failure_callback`` or the like.

    Args:
        event: The event.
        job: Name of the job; a template. None for a step that is not about one job.
        conn_id: Airflow connection of the webhook; without it the message is only logged.

    """

    template_fields: Sequence[str] = ("job",)

    def __init__(
        self, event: Event, *, job: str | None = "{{ params.job }}", conn_id: str = WEBHOOK_CONNECTION
    ) -> None:
        super().__init__()
        self.event = event
        self.job = job
        self.conn_id = conn_id

    def notify(self, context: Context) -> None:
        """Log the message and post it; do nothing without a rollback.

        Raises:
            ConfigurationError: The webhook does not accept the message.

        """
        details = self._details(context)
        if self.event is not Event.ROLLED_BACK or details:
            self.tell(context, details)

    def tell(self, context: Context, details: str) -> None:
        """Log a message with these details, and post it.

        Raises:
            ConfigurationError: The webhook does not accept the message.

        """
        text = self._text(context, details)
        (self.log.info if self.event in (Event.DRAINED, Event.DECIDED) else self.log.error)("%s", text)
        post_to = webhook(self.conn_id)
        if post_to is not None:
            post_to.post(text)

    def _details(self, context: Context) -> str:
        """Return the task's error or its result."""
        if self.event is Event.FAILED:
            return str(context.get("exception") or "The task was ended from outside.").strip()
        task = context["ti"]
        return str(task.xcom_pull(task_ids=task.task_id) or "")

    def _text(self, context: Context, details: str) -> str:
        task = context["ti"]
        head = f"Job {self.job} {self.event}."
        if self.event is Event.FAILED:
            of_job = "" if self.job is None else f" for job {self.job}"
            head = f"Run of {task.dag_id}{of_job} failed at {task.task_id}."
        text = f"{head} {redacted(details)}".rstrip() + f"\nRun: {run_page(task.dag_id, task.run_id)}"
        return text if self.job is None else f"{text}\nJob: {job_page(self.job)}"
