"""Ends a change whose DAG or shell has died, if only ``verify`` remains."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from statecore.catalog import Catalog, LeaseRecord, RescaleRunRecord
from statecore.errors import LeaseHeldError, StepFailedError, UnknownRecordError
from statecore.operations.changes.change import Change, find_run
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.rollback import Rollback
from statecore.operations.changes.saga import RESCALE
from statecore.operations.changes.verify import Verify

log = logging.getLogger(__name__)

_LEASE_TTL_MS = 60_000
_TIMEOUT_MS = int(Verify.timeout.total_seconds() * 1000)
# After this long without a look, the deadline moves by as much: it may have passed in an outage.
_LATE_MS = 30_000


def awaits_verify(run: RescaleRunRecord) -> bool:
    """Return whether a run only lacks the step ``verify``."""
    # The restart is the last step before it, in an upgrade too.
    *_, last = (step for step in RESCALE[: RESCALE.index(Verify)] if step.is_needed(run))
    times = run.steps.get(last.name)
    is_changed = times is not None and times.ended_ms is not None
    return run.state == "running" and run.aborted_by is None and not run.is_given_up and is_changed


@dataclass(slots=True)
class _Awaited:
    step: Verify
    deadline_ms: int
    looked_ms: int

    def is_late(self, now_ms: int) -> bool:
        """Note a look; return whether the deadline has passed."""
        if now_ms - self.looked_ms >= _LATE_MS:
            self.deadline_ms = max(self.deadline_ms, now_ms + _LATE_MS)
        self.looked_ms = now_ms
        return now_ms >= self.deadline_ms


class Finisher:
    """Verifies jobs, pass after pass; meanwhile it holds the lease in place of the DAG or the shell.

    Several jobs may be handled at once.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._awaited: dict[str, _Awaited] = {}

    def forget(self) -> None:
        """Leave all jobs to another supervisor."""
        self._awaited.clear()

    def take_up(self, lease: LeaseRecord) -> bool:
        """Take over the change of an expired lease; return whether only ``verify`` remains."""
        run = find_run(self._catalog.runs, lease.owner)
        if run is None or not awaits_verify(run):
            return False
        if self._is_renewed(lease):
            # Its process has come back since the pass began.
            return True
        step = Verify(change=Change(self._catalog, lease.job, lease.owner, _LEASE_TTL_MS, log))
        try:
            step.hold_lease()
        except (LeaseHeldError, UnknownRecordError):
            # Another process was quicker.
            return True
        now_ms = self._catalog.now_ms()
        self._awaited[lease.job] = _Awaited(step, now_ms + max(_TIMEOUT_MS, step.patience_ms()), now_ms)
        log.warning("job %r: run %r was abandoned and only awaits verification; verifying", lease.job, lease.owner)
        return True

    def go_on(self, job: str) -> None:
        """Look once at a job that awaits verification: end its change if healthy, roll it back on a failure."""
        awaited = self._awaited.get(job)
        if awaited is None:
            return
        step, change = awaited.step, awaited.step.change
        try:
            change.renew_lease()
        except (LeaseHeldError, UnknownRecordError):
            # The DAG or the shell has come back, and ended the run.
            self._awaited.pop(job, None)
            return
        run = step.required_run()
        if run.state != "running" or run.is_given_up:
            # The DAG or the shell has come back, and is about to release the lease or rolls the job back.
            self._awaited.pop(job, None)
            return
        finding, is_late = step.observe(), awaited.is_late(self._catalog.now_ms())
        if finding.status is Status.WAITING:
            if not is_late:
                return
            finding = step.timed_out(finding)
        if finding.status is Status.DONE:
            finding = _ended(step, finding)
        if finding.status is not Status.DONE:
            _roll_back(change, finding.message)
        self._awaited.pop(job, None)

    def _is_renewed(self, lease: LeaseRecord) -> bool:
        """Return whether the expired lease was renewed, released or taken by another run."""
        newest = self._catalog.leases.find(lease.job)
        return newest is None or newest.owner != lease.owner or self._catalog.now_ms() < newest.expires_ms


def _ended(step: Verify, finding: Finding) -> Finding:
    try:
        step.end()
    except StepFailedError as aborted:
        return Finding(Status.REFUSED, str(aborted))
    log.info("job %r: run %r is verified and done: %s", step.change.job, step.change.run_id, finding.message)
    return finding


def _roll_back(change: Change, why: str) -> None:
    """Restore the job; wait for no driver, because the supervisor itself starts it."""
    said = f"the supervisor took over step verify, which failed: {why}; rolled back"
    change.mark(Rollback.name, started=True)
    try:
        change.catalog.leases.roll_back(change.job, change.run_id, change.lease_ttl_ms, said)
    except (LeaseHeldError, UnknownRecordError) as lost:
        # The DAG or the shell has come back, and ended the run.
        log.info("job %r: not rolled back: %s", change.job, lost)
        return
    change.mark(Rollback.name, ended=True)
    change.catalog.runs.finish(change.run_id, error=said)
    change.catalog.leases.release(change.job, change.run_id)
    log.warning("job %r: %s", change.job, said)
