"""Runs the steps of a change in this process: waits with a spinner, tries again, and rolls back what fails."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

from statecore.catalog import Catalog
from statecore.cli.lease import LEASE_TTL_MS, LeaseRenewal, shell_run
from statecore.cli.output import note, spinner
from statecore.errors import StatecoreError
from statecore.operations.rescaling import (
    RETRIES,
    RETRY_DELAY,
    Change,
    Rollback,
    Status,
    Step,
    TakeLease,
    is_retryable,
)

POLL_S = 0.5

# What the steps log for Airflow, the shell shows by spinners, notes and the final error.
log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())
log.propagate = False


def shell_change(catalog: Catalog, job: str) -> Change:
    """Return a change of a job by this command."""
    return Change(catalog, job, shell_run(), LEASE_TTL_MS, log)


def carry_out(
    lease: TakeLease, steps: list[Step], timeout_s: float, *, rolls_back: bool = True
) -> dict[str, str | None]:
    """Run the steps of a change after its lease, and return the result of each by its name.

    Each step may wait ``timeout_s`` at least. When one fails, its error is raised; with ``rolls_back`` the job is
    restored first.
    """
    change = lease.change
    with LeaseRenewal(change.catalog, change.job, change.run_id) as renewal:
        shell = _Shell(change, renewal, timeout_s)
        try:
            shell.perform(lease)
        except BaseException as error:
            lease.abandon(error)
            raise
        try:
            return {step.name: shell.perform(step) for step in steps}
        except BaseException as error:
            if rolls_back:
                shell.roll_back(error)
            else:
                change.catalog.release_lease(change.job, change.run_id)
            raise


class _Shell:
    def __init__(self, change: Change, renewal: LeaseRenewal, timeout_s: float) -> None:
        self._change = change
        self._renewal = renewal
        self._timeout_s = timeout_s

    def perform(self, step: Step) -> str | None:
        """Run one step, several times if another attempt may succeed."""
        for attempt in range(RETRIES + 1):
            try:
                return self._attempt(step)
            except StatecoreError as error:
                if attempt == RETRIES or not is_retryable(error):
                    raise
                note(f"{step.name} failed, trying again: {error}")
                time.sleep(RETRY_DELAY.total_seconds())
        raise AssertionError

    def _attempt(self, step: Step) -> str | None:
        with step.noting():
            begun = step.begin()
            if begun is not None:
                return begun.result
            try:
                step.ask()
                self._wait(step)
                return step.end()
            finally:
                step.cancel()

    def _wait(self, step: Step) -> None:
        deadline = time.monotonic() + max(self._timeout_s, step.patience_ms() / 1000)
        with spinner(f"{self._change.job}: {step.name}: waiting for {step.expected}"):
            while (finding := step.observe()).status is Status.WAITING:
                self._renewal.check()
                if time.monotonic() > deadline:
                    finding = step.timed_out(finding)
                    break
                time.sleep(POLL_S)
        finding.check()

    def roll_back(self, error: BaseException) -> None:
        """Restore the job, without waiting on Ctrl-C; if that fails, the supervisor does it when the lease expires."""
        step = Rollback(change=self._change)
        with suppress(StatecoreError):
            if not isinstance(error, Exception) and self._change.run() is not None:
                self._change.catalog.update_rescale_run(self._change.run_id, error=f"ended by {type(error).__name__}")
            if step.begin() is not None:
                return
            step.ask()
            try:
                if isinstance(error, Exception):
                    self._wait(step)
                step.end()
                note(step.outcome)
            except StatecoreError as failure:
                note(step.give_up(failure))
