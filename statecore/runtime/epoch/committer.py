"""The commit of an epoch: its manifest, built from what the subtasks report, and put if absent."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from statecore.runtime.epoch.input_topics import InputTopics
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.operator import next_operator, restored_operator
from statecore.runtime.epoch.progress import QuerySources, capture_progress, source_positions
from statecore.runtime.epoch.report import EpochReport
from statecore.runtime.epoch.subtasks import Ran, Subtasks
from statecore.snapshot.compaction import Merged
from statecore.snapshot.manifest import WRITER, Artifact, Manifest, encode_manifest


class Upkeep(Protocol):
    """Merges state files in parallel to the stream."""

    def merged(self) -> list[Merged]:
        """Return the merges finished since the last call; the next manifest names their files."""

    def committed(self, manifest: Manifest) -> None:
        """Note a committed epoch."""


class CommitGate(Protocol):
    """Decides whether an epoch may begin and whether it may be committed."""

    def check_open(self) -> None:
        """Check that an epoch may begin; raises CommitForbiddenError once the job is stopping."""

    def committing(self) -> AbstractContextManager[None]:
        """Hold off a stop while the manifest is written; raises CommitForbiddenError once the job is stopping."""

    def committed(self, report: EpochReport) -> None:
        """Note a committed and published epoch."""


@dataclass(frozen=True, slots=True)
class Committer:
    """Commits the epochs of one generation.

    Attributes:
        job: Name of the job.
        artifact: The job file, as stored.
        lineage: The epochs before.
        subtasks: Their parallelism goes into the manifest.
        checkpoint_directory: Spark's checkpoint directory, which is disposable.
        sources: The sources of the query.
        topics: Checks that an epoch reads the topics that the ones before have read.
        upkeep: Merges state files.
        gate: Checked before a commit.

    """

    job: str
    artifact: Artifact
    lineage: Lineage
    subtasks: Subtasks
    checkpoint_directory: Path
    sources: QuerySources
    topics: InputTopics
    upkeep: Upkeep
    gate: CommitGate

    def commit(self, epoch: int, now_ms: int, ran: Ran, idle: Collection[str]) -> tuple[Manifest, bytes]:
        """Commit an epoch, after which some sources are idle; return its manifest, also as it is stored.

        Raises:
            CommitForbiddenError: The job is stopping.
            CommitConflictError: Another driver committed this epoch, or a later one, first.
            SourceError: A topic was made anew since the epoch before.
            StateConflictError: Two subtasks hold one state under different types.

        """
        manifest = self._manifest(epoch, now_ms, ran, idle)
        encoded = encode_manifest(manifest)
        with self.gate.committing():
            self.lineage.store.commit(manifest, encoded)
        return manifest, encoded

    def _manifest(self, epoch: int, now_ms: int, ran: Ran, idle: Collection[str]) -> Manifest:
        lineage, directory, read = self.lineage, self.checkpoint_directory, ran.read
        previous, foreign = lineage.previous, lineage.foreign
        # From this epoch on, the job needs no file of a foreign store.
        known = previous if foreign is None else None
        attempt = f"{lineage.generation:06d}/{lineage.number:06d}-{epoch:012d}"
        progress = capture_progress(directory, epoch, lineage.store, known, attempt, self.sources)
        merged = self.upkeep.merged()
        operators = tuple(
            next_operator(
                ran.specs[uid],
                self.subtasks.own[uid],
                restored_operator(previous, uid),
                commits,
                [each for each in merged if each.merge.uid == uid],
            )
            for uid, commits in ran.commits.items()
        )
        every = [commit for commits in ran.commits.values() for commit in commits]
        return Manifest(
            writer=WRITER,
            job=self.job,
            lineage=lineage.number,
            epoch=epoch,
            generation=lineage.generation,
            artifact=self.artifact,
            root="..",
            parent=lineage.path if foreign is None else foreign.describe(lineage.path or ""),
            parallelism=self.subtasks.parallelism,
            max_parallelism=self.subtasks.max_parallelism,
            batch_timestamp_ms=now_ms,
            committed_ms=int(time.time() * 1000),
            watermark_ms=read.watermark_ms(None if previous is None else previous.watermark_ms, idle),
            watermark_before_ms=None if previous is None else previous.watermark_ms,
            next_event_timer_ms=_earliest(commit.next_event_timer_ms for commit in every),
            next_processing_timer_ms=_earliest(commit.next_processing_timer_ms for commit in every),
            rows=read.rows,
            rows_total=read.rows + (previous.rows_total if previous is not None else 0),
            operators=operators,
            outputs=tuple(output for commit in every for output in commit.outputs),
            sources=self.topics.note(read.positions(source_positions(directory, epoch, self.sources)), epoch),
            progress=progress,
        )


def _earliest(timers_ms: Iterable[int | None]) -> int | None:
    return min((timer_ms for timer_ms in timers_ms if timer_ms is not None), default=None)
