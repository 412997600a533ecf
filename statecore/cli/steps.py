"""Runs the steps of a change in this process: waits with a spinner, retries, and rolls back after a failure."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from statecore.catalog import RUNS, Catalog
from statecore.cli.lease import LEASE_TTL_MS, LeaseRenewal, shell_run
from statecore.cli.output import note, telling
from statecore.errors import StatecoreError
from statecore.operations.changes import (
    RETRIES,
    RETRY_DELAY,
    Change,
    Rollback,
    Status,
    Step,
    is_retryable,
)
from statecore.operations.downtime import usual_step_ms
from statecore.program_output import PROGRESS

POLL_S = 0.5


class ShellLog:
    """What steps log: for Airflow all of it, in a shell only how far a program is, beside spinner and final error.

    Attributes:
        tell: Shows how far it is.

    """

    def __init__(self) -> None:
        self.tell: Callable[[str], None] = lambda _: None

    def info(self, event: str, /, *args: object) -> None:
        """Show progress."""
        text = event % args
        if text.startswith(PROGRESS):
            self.tell(text.removeprefix(PROGRESS))

    def warning(self, event: str, /, *args: object) -> None:
        """Show nothing."""

    def error(self, event: str, /, *args: object) -> None:
        """Show nothing."""


def shell_change(catalog: Catalog, job: str) -> Change:
    """Return the change of a job that this command makes."""
    return Change(catalog, job, shell_run(), LEASE_TTL_MS, ShellLog())


def carry_out(steps: list[Step], timeout_s: float, *, rolls_back: bool = True) -> dict[str, str | None]:
    """Run the steps of a change; return their results by name, without the first, which acquires the lease.

    Each step may wait for ``timeout_s`` or its own patience, if that is longer. If a step fails, its error is raised,
    with ``rolls_back`` after the job was restored.
    """
    lease, *others = steps
    change = lease.change
    renewal = LeaseRenewal(change.catalog.leases, change.job, change.run_id)
    shell = _Shell(change, renewal, timeout_s, [step.name for step in steps])
    try:
        shell.perform(lease)
    except BaseException as error:
        lease.give_up(error)
        raise
    with renewal, _ended_as_by_ctrl_c():
        try:
            return {step.name: shell.perform(step) for step in others}
        except BaseException as error:
            if rolls_back:
                shell.roll_back(error)
            else:
                # An unreachable catalog must not hide the error itself.
                with suppress(StatecoreError):
                    change.catalog.leases.release(change.job, change.run_id)
            raise


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """Treat a closed terminal and SIGTERM as Ctrl-C: otherwise the rollback waits until the lease expires."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGHUP, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Shell:
    def __init__(self, change: Change, renewal: LeaseRenewal, timeout_s: float, names: Sequence[str]) -> None:
        self._change = change
        self._renewal = renewal
        self._timeout_s = timeout_s
        self._names = names

    def perform(self, step: Step) -> str | None:
        """Run one step; retry it if another attempt may succeed."""
        for attempt in range(RETRIES + 1):
            try:
                return self._attempt(step)
            except StatecoreError as error:
                if attempt == RETRIES or not is_retryable(error):
                    raise
                note(f"{step.name} failed, retrying: {error}")
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
                with self._telling(step):
                    return step.end()
            finally:
                step.cancel()

    def _wait(self, step: Step) -> None:
        deadline = time.monotonic() + max(self._timeout_s, step.patience_ms() / 1000)
        with self._telling(step, f": waiting for {step.expected}") as tell:
            while (finding := step.observe()).status is Status.WAITING:
                tell(finding.message)
                if step.holds_lease and self._is_over():
                    return
                if time.monotonic() > deadline:
                    finding = step.timed_out(finding)
                    break
                time.sleep(POLL_S)
        finding.check()

    def _is_over(self) -> bool:
        """Return whether the lease expired and the supervisor has ended the run as done.

        Raises:
            LeaseHeldError, UnknownRecordError: The lease is lost, and the run is not done.

        """
        try:
            self._renewal.check()
        except StatecoreError:
            run = self._change.run()
            if run is None or run.state != "done":
                raise
            return True
        return False

    @contextmanager
    def _telling(self, step: Step, doing: str = "") -> Iterator[Callable[[str], None]]:
        change, place = self._change, ""
        if step.name in self._names:
            place = f" ({self._names.index(step.name) + 1} of {len(self._names)})"
        usual_ms = None
        with suppress(StatecoreError):
            usual_ms = usual_step_ms(change.catalog.runs.of(change.job, limit=RUNS), step.name)
        with telling(f"{change.job}: {step.name}{place}{doing}", usual_ms) as tell:
            if isinstance(change.log, ShellLog):
                change.log.tell = tell
            yield tell

    def roll_back(self, error: BaseException) -> None:
        """Restore the job; after Ctrl-C do not wait. If it fails, the supervisor restores it when the lease expires."""
        step = Rollback(change=self._change)
        try:
            run = self._change.run()
            if run is not None and run.state == "running" and not isinstance(error, Exception):
                self._change.catalog.runs.update(run.run_id, error=f"ended by {type(error).__name__}")
            begun = step.begin()
            if begun is not None:
                note(begun.message)
                return
            step.ask()
            try:
                if isinstance(error, Exception):
                    self._wait(step)
                step.end()
                note(step.outcome)
            except StatecoreError as failure:
                step.give_up(failure)
                note(step.outcome)
        except StatecoreError as failure:
            note(f"not rolled back here: {failure}; the supervisor restores the job when the lease expires")
