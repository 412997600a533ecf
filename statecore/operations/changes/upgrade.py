"""The steps that only an upgrade has: check the new job file, and replace the old one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from statecore.catalog import RequestRecord
from statecore.errors import ConfigurationError, JobDefinitionError
from statecore.operations.changes.change import Change, out_of_order
from statecore.operations.changes.copying import TryQuery
from statecore.operations.changes.finding import Finding, Status
from statecore.operations.changes.lease import TakeLease
from statecore.operations.changes.step import Step
from statecore.operations.changes.stop import StopWithSavepoint
from statecore.operations.kinds import kind_of
from statecore.operations.supervision import require_supervisor

TRIAL_TIMEOUT_S = 3_600.0
"""A trial restart reads all state."""


@dataclass(kw_only=True)
class BeginUpgrade(TakeLease):
    """Takes the lease, records a run that keeps parallelism and workers, and has the new job file checked.

    The new file of a query of Spark's own is also tried on a clone of the query's checkpoint, where Spark refuses
    other operators and changed schemas of state.

    Attributes:
        artifact: Absolute path or URL of the new job file.
        reason: Why, kept with the run.
        request_id: The request to the supervisor.

    """

    parameters = ("artifact", "reason")
    expected = "the supervisor to check the job file"

    artifact: str
    reason: str = ""
    request_id: int | None = None

    def __post_init__(self) -> None:
        """Begin with no trial to cancel."""
        self._trial: TryQuery | None = None

    def asked(self) -> dict[str, Any]:
        """Return the new job file, and why."""
        return {"artifact": self.artifact, "reason": self.reason}

    def check(self) -> None:
        """Refuse a relative path, and a job that does not run."""
        job = self.change.catalog.jobs.get(self.change.job)
        if job.desired_state != "running":
            raise ConfigurationError(
                f"found job {job.name!r} stopped; expected it to run, because an upgrade is verified on the running "
                "job; start it first, or register it again with the new job file"
            )
        if "://" not in self.artifact and not self.artifact.startswith("/"):
            raise JobDefinitionError(
                f"found the job file {self.artifact!r}; expected an absolute path or a URL, because drivers start "
                "elsewhere; give the absolute path"
            )
        require_supervisor(self.change.catalog, job.name)

    def ask(self) -> None:
        """Record the run, and ask the supervisor to check the job file where drivers run."""
        job = self.change.catalog.jobs.get(self.change.job)
        reason = f"upgrade to {self.artifact}"
        reason = f"{reason}: {self.reason}" if self.reason else reason
        self.record_run(job, job.parallelism, None, "by_reference", reason)
        self._check()

    def look(self) -> Finding:
        """Wait for the supervisor's answer."""
        check = self._check()
        if check.state == "failed":
            return Finding(Status.REFUSED, str(check.error))
        return Finding(
            Status.DONE if check.state == "done" else Status.WAITING, f"check of {self.artifact} {check.state}"
        )

    def finish(self) -> None:
        """Try a new query file on the query's checkpoint."""
        job, checked = self.change.catalog.jobs.get(self.change.job), self._check().result
        checkpoint = kind_of(job).checkpoint_to_try()
        if checkpoint is None:
            return
        assert checked is not None
        new = dataclasses.replace(job, artifact=self.artifact, artifact_sha256=checked["sha256"])
        self._trial = TryQuery(new, checkpoint)
        self._trial.run(TRIAL_TIMEOUT_S, self.change)

    def cancel(self) -> None:
        """End the trial."""
        if self._trial is not None:
            self._trial.kill()

    def _check(self) -> RequestRecord:
        if self.request_id is not None:
            return self.change.catalog.requests.get(self.request_id)
        request = _check_of(self.change, self.artifact)
        self.request_id = request.id
        return request


@dataclass(kw_only=True)
class ReplaceArtifact(Step):
    """Records the new job file, with which the stopped job resumes from its savepoint."""

    name = "replace_artifact"
    parameters = ("artifact",)

    artifact: str

    def finish(self) -> None:
        """Record the new job file, if the job may run it; the restart uses the savepoint unchanged."""
        run, catalog = self.required_run(), self.change.catalog
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepoint.name)
        checked = _check_of(self.change, self.artifact).result
        if checked is None:
            raise out_of_order(run.run_id, "checked job file", BeginUpgrade.name)
        old, digest = catalog.jobs.get(self.change.job), checked["sha256"]
        self.change.log.info(
            "Job %s: %s, SHA-256 %s, replaces %s, SHA-256 %s",
            self.change.job,
            self.artifact,
            digest,
            old.artifact,
            old.artifact_sha256,
        )
        # Here rather than in the next driver: the answer to the request is no permission.
        catalog.job_files.require_permitted(dataclasses.replace(old, artifact=self.artifact, artifact_sha256=digest))
        # The permission to drop state was for the old job file, perhaps from a rollback.
        catalog.jobs.set_desired(
            self.change.job, artifact=self.artifact, artifact_sha256=digest, allow_non_restored_state=False
        )


def _check_of(change: Change, artifact: str) -> RequestRecord:
    """Return the request to the supervisor to check the job file; a retry returns the same one."""
    key = f"{change.run_id}/check_job_file"
    return change.catalog.requests.send(change.job, "check_job_file", {"artifact": artifact}, key)
