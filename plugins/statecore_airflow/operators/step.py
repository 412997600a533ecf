"""The steps of a change as Airflow tasks; ``statecore.operations.changes`` implements them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from statecore.catalog import Catalog, StepTimes
from statecore.errors import ConfigurationError, StatecoreError
from statecore.operations.changes import Change, Status, Step, TakeLease, is_retryable
from statecore_airflow.faults import Place, fault_point
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.operators.base import CatalogOperator, event_finding
from statecore_airflow.operators.change_id import change_id, is_same_run
from statecore_airflow.triggers.catalog import StepTrigger


class StepOperator(CatalogOperator):
    """Runs one step of a change: ask, wait (deferred if that takes long), finish; returns the step's result.

    The step's name is the task's id, and the run's parameters are the step's.

    Args:
        step: The step.
        arguments: Arguments of the step beside the run's parameters.
        **kwargs: See ``CatalogOperator``.

    """

    template_fields: Collection[str] = ("job", "arguments")

    def __init__(self, *, step: type[Step], arguments: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**{"task_id": step.name, "timeout": step.timeout, **kwargs})
        self.step = step
        self.arguments = arguments or {}
        # Airflow's pages show it as the kind of the task.
        self.custom_operator_name = step.__name__
        self._made: Step | None = None

    def parameters(self, context: Context) -> Mapping[str, Any]:
        """Return the parameters that the step may take."""
        return context["params"]

    def change_id(self, catalog: Catalog, context: Context) -> str:
        """Return the id of the change in the catalog."""
        return change_id(context)

    def execute(self, context: Context) -> str | None:
        """Begin the step, or resume where an earlier attempt left off."""
        with self.catalog(context) as catalog:
            step = self._make(catalog, context)
            with self._trying(context, step):
                self._require_whole_run(catalog, step)
                self._require_earlier(step)
                begun = step.begin()
                if begun is None:
                    fault_point(step.name, Place.BEGUN)
                    step.ask()
                    self._wait(catalog, step)
                    return self._end(step)
        self.log.info("%s", begun.message)
        if begun.status is Status.SKIPPED:
            raise AirflowSkipException(begun.message)
        return begun.result

    def execute_complete(self, context: Context, event: dict[str, str]) -> str | None:
        """Continue after the trigger has fired."""
        with self.catalog(context) as catalog:
            step = self._make(catalog, context)
            with self._trying(context, step):
                self._require_whole_run(catalog, step)
                self.judge(event_finding(event))
                # Another process may have ended the run meanwhile.
                begun = step.begin()
                return self._end(step) if begun is None else begun.result

    def on_kill(self) -> None:
        """Cancel the step's process."""
        if self._made is not None:
            self._made.cancel()

    def _require_whole_run(self, catalog: Catalog, step: Step) -> None:
        """Refuse a step that was cleared without the step that takes the lease.

        Raises:
            ConfigurationError: The lease is the one of the time before the clear.

        """
        run, lease = step.change.run_id, catalog.leases.find(self.job)
        if self.is_teardown or isinstance(step, TakeLease) or lease is None or lease.owner == run:
            return
        if is_same_run(lease.owner, run):
            raise ConfigurationError(
                f"found step {self.task_id} of run {run!r} without the step {TakeLease.name}, because steps of the run "
                f"were cleared while it changed job {self.job!r} as {lease.owner!r}; expected all of them or none to "
                "be cleared; the run is rolled back; then clear all of it, or trigger a new one"
            )

    def _require_earlier(self, step: Step) -> None:
        """Refuse to run after a step that a person has marked successful before it has done its work.

        Raises:
            ConfigurationError: A person has marked a step.

        """
        run = step.change.run()
        if run is None or run.state != "running" or self.is_teardown or not self.has_dag():  # type: ignore[no-untyped-call]  # Airflow has no types there
            return
        for task in self.get_flat_relatives(upstream=True):
            if not isinstance(task, StepOperator) or not task.step.is_needed(run):
                continue
            if run.steps.get(task.step.name, StepTimes()).ended_ms is None:
                raise ConfigurationError(
                    f"found step {task.task_id} of run {run.run_id!r} marked successful by hand before it did its "
                    "work; expected nobody to mark a step; the run is rolled back; trigger a new one"
                )

    def _make(self, catalog: Catalog, context: Context) -> Step:
        change = Change(catalog, self.job, self.change_id(catalog, context), lease_ttl_ms(), self.log)
        self._made = self.step.of(change, self.parameters(context), **self.arguments)
        return self._made

    def _wait(self, catalog: Catalog, step: Step) -> None:
        first = step.observe()
        if first.status is not Status.WAITING:
            self.judge(first)
            return
        self.wait(
            catalog,
            StepTrigger,
            owner=step.change.run_id if step.holds_lease else None,
            at_least_ms=step.patience_ms(),
            run=step.change.run_id,
            step=type(step).__name__,
            fields=step.fields(),
        )

    def _end(self, step: Step) -> str | None:
        result = step.end()
        fault_point(step.name, Place.ENDED)
        return result

    @contextmanager
    def _trying(self, context: Context, step: Step) -> Iterator[None]:
        """Record why the step fails; clean up after a failure that is not retried."""
        try:
            with step.noting():
                yield
        except (StatecoreError, AirflowFailException) as error:
            ti = context.get("ti")
            is_last = ti is not None and ti.try_number > ti.max_tries
            if is_last or not isinstance(error, StatecoreError) or not is_retryable(error):
                # An unreachable catalog must not hide the error itself.
                with suppress(StatecoreError):
                    step.give_up(error)
            raise
