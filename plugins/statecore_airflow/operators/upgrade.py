"""The steps of an upgrade that others do not have: check the new job file, and put it in the old one's place."""

from __future__ import annotations

import time

from airflow.sdk import Context

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError, JobDefinitionError, RequestFailedError
from statecore.operations.job_check_requests import ask_check, is_checked
from statecore_airflow.operators.lease import LeaseOperator
from statecore_airflow.operators.step import JobStep, change_id, out_of_order
from statecore_airflow.operators.stop_with_savepoint import StopWithSavepointOperator
from statecore_airflow.triggers.catalog import POLL_S

_CHECK_S = 60
"""The supervisor gives a job file half a minute."""


class BeginUpgradeOperator(LeaseOperator):
    """Checks the new job file, takes the lease, and records a run that keeps parallelism and workers.

    Args:
        **kwargs: See ``JobStep``.

    """

    def check(self, catalog: Catalog, context: Context) -> None:
        """Refuse a job file that cannot run, and a job that does not run."""
        job = catalog.job(self.job)
        if job.desired_state != "running":
            raise ConfigurationError(
                f"found job {job.name!r} stopped; expected it to run, because an upgrade proves itself by running; "
                "start it first, or register it again with the new job file"
            )
        check_job_file(catalog, job.name, str(context["params"]["artifact"]))

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Start the run in the catalog."""
        run, params = change_id(context), context["params"]
        job = catalog.job(self.job)
        workers = None if job.cluster is None else catalog.cluster(job.cluster).desired_workers
        reason = f"upgrade to {params['artifact']}"
        catalog.start_rescale_run(
            run,
            job.name,
            from_parallelism=job.parallelism,
            to_parallelism=job.parallelism,
            from_workers=workers,
            to_workers=workers,
            reason=f"{reason}: {params['reason']}" if params["reason"] else reason,
        )
        catalog.mark_step(run, self.step, started=True)


class ReplaceArtifactOperator(JobStep):
    """Has the job run the new job file from its savepoint on; the job is stopped.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "replace_artifact"

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Record the new job file."""
        self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> None:
        """Record what to start from: the savepoint as it is."""
        run = catalog.rescale_run(change_id(context))
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepointOperator.step)
        artifact = str(context["params"]["artifact"])
        self.log.info("Job %s: %s follows %s", self.job, artifact, catalog.job(self.job).artifact)
        # What the old job file may leave behind, after a rollback perhaps, the new one may not.
        catalog.set_desired(self.job, artifact=artifact, allow_non_restored_state=False)
        catalog.update_rescale_run(run.run_id, rescaled=run.savepoint)


def check_job_file(catalog: Catalog, job: str, artifact: str) -> None:
    """Have the supervisor check a job file, where drivers run and this worker's environment does not count.

    Raises:
        JobDefinitionError: It is wrong; the message has the line and the reason.
        RequestFailedError: The supervisor does not answer.

    """
    if "://" not in artifact and not artifact.startswith("/"):
        raise JobDefinitionError(
            f"found the job file {artifact!r}; expected an absolute path or a URL, because drivers are started "
            "elsewhere; give the whole path"
        )
    request = ask_check(catalog, job, artifact)
    deadline = time.monotonic() + _CHECK_S
    while not is_checked(catalog, request):
        if time.monotonic() > deadline:
            raise RequestFailedError(
                f"found no check of {artifact} after {_CHECK_S} s; expected the supervisor to make it; check that it "
                "runs, then trigger a new run"
            )
        time.sleep(POLL_S)
