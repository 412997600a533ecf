"""The lineage that a driver continues: its newest epoch, and the state that the next epoch starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from statecore.errors import CommitConflictError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import FilePart, Manifest, subtask_parts
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.resume_point import ResumePoint


class Lineage:
    """The committed epochs of one generation; one epoch at a time follows.

    Args:
        store: The store for checkpoints.
        resume: The resume point.
        generation: The driver's generation.
        on_first_commit: Called after the first commit: the resume point is no longer needed.

    Attributes:
        number: Number of the lineage.
        newest: The newest manifest; None before the first.
        previous: That manifest with its state redistributed to the subtasks of the next epoch.
        path: Path of that manifest in its store.
        foreign: The store of that manifest, when it is not the job's own.
        parts: Per operator uid, where that manifest holds each subtask's files; empty after a redistribution.
        restores: Whether state was redistributed; see ``EpochSpec``.

    """

    def __init__(
        self, store: CheckpointStore, resume: ResumePoint, generation: int, on_first_commit: Callable[[], None]
    ) -> None:
        self.store = store
        self.number = resume.lineage
        self.generation = generation
        self.newest = self.previous = resume.manifest
        self.path = resume.path
        self.foreign = resume.foreign
        self.parts: Mapping[str, Sequence[FilePart]] = {}
        self.restores = True
        self._on_first_commit: Callable[[], None] | None = on_first_commit

    @property
    def newest_epoch(self) -> int | None:
        """The newest committed epoch."""
        return None if self.newest is None else self.newest.epoch

    def check_own(self, committed: Manifest) -> None:
        """Check that this generation committed an epoch that Spark runs again.

        Raises:
            CommitConflictError: Another generation did.

        """
        if committed.generation != self.generation:
            # Its source offsets may differ, so this is not a replay; only a resume can follow it.
            raise CommitConflictError(
                f"generation {self.generation} stops: epoch {committed.epoch} of lineage {committed.lineage} was "
                f"committed by generation {committed.generation}; the next driver resumes from it"
            )

    def redistribute(self, parallelism: int, own: Mapping[str, int | None]) -> None:
        """Redistribute the state of the newest epoch.

        Args:
            parallelism: The job's parallelism in the next epoch.
            own: Per operator uid the parallelism that the job file fixes; None for the job's.

        Raises:
            InvalidParallelismError: A parallelism is not within 1 and max parallelism.

        """
        newest = self.newest
        # Only here, not with every epoch, or the elements of union state would multiply.
        self.previous = None if newest is None else rescale_by_reference(newest, parallelism, own)
        self.parts, self.restores = {}, True

    def advance(self, manifest: Manifest, encoded: bytes) -> None:
        """Note the newest epoch.

        Args:
            manifest: Its manifest.
            encoded: The manifest as it is stored.

        """
        if self._on_first_commit is not None:
            self._on_first_commit()
            self._on_first_commit = None
        self.newest = self.previous = manifest
        self.path, self.foreign = self.store.manifest_path(manifest.lineage, manifest.epoch), None
        self.parts, self.restores = subtask_parts(encoded), False
