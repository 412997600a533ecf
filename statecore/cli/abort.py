"""``rescale --abort``."""

from __future__ import annotations

import time

from statecore.catalog import Catalog
from statecore.catalog.audit import this_user
from statecore.cli.output import note, print_json, telling
from statecore.cli.steps import POLL_S
from statecore.errors import StepFailedError


def abort_rescale(job: str, url: str, timeout_s: float, *, as_json: bool) -> None:
    """Abort the run that changes a job, and wait until it is rolled back.

    Raises:
        UnknownRecordError: No run changes the job.
        StepFailedError: The rollback takes longer than ``timeout_s``.

    """
    with Catalog(url) as catalog:
        run = catalog.runs.abort(job, this_user())
        note(f"{job}: aborting {run.run_id}")
        deadline = time.monotonic() + timeout_s
        with telling(f"{job}: waiting for the rollback"):
            while run.state == "running":
                if time.monotonic() > deadline:
                    raise StepFailedError(
                        f"found run {run.run_id!r} not rolled back {timeout_s:.0f} s after it was aborted; expected "
                        "the DAG or the shell that carries it out to do that; if that has died, the supervisor does "
                        "it when the lease expires: see `statecore status`"
                    )
                time.sleep(POLL_S)
                run = catalog.runs.get(run.run_id)
    if as_json:
        print_json({"job": job, "run": run.run_id, "state": run.state, "error": run.error})
    else:
        print(f"{job}: {run.run_id} {run.state}: {run.error}")
