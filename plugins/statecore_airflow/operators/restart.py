"""The step that starts a job again."""

from __future__ import annotations

from airflow.sdk import Context

from statecore.catalog import Catalog, GenerationRecord
from statecore.snapshot.checkpoints import CheckpointStore
from statecore_airflow.operators.step import JobStep, change_id, out_of_order
from statecore_airflow.triggers.catalog import RunningTrigger


class RestartOperator(JobStep):
    """Has the supervisor start the job from the rescaled savepoint and waits until its driver runs.

    Args:
        **kwargs: See ``JobStep``.

    """

    step = "restart"
    methods = frozenset({"by_reference", "rewrite"})

    def begin(self, catalog: Catalog, context: Context) -> None:
        """Record what is wanted."""
        run = catalog.rescale_run(change_id(context))
        if run.rescaled is None:
            raise out_of_order(run.run_id, "rescaled savepoint", "rescale_state or rewrite_state")
        job = catalog.job(self.job)
        newest = catalog.newest_generation(self.job)
        if (job.desired_state, job.start_from) != ("running", run.rescaled):
            rescaled = CheckpointStore.at(job.store).manifest(run.rescaled)
            catalog.set_desired(
                self.job,
                state="running",
                parallelism=run.to_parallelism,
                # A rewrite may have changed it.
                max_parallelism=rescaled.max_parallelism,
                start_from=run.rescaled,
            )
        self.wait(catalog, RunningTrigger, owner=run.run_id, after=last_ended(newest))
        self.finish(catalog, context)

    def finish(self, catalog: Catalog, context: Context) -> None:
        """Say which generation runs."""
        newest = catalog.newest_generation(self.job)
        self.log.info("Generation %s runs", newest.generation if newest else None)


def last_ended(newest: GenerationRecord | None) -> int:
    """Return the generation after which one that runs is waited for: the newest, or the one before if it has not ended.

    In a first try the newest generation is the one that was stopped; later it may be the new one.
    """
    return 0 if newest is None else newest.generation - (0 if newest.ended else 1)
