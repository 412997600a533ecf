"""A job of statecore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from statecore.catalog import ClaimedSavepoint, RescaleMethod, RescaleRunRecord, SystemClock
from statecore.errors import ConfigurationError
from statecore.model import default_max_parallelism
from statecore.operations.job_file_check import JOB_FILE
from statecore.operations.kinds.kind import JobKind
from statecore.operations.savepoints import EpochSavepoints, Savepoints
from statecore.queries.progress import Report
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.manifest import Manifest, fingerprint
from statecore.snapshot.plan import RescalePlan, newest_to_plan, plan_rescale
from statecore.snapshot.published import unpublished_sinks
from statecore.snapshot.resume_point import is_start_pending, known_generation

PROGRAMS = Path(__file__).resolve().parents[2] / "runtime" / "programs"
"""The programs that spark-submit starts; as files, because it takes no module."""


class StatecoreJob(JobKind):
    """A job of statecore."""

    title = "a job of statecore"
    unit = "epoch"
    options = {"artifact": "--artifact"}  # noqa: RUF012 - read only
    file = JOB_FILE
    program = PROGRAMS / "stream.py"
    methods = ("live", "by_reference", "rewrite")

    max_parallelism = staticmethod(default_max_parallelism)

    @property
    def savepoints(self) -> Savepoints:
        """Pinned epochs."""
        return EpochSavepoints(self.job)

    def size(self, parallelism: str) -> str:
        """Return parallelism and max parallelism."""
        return f"parallelism {parallelism} of at most {self.job.max_parallelism}"

    def newest(self) -> str | None:
        """Return the newest epoch in its store."""
        newest = CheckpointStore.at(self.job.store).newest()
        return None if newest is None else f"epoch {newest.epoch} of lineage {newest.lineage}"

    def require_rescalable(self, parallelism: int, method: str, max_parallelism: int | None) -> None:
        """Refuse nothing: a job supports every method."""

    def require_statecore_job(self, what: str, remedy: str) -> None:
        """Refuse nothing: this is one."""

    def policy_method(self, asked: str | None) -> dict[str, str]:
        """Refuse a rewrite."""
        if asked == "rewrite":
            raise ConfigurationError(
                f"found the method rewrite for a policy of job {self.job.name!r}; expected live or by_reference, which "
                "copy no state; a rewrite is for queries of Spark's own"
            )
        return {}

    def start_first(self, parallelism: int) -> str:
        """Return a start at the new parallelism."""
        name = self.job.name
        return f"at the new parallelism: `statecore start {name} --parallelism {parallelism}`, or the DAG start"

    def beginning(
        self,
        start_from: str,
        name: str,
        generation: int,
        *,
        roll_back: bool,
        claim: bool,
        skip_unpublished: bool,
        report: Report,
    ) -> dict[str, Any]:
        """Return the savepoint itself."""
        own = CheckpointStore.at(self.job.store)
        store, path, asked = own.open(start_from)
        if claim and asked.savepoint is None:
            raise ConfigurationError(
                f"found a checkpoint at {store.describe(path)}; expected a savepoint with --claim, because a "
                f"checkpoint belongs to job {asked.job!r}; leave --claim out, or take a savepoint"
            )
        newest = own.newest()
        if newest is not None and not roll_back and _epoch_of(asked) != _epoch_of(newest):
            raise ConfigurationError(
                f"found epoch {newest.epoch} of lineage {newest.lineage} committed in {self.job.store}; expected the "
                f"job to begin with {store.describe(path)}, epoch {asked.epoch} of lineage {asked.lineage} of job "
                f"{asked.job!r}; add --roll-back to leave the newer epochs behind, or start without --from to resume "
                "from them"
            )
        # Of the newest epoch in its store, the job publishes what is not.
        is_newest = newest is not None and _epoch_of(asked) == _epoch_of(newest)
        if not is_newest and not skip_unpublished:
            self._require_published(store, path, asked)
        return {
            "start_from": store.describe(path),
            "start_after": known_generation(own, newest, asked),
            "roll_back": roll_back,
            "claims_savepoint": ClaimedSavepoint(store.describe(path), fingerprint(asked)) if claim else None,
            "max_parallelism": asked.max_parallelism,
        }

    def _require_published(self, store: CheckpointStore, path: str, asked: Manifest) -> None:
        """Refuse a savepoint whose epoch has rows that nobody would publish.

        Raises:
            ConfigurationError: There are some; the message names their sinks.

        """
        waiting = unpublished_sinks(store, asked)
        if waiting:
            raise ConfigurationError(
                f"found rows of epoch {asked.epoch} of job {asked.job!r} in {store.describe(path)} that its sinks "
                f"{waiting} have not published; expected them to be published, because job {self.job.name!r} goes on "
                f"after them; start job {asked.job!r} until its sinks have them, and copy the savepoint anew if it is "
                "a copy; or add --skip-unpublished to go on without these rows"
            )

    def restarting(self, run: RescaleRunRecord, generation: int, max_parallelism: int | None) -> dict[str, Any]:
        """Return the run's state; an upgrade's is the savepoint."""
        # While no epoch has followed the savepoint that the job should start from, this one was made of it.
        store = CheckpointStore.at(self.job.store)
        newest = store.newest()
        return {
            "max_parallelism": max_parallelism,
            "start_from": run.rescaled or run.savepoint,
            "start_after": known_generation(store, newest),
            "roll_back": self.job.roll_back and is_start_pending(newest, self.job),
            "claims_savepoint": self.job.claims_savepoint,
        }

    def rescale_plan(self, parallelism: int, max_parallelism: int | None, method: RescaleMethod) -> RescalePlan | None:
        """Return the plan of the newest epoch's state."""
        store = CheckpointStore.at(self.job.store)
        if method == "live" and store.newest() is None:
            return None
        newest = newest_to_plan(store, self.job.name)
        path = store.manifest_path(newest.lineage, newest.epoch)
        # The job keeps running, and clean-up removes epochs that newer ones replace.
        with claimed(store.files, path, f"the plan of a rescale to {parallelism}, {SystemClock().now_ms()}"):
            return plan_rescale(store, newest, parallelism, max_parallelism, rewrite=method == "rewrite")

    def checkpoint_to_try(self) -> None:
        """Return None: a driver checks the job file against the manifest."""


def _epoch_of(manifest: Manifest) -> tuple[str, int, int]:
    return manifest.job, manifest.lineage, manifest.epoch
