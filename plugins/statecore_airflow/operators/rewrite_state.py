"""The step that lays state out anew by a Spark job, also for another max parallelism."""

from __future__ import annotations

import subprocess
import threading
import time
from datetime import timedelta
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.catalog import Catalog, JobRecord, RescaleRunRecord
from statecore.cluster.processes import kill_session
from statecore.cluster.spark_home import spark_environment
from statecore.errors import CatalogError
from statecore.operations.submit import PROGRAMS, submit_command
from statecore.snapshot.checkpoints import CheckpointStore
from statecore_airflow.hooks.settings import lease_renewal_ms, lease_ttl_ms
from statecore_airflow.operators.step import JobStep, change_id, out_of_order
from statecore_airflow.operators.stop_with_savepoint import StopWithSavepointOperator, record_savepoint, savepoint_name
from statecore_airflow.params.rescale import RescaleRequest


class RewriteStateOperator(JobStep):
    """Submits the program ``rewrite.py`` to the job's own Spark, with the job's own configuration, and waits for it.

    The job's driver has stopped, so its executors are free. The result is the path of the new manifest in the job's
    store. A rewrite whose worker was killed may still end well: the next try takes its savepoint when it is there.

    Args:
        timeout: How long a rewrite may take.
        **kwargs: See ``JobStep``.

    """

    step = "rewrite_state"
    methods = frozenset({"rewrite"})

    def __init__(self, *, timeout: timedelta = timedelta(hours=2), **kwargs: Any) -> None:
        super().__init__(timeout=timeout, **kwargs)
        self._submitted: subprocess.Popen[str] | None = None

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the rewritten manifest of a run that is done."""
        return run.rescaled

    def begin(self, catalog: Catalog, context: Context) -> str:
        """Rewrite the savepoint, unless an earlier try has."""
        run = catalog.rescale_run(change_id(context))
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepointOperator.step)
        job = catalog.job(self.job)
        store = CheckpointStore.at(job.store)
        groups = RescaleRequest.of(context["params"]).max_parallelism or store.manifest(run.savepoint).max_parallelism
        name = f"{savepoint_name(run.run_id)}-p{run.to_parallelism}-of-{groups}"
        path = store.savepoint_path(name)
        if store.files.size(path) is None:
            arguments = ["--savepoint", store.describe(run.savepoint), "--name", name]
            arguments += ["--parallelism", str(run.to_parallelism), "--max-parallelism", str(groups)]
            self._submit(catalog, run.run_id, job, name, arguments)
        record_savepoint(catalog, store, store.manifest(path), path, run.reason)
        catalog.update_rescale_run(run.run_id, rescaled=path)
        return path

    def finish(self, catalog: Catalog, context: Context) -> str:
        """Never waits in a trigger: the submitted program belongs to this process."""
        return self.begin(catalog, context)

    def on_kill(self) -> None:
        """End the submitted program with the task."""
        if self._submitted is not None:
            kill_session(self._submitted.pid)

    def _submit(self, catalog: Catalog, run: str, job: JobRecord, name: str, arguments: list[str]) -> None:
        command = submit_command(job, name, PROGRAMS / "rewrite.py", *arguments)
        deadline = time.monotonic() + self.timeout.total_seconds()
        with subprocess.Popen(
            command,
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as submitted:
            self._submitted = submitted
            reader = threading.Thread(target=self._log_output, args=(submitted,), daemon=True)
            reader.start()
            try:
                while (exit_code := _wait(submitted)) is None:
                    self._renew(catalog, run)
                    if time.monotonic() > deadline:
                        raise AirflowFailException(
                            f"found the rewrite {name} of job {self.job!r} running for longer than {self.timeout}; "
                            "expected it to end by then; give the cluster more workers, or the task a longer timeout"
                        )
            finally:
                # Also when the lease is lost: somebody else has the job now.
                kill_session(submitted.pid)
                reader.join()
        if exit_code != 0:
            raise AirflowException(
                f"found the rewrite {name} of job {self.job!r} ended with exit code {exit_code}; expected 0; its "
                "output is above"
            )

    def _renew(self, catalog: Catalog, run: str) -> None:
        try:
            catalog.renew_lease(self.job, run, lease_ttl_ms())
        except CatalogError as error:
            if type(error) is not CatalogError:
                raise
            # The database cannot be reached, and may be there again when the lease is renewed next.
            self.log.warning("%s", error)

    def _log_output(self, submitted: subprocess.Popen[str]) -> None:
        assert submitted.stdout is not None
        for line in submitted.stdout:
            self.log.info("%s", line.rstrip())


def _wait(submitted: subprocess.Popen[str]) -> int | None:
    try:
        return submitted.wait(timeout=lease_renewal_ms() / 1000)
    except subprocess.TimeoutExpired:
        return None
