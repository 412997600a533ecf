"""The step that gives state to another number of subtasks by reference."""

from __future__ import annotations

from airflow.sdk import Context

from statecore.catalog import Catalog, RescaleRunRecord
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.verify import verify_presence
from statecore_airflow.operators.base import now_ms
from statecore_airflow.operators.step import JobStep, change_id, out_of_order
from statecore_airflow.operators.stop_with_savepoint import StopWithSavepointOperator, record_savepoint, savepoint_name


class RescaleStateOperator(JobStep):
    """Gives the savepoint's files to another number of subtasks; no state byte is read or copied.

    The result is the path of the new manifest in the job's store.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "rescale_state"
    methods = frozenset({"by_reference"})

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the rescaled manifest of a run that is done."""
        return run.rescaled

    def begin(self, catalog: Catalog, context: Context) -> str:
        """Check that every file is there, then write the new manifest."""
        return self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> str:
        """Write the manifest at the new parallelism; again, it is the same one."""
        run = catalog.rescale_run(change_id(context))
        if run.savepoint is None:
            raise out_of_order(run.run_id, "savepoint", StopWithSavepointOperator.step)
        store = CheckpointStore.at(catalog.job(self.job).store)
        manifest = store.manifest(run.savepoint)
        # Until the new manifest names the files, too, nobody may drop the old one.
        with claimed(store.files, run.savepoint, f"rescale run {run.run_id}"):
            verify_presence(store, manifest)
            rescaled = rescale_by_reference(manifest, run.to_parallelism)
            name = f"{savepoint_name(run.run_id)}-p{rescaled.parallelism}"
            path = store.write_savepoint(rescaled, name, reason=run.reason, now_ms=now_ms())
        record_savepoint(catalog, store, rescaled, path, run.reason)
        catalog.update_rescale_run(run.run_id, rescaled=path)
        self.log.info(
            "By reference from parallelism %s to %s, epoch %s: %s",
            manifest.parallelism,
            rescaled.parallelism,
            rescaled.epoch,
            store.describe(path),
        )
        return path
