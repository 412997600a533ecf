"""The step that redistributes state to another number of subtasks, by the run's rescale method."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.catalog import RescaleRunRecord
from statecore.operations.changes.change import now_ms, out_of_order
from statecore.operations.changes.copying import CopyCheckpoint
from statecore.operations.changes.finding import Finding, look_at_request
from statecore.operations.changes.rewriting import Rewrite
from statecore.operations.changes.step import Step
from statecore.operations.changes.stop import StopWithSavepoint
from statecore.operations.savepoints import record_savepoint
from statecore.operations.status.verification import patience_ms
from statecore.queries.job.new_checkpoint import is_copied, new_checkpoint
from statecore.snapshot.claims import claimed
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.verify import verify_presence

REWRITE_TIMEOUT_S = 7_200.0
"""A rewrite reads and writes all state."""


@dataclass(kw_only=True)
class RescaleState(Step):
    """Redistributes state to its new subtasks.

    - ``by_reference``: gives the savepoint's files to the new subtasks; no byte of state is read or copied.
    - ``rewrite``: a Spark job rewrites all state, also for another max parallelism.
      A query of Spark's own gets a copy of its checkpoint, with proof and a trial restart.
    - ``live``: the running driver adopts the new parallelism between two epochs.

    The result is the path of the new manifest in the job's store, or the URL of a query's new checkpoint; None for
    ``live``.

    Attributes:
        max_parallelism: Key groups after a rewrite; None keeps their number.
        rewrite_timeout_s: How long a rewrite may take.
        request_id: The request that a live rescale waits for.

    """

    name = "rescale_state"
    parameters = ("max_parallelism", "rewrite_timeout_s")
    expected = "the driver to adopt the parallelism"

    max_parallelism: int | None = None
    rewrite_timeout_s: float = REWRITE_TIMEOUT_S
    request_id: int | None = None

    def __post_init__(self) -> None:
        """Begin with no program to cancel."""
        self._rewrite: Rewrite | CopyCheckpoint | None = None

    def ask(self) -> None:
        """For a live rescale, send a request to the driver; a retry asks its successor if the driver died."""
        run = self.required_run()
        if run.method == "live":
            self.request_id = self._live_request(run)

    def look(self) -> Finding:
        """Look at the request of a live rescale."""
        if self.request_id is None:
            return super().look()
        return look_at_request(self.change.catalog.requests, self.request_id)

    def finish(self) -> str | None:
        """Write the manifest for the new parallelism; a second attempt returns the same one."""
        run = self.required_run()
        if run.method == "live":
            self.change.log.info("Job %s runs at parallelism %s", self.change.job, run.to_parallelism)
            return None
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepoint.name)
        if self.change.catalog.jobs.get(self.change.job).is_query:
            path = self._copied(run, run.savepoint)
        else:
            path = self._rewritten(run, run.savepoint) if run.method == "rewrite" else self._given(run, run.savepoint)
        self.change.catalog.runs.update(run.run_id, rescaled=path)
        return path

    def cancel(self) -> None:
        """End the Spark job of a rewrite."""
        if self._rewrite is not None:
            self._rewrite.kill()

    def patience_ms(self) -> int:
        """Return the time for the epoch in flight: a live rescale happens between two epochs."""
        return patience_ms(self.change.catalog, self.change.job)

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the rescaled manifest of a run that is done."""
        return run.rescaled

    def _live_request(self, run: RescaleRunRecord) -> int:
        """Return the first request of this run that has not failed."""
        attempt = 1
        while True:
            key, arguments = f"{run.run_id}/{self.name}/{attempt}", {"parallelism": run.to_parallelism}
            request = self.change.catalog.requests.send(self.change.job, "rescale", arguments, key)
            if request.state != "failed":
                return request.id
            attempt += 1

    def _given(self, run: RescaleRunRecord, savepoint: str) -> str:
        change, store = self.change, self.change.store()
        # The old savepoint must stay until the new manifest names its files, too.
        with claimed(store.files, savepoint, f"rescale run {run.run_id}"):
            manifest = store.manifest(savepoint)
            verify_presence(store, manifest)
            rescaled = rescale_by_reference(manifest, run.to_parallelism)
            name = f"{change.savepoint_name}-p{rescaled.parallelism}"
            path = store.write_savepoint(rescaled, name, reason=run.reason, now_ms=now_ms())
        record_savepoint(change.catalog.savepoints, store, rescaled, path, run.reason)
        change.log.info(
            "By reference from parallelism %s to %s, epoch %s: %s",
            manifest.parallelism,
            rescaled.parallelism,
            rescaled.epoch,
            store.describe(path),
        )
        return path

    def _copied(self, run: RescaleRunRecord, savepoint: str) -> str:
        """Copy a query's savepoint to a checkpoint with the new number of state partitions, with proof."""
        job = self.change.catalog.jobs.get(self.change.job)
        source = self.change.store().describe(savepoint)
        target = new_checkpoint(job, f"{self.change.savepoint_name}-p{run.to_parallelism}")
        if not is_copied(source, target):
            self._rewrite = CopyCheckpoint(job, source, target, run.to_parallelism)
            self._rewrite.run(self.rewrite_timeout_s, self.change)
        return target

    def _rewritten(self, run: RescaleRunRecord, savepoint: str) -> str:
        job, store = self.change.catalog.jobs.get(self.change.job), self.change.store()
        groups = self.max_parallelism or job.max_parallelism
        name = f"{self.change.savepoint_name}-p{run.to_parallelism}-of-{groups}"
        path = store.savepoint_path(name)
        if store.files.size(path) is None:
            self._rewrite = Rewrite(job, store.describe(savepoint), name, run.to_parallelism, groups)
            self._rewrite.run(self.rewrite_timeout_s, self.change)
        record_savepoint(self.change.catalog.savepoints, store, store.manifest(path), path, run.reason)
        return path
