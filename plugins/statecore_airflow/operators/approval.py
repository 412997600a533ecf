"""The step that waits for a person's approval, if the run asks for one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from statecore_airflow.links.job import LINKS, show_links
from statecore_airflow.notifications.job import Event, JobNotifier


class ApprovalWhenAskedOperator(ApprovalOperator):
    """Waits for approval, and skips all later steps if it is refused; skipped itself unless ``approval`` is set.

    It holds no lease: other runs may change the job meanwhile, and later steps check the job again. Without an answer
    within ``response_timeout`` the run fails, and nothing has changed.
    """

    template_fields = (*ApprovalOperator.template_fields, "job")
    operator_extra_links = LINKS

    def __init__(self, *, job: str, response_timeout: timedelta = timedelta(hours=12), **kwargs: Any) -> None:
        kwargs.setdefault("on_failure_callback", JobNotifier(Event.FAILED, job=job))
        super().__init__(response_timeout=response_timeout, ignore_downstream_trigger_rules=True, **kwargs)
        self.job = job

    def pre_execute(self, context: Context) -> None:
        """Show the links while the task waits for an answer."""
        show_links(self, context)

    def execute(self, context: Context) -> Any:
        """Ask, if the run's parameter ``approval`` is set."""
        if not context["params"]["approval"]:
            raise AirflowSkipException("no approval was asked for")
        return super().execute(context)

    def process_trigger_event_error(self, event: dict[str, Any]) -> None:
        """Fail for good: unlike a worker that died, a missing answer is not retried.

        Raises:
            AirflowFailException: Always.

        """
        raise AirflowFailException(
            f"found no answer within {self.response_timeout} ({event['error']}); expected an approval or a refusal; "
            "nothing was changed; trigger a new run when a person can answer"
        )
