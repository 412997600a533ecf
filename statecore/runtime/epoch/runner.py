"""The driver's side of an epoch: run, commit, publish.

::

    df ─► key group, subtask ─► repartitionById ⟗ anchor ─► sort ─► mapInArrow(subtask) ─► commit rows
       ─► manifest of (lineage, epoch), put if absent ─► publish staged outputs

Parallelism belongs to the epoch: between two epochs, ``rescale`` assigns the same state files to another number of
subtasks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import msgspec
from pyspark.sql.types import StructType

from statecore.errors import CommitConflictError, CommitForbiddenError
from statecore.model import Field
from statecore.model.key_groups import check_parallelism
from statecore.runtime.epoch.anchor import Anchor
from statecore.runtime.epoch.commits import checked_commits
from statecore.runtime.epoch.dataflow import Dataflow
from statecore.runtime.epoch.idleness import Idleness
from statecore.runtime.epoch.input_files import InputFiles
from statecore.runtime.epoch.input_topics import InputTopics
from statecore.runtime.epoch.layouts import Layouts
from statecore.runtime.epoch.load_ahead import load_ahead
from statecore.runtime.epoch.operator import (
    ColumnsOf,
    check_key,
    next_operator,
    operator_spec,
    restored_operator,
    subtask_specs,
)
from statecore.runtime.epoch.progress import EpochTimes, QuerySources, capture_progress, source_positions
from statecore.runtime.epoch.publishing import publish
from statecore.runtime.epoch.report import EpochReport, Timing, epoch_report
from statecore.runtime.epoch.sampling import Sampling
from statecore.runtime.epoch.sources_read import SourcesRead
from statecore.runtime.epoch.ticks import Ticks
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.job import Job, OperatorPlan, Origin
from statecore.runtime.messages import COMMIT, COMMIT_DECODER, EpochSpec, OperatorSpec, StreamRead, SubtaskCommit
from statecore.runtime.worker.crossing import crossing_ddl
from statecore.runtime.worker.subtask import subtask_runner
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claimed
from statecore.snapshot.compaction import Merged
from statecore.snapshot.manifest import (
    WRITER,
    Artifact,
    FilePart,
    Manifest,
    OperatorState,
    encode_manifest,
    subtask_parts,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.resume_point import ResumePoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


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


class Recorder(Protocol):
    """Records the figures of epochs."""

    def committed(self, report: EpochReport) -> None:
        """Record a committed and published epoch soon; neither waits nor raises."""


class EpochRunner:
    """Runs, commits and publishes epochs; one object per generation, called by foreachBatch.

    Args:
        job: Name of the job.
        plan: Its sources, operators and sinks.
        artifact: The job file, as stored.
        store: The store for checkpoints.
        resume: The resume point.
        parallelism: Subtasks of the following epochs.
        max_parallelism: Number of key groups.
        generation: The driver's generation.
        checkpoint_directory: Spark's checkpoint directory, which is disposable.
        gate: Checked before an epoch and before its commit.
        recorder: Records committed epochs.
        upkeep: Merges state files.
        sources: The sources of the query.
        inputs: Checks that an epoch finds its files.
        topics: Checks that an epoch reads the topics that the ones before have read.
        ticks: Triggers an epoch when timers are due; None for a job without timers.
        on_first_commit: Called after the first commit: the resume point is no longer needed.
        allow_non_restored_state: Whether state that the job no longer declares may be left behind.

    Attributes:
        boundary: Lock that an epoch in flight holds; another holder delays the next epoch.
        failure: The error that an epoch failed with; a refusal because the job is stopping does not count.

    """

    def __init__(
        self,
        *,
        job: str,
        plan: Job,
        artifact: Artifact,
        store: CheckpointStore,
        resume: ResumePoint,
        parallelism: int,
        max_parallelism: int,
        generation: int,
        checkpoint_directory: Path,
        gate: CommitGate,
        recorder: Recorder,
        upkeep: Upkeep,
        sources: QuerySources,
        inputs: InputFiles,
        topics: InputTopics,
        ticks: Ticks | None,
        on_first_commit: Callable[[], None],
        allow_non_restored_state: bool = False,
    ) -> None:
        self._job = job
        self._plan = plan
        self._artifact = artifact
        self._store = store
        self._lineage = resume.lineage
        self._head = _Head(resume.manifest, resume.path, {})
        self._foreign = resume.foreign
        self._first_commit_due = True
        self._max_parallelism = max_parallelism
        self._generation = generation
        self._checkpoint_directory = checkpoint_directory
        self._times = EpochTimes(checkpoint_directory)
        self._gate = gate
        self._recorder = recorder
        self._upkeep = upkeep
        self._ticks = ticks
        self._idleness = Idleness(plan.sources, _now_ms())
        self._sources = sources
        self._inputs = inputs
        self._topics = topics
        self._on_first_commit = on_first_commit
        self._allow_non_restored_state = allow_non_restored_state
        self._own = {operator.uid: operator.parallelism for operator in plan.operators}
        self._specs: dict[str, OperatorSpec] = {}
        self._columns: dict[Origin, tuple[Field, ...]] = {}
        self._layouts = Layouts(max_parallelism, self._own)
        self.boundary = threading.Lock()
        self._sampling = Sampling()
        self.failure: BaseException | None = None
        self._redistribute(parallelism)
        self._schedule_ticks()

    def __call__(self, df: DataFrame, epoch: int) -> None:
        """Process one micro-batch; repeated calls process it only once."""
        try:
            with self.boundary:
                # A stop waits only for the epoch in flight, not for those after it.
                self._gate.check_open()
                self._epoch(df, epoch)
        except CommitForbiddenError:
            raise
        except BaseException as error:
            # Spark passes on only the text of an error, so the driver reports the error itself. The text must be short:
            # Spark searches it with a regular expression that overflows the stack on a long text, and then the query
            # would end as if it had not failed.
            self.failure = error
            raise RuntimeError(f"the epoch failed with {type(error).__name__}") from None

    @property
    def parallelism(self) -> int:
        """The job's parallelism in the next epoch."""
        return self._parallelism

    @property
    def newest_epoch(self) -> int | None:
        """The newest committed epoch."""
        manifest = self._head.manifest
        return None if manifest is None else manifest.epoch

    def prepare(self, spark: SparkSession, parallelism: int) -> Anchor:
        """Prepare another parallelism while epochs continue: place its subtasks and load their state there.

        Raises:
            InvalidParallelismError: The parallelism is not within 1 and max parallelism.

        """
        check_parallelism(parallelism, self._max_parallelism)
        anchor, moved = self._layouts.next(spark, parallelism)
        if not self._restores:
            try:
                self._load_ahead(anchor, moved)
            except BaseException:
                anchor.close()
                raise
        return anchor

    def rescale(self, anchor: Anchor) -> None:
        """Run the next epochs at another parallelism; call it between epochs.

        Args:
            anchor: The result of ``prepare``.

        """
        self._layouts.apply(anchor)
        self._redistribute(anchor.parallelism)

    def _redistribute(self, parallelism: int) -> None:
        """Redistribute the state of the newest epoch to another number of subtasks."""
        manifest = self._head.manifest
        # Only here, not with every epoch, or the elements of union state would multiply.
        self._previous = None if manifest is None else rescale_by_reference(manifest, parallelism, self._own)
        self._parallelism = parallelism
        self._restores = True

    def _load_ahead(self, anchor: Anchor, subtasks: Sequence[int]) -> None:
        """Load the state of subtasks on the executors that will run them."""
        head = self._head
        if not subtasks or head.manifest is None or head.path is None:
            return
        # Epochs that are committed meanwhile may make it one that is thinned out.
        with claimed(self._store.files, head.path, f"a live rescale of job {self._job}"):
            self._load_ahead_from(head.manifest, anchor, subtasks)

    def _load_ahead_from(self, newest: Manifest, anchor: Anchor, subtasks: Sequence[int]) -> None:
        rescaled = rescale_by_reference(newest, anchor.parallelism, self._own)
        for operator in self._plan.operators:
            spec = self._specs[operator.uid]
            restored = restored_operator(rescaled, operator.uid)
            if operator.parallelism is None and spec.key_fields and restored is not None:
                states = subtask_specs(restored, anchor.parallelism, self._max_parallelism)
                told = tuple(state if index in subtasks else b"" for index, state in enumerate(states))
                epoch = self._epoch_spec(newest.epoch, 0, rescaled, restored, told, restores=True)
                load_ahead(anchor, subtasks, spec, epoch)

    def _epoch(self, df: DataFrame, epoch: int) -> None:
        there = self._store.find(self._lineage, epoch)
        if there is not None:
            if there.generation != self._generation:
                # Its source offsets may differ, so this is not a replay; only a resume can follow it.
                raise CommitConflictError(
                    f"found epoch {epoch} of lineage {self._lineage} committed by generation {there.generation}; "
                    f"expected generation {self._generation} to be the only driver; this driver stops"
                )
            log.info("epoch %d is already committed; publishing only", epoch)
            publish(self._plan.sinks, there, self._store, df.sparkSession)
            self._advance(there, self._store.files.read(self._store.manifest_path(self._lineage, epoch)))
            return
        started = time.time()
        clock = time.monotonic()
        now_ms = self._times.of(epoch, self._head.manifest)
        self._inputs.check(epoch)
        try:
            specs, commits, observed = self._run(df, epoch, now_ms)
        except Exception as error:
            self._inputs.failed(epoch, error)
            raise
        ran = time.monotonic()
        before = () if self._previous is None else self._previous.sources
        read = SourcesRead(self._plan, commits, before, observed)
        idle = self._idleness.note(read.rows_of, now_ms)
        manifest = self._manifest(epoch, now_ms, specs, commits, read, idle)
        encoded = encode_manifest(manifest)
        with self._gate.committing():
            self._store.commit(manifest, encoded)
        fault_point(FaultPoint.MANIFEST_WRITTEN, epoch)
        committed = time.monotonic()
        publish_ms = publish(self._plan.sinks, manifest, self._store, df.sparkSession)
        fault_point(FaultPoint.PUBLISHED, epoch)
        # Saved for the preparation of a live rescale, once there is state to load.
        self._specs = specs
        self._advance(manifest, encoded)
        done = time.monotonic()
        timing = Timing(int(started * 1000), ran - clock, committed - ran, done - committed, publish_ms)
        report = epoch_report(manifest, commits, timing, read.late_rows)
        self._gate.committed(report)
        self._recorder.committed(report)
        self._upkeep.committed(manifest)

    def _parallelism_of(self, uid: str) -> int:
        return self._own[uid] or self._parallelism

    def _advance(self, manifest: Manifest, encoded: bytes) -> None:
        if self._first_commit_due:
            self._on_first_commit()
        path = self._store.manifest_path(manifest.lineage, manifest.epoch)
        self._head, self._previous = _Head(manifest, path, subtask_parts(encoded)), manifest
        self._first_commit_due, self._restores, self._foreign = False, False, None
        self._schedule_ticks()

    def _schedule_ticks(self) -> None:
        manifest = self._head.manifest
        if self._ticks is not None and manifest is not None:
            self._ticks.committed(manifest, self._idleness.next_ms(manifest.batch_timestamp_ms))

    def _run(
        self, df: DataFrame, epoch: int, now_ms: int
    ) -> tuple[dict[str, OperatorSpec], dict[str, list[SubtaskCommit]], dict[str, StreamRead]]:
        """Run all operators.

        Returns:
            Per uid the operator's spec, and its subtasks' commits in order; and what was read of each source that is
            transformed.

        """
        plan = self._plan
        anchors = self._layouts.all(df.sparkSession, self._parallelism)
        counts_state = self._sampling.due()
        flow = Dataflow(df, plan.sources, plan.operators, anchors, self._max_parallelism, self._columns)
        try:
            specs = {operator.uid: self._spec(operator, flow.columns_of) for operator in plan.operators}

            def run(operator: OperatorPlan, rows: DataFrame) -> DataFrame:
                spec = specs[operator.uid]
                restored = restored_operator(self._previous, spec.uid)
                parallelism = self._parallelism_of(spec.uid)
                parts = None if self._restores else self._head.parts.get(spec.uid)
                states = subtask_specs(restored, parallelism, self._max_parallelism, parts)
                epoch_spec = self._epoch_spec(
                    epoch, now_ms, self._previous, restored, states, restores=self._restores, counts_state=counts_state
                )
                return rows.mapInArrow(subtask_runner(spec, epoch_spec), _parsed(crossing_ddl(spec)))

            rows = flow.commits(run, specs).collect()
            observed = flow.observed()
        finally:
            flow.close()
        commits = [COMMIT_DECODER.decode(row[COMMIT]) for row in rows]
        return specs, checked_commits(commits, {uid: self._parallelism_of(uid) for uid in specs}, epoch), observed

    def _spec(self, operator: OperatorPlan, columns_of: ColumnsOf) -> OperatorSpec:
        spec = operator_spec(
            operator,
            self._plan.operators,
            columns_of,
            self._store,
            self._max_parallelism,
            allow_non_restored_state=self._allow_non_restored_state,
        )
        check_key(spec, restored_operator(self._previous, operator.uid))
        return spec

    def _epoch_spec(
        self,
        epoch: int,
        now_ms: int,
        before: Manifest | None,
        restored: OperatorState | None,
        subtasks: tuple[bytes, ...],
        *,
        restores: bool,
        counts_state: bool = False,
    ) -> EpochSpec:
        return EpochSpec(
            lineage=self._lineage,
            epoch=epoch,
            now_ms=now_ms,
            watermark_ms=None if before is None else before.watermark_ms,
            watermark_before_ms=None if before is None else before.watermark_before_ms,
            previous=self._head.path,
            restored=None if restored is None else msgspec.structs.replace(restored, subtasks=()),
            foreign_store=None if self._foreign is None else self._foreign.files.url,
            restores=restores,
            counts_state=counts_state,
            subtasks=subtasks,
        )

    def _manifest(
        self,
        epoch: int,
        now_ms: int,
        specs: Mapping[str, OperatorSpec],
        commits: Mapping[str, Sequence[SubtaskCommit]],
        read: SourcesRead,
        idle: Collection[str],
    ) -> Manifest:
        # From this epoch on, the job needs no file of a foreign store.
        known = self._previous if self._foreign is None else None
        directory, previous = self._checkpoint_directory, self._previous
        attempt = f"{self._generation:06d}/{self._lineage:06d}-{epoch:012d}"
        progress = capture_progress(directory, epoch, self._store, known, attempt, self._sources)
        merged = self._upkeep.merged()
        operators = tuple(
            next_operator(
                specs[uid],
                self._own[uid],
                restored_operator(previous, uid),
                found,
                [each for each in merged if each.merge.uid == uid],
            )
            for uid, found in commits.items()
        )
        every = [commit for found in commits.values() for commit in found]
        return Manifest(
            writer=WRITER,
            job=self._job,
            lineage=self._lineage,
            epoch=epoch,
            generation=self._generation,
            artifact=self._artifact,
            root="..",
            parent=self._head.path if self._foreign is None else self._foreign.describe(self._head.path or ""),
            parallelism=self._parallelism,
            max_parallelism=self._max_parallelism,
            batch_timestamp_ms=now_ms,
            committed_ms=_now_ms(),
            watermark_ms=read.watermark_ms(None if previous is None else previous.watermark_ms, idle),
            watermark_before_ms=None if previous is None else previous.watermark_ms,
            next_event_timer_ms=_earliest(commit.next_event_timer_ms for commit in every),
            next_processing_timer_ms=_earliest(commit.next_processing_timer_ms for commit in every),
            rows=read.rows,
            rows_total=read.rows + (previous.rows_total if previous is not None else 0),
            operators=operators,
            outputs=tuple(output for commit in every for output in commit.outputs),
            sources=self._topics.note(read.positions(source_positions(directory, epoch, self._sources)), epoch),
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class _Head:
    """The newest manifest, its path in its store, and where it holds each subtask's files; None before the first.

    A manifest that the driver resumes from has no parts: its state is redistributed first.
    """

    manifest: Manifest | None
    path: str | None
    parts: Mapping[str, Sequence[FilePart]]


@cache
def _parsed(ddl: str) -> StructType:
    """Return columns as Spark's type; otherwise Spark would parse them in every epoch."""
    return cast("StructType", StructType.fromDDL(ddl))


def _now_ms() -> int:
    return int(time.time() * 1000)


def _earliest(timers_ms: Iterable[int | None]) -> int | None:
    return min((timer_ms for timer_ms in timers_ms if timer_ms is not None), default=None)
