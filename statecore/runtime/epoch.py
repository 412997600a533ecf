"""The driver's side of an epoch: run it, commit it, publish it.

::

    df ─► key group, subtask ─► repartitionById ⟗ anchor ─► sort ─► mapInArrow(subtask) ─► commit rows
       ─► manifest of (lineage, epoch), put if absent ─► publish staged outputs

The anchor is a persisted table of one row per subtask. Joined in, it gives every subtask its marker row in an epoch
without rows, and its place draws the subtask's task to the worker that holds the subtask's state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import functions as F

from statecore.errors import CommitConflictError
from statecore.model import Field, key_group_range, parse_type
from statecore.runtime.commits import checked_commits
from statecore.runtime.crossing import crossing_ddl
from statecore.runtime.dataflow import Dataflow
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.job import Job, OperatorPlan
from statecore.runtime.memory import NEARLY_FULL
from statecore.runtime.messages import ANCHOR, COMMIT, COMMIT_DECODER, EpochSpec, OperatorSpec, SubtaskCommit
from statecore.runtime.operator_epoch import (
    Schemas,
    check_key,
    next_operator,
    operator_spec,
    restored_operator,
    subtask_specs,
)
from statecore.runtime.progress import batch_timestamp_ms, capture_progress, source_positions
from statecore.runtime.publishing import publish
from statecore.runtime.sources_read import SourcesRead
from statecore.runtime.subtask import subtask_runner
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merged
from statecore.snapshot.manifest import WRITER, Artifact, Manifest
from statecore.snapshot.rescale import rescale_by_reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EpochReport:
    """An epoch that was committed and published, in figures.

    Attributes:
        cached_subtasks: Subtasks that met all of their state in memory.
        phases_ms: Duration of the driver's phases, and the longest of each worker phase.
        memory_share: The largest share of its memory that a worker uses.

    """

    manifest: Manifest
    started_ms: int
    duration_ms: int
    cached_subtasks: int
    phases_ms: dict[str, int]
    memory_share: float


class Upkeep(Protocol):
    """Lays state files together beside the stream."""

    def merged(self) -> list[Merged]:
        """Return the merges carried out since the last call; the next manifest names what they wrote."""

    def committed(self, manifest: Manifest) -> None:
        """Take note of a committed epoch."""


class CommitGate(Protocol):
    """Decides whether an epoch may be committed now."""

    def committing(self) -> AbstractContextManager[None]:
        """Hold off a stop while the manifest is written; raises CommitForbiddenError once the job is stopping."""

    def committed(self, report: EpochReport) -> None:
        """Take note of a committed and published epoch."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """What a driver goes on from.

    Attributes:
        lineage: Lineage of the epochs to come.
        manifest: State and source positions to start from; None for a job's very first epoch.
        path: Where that manifest lies in its store.
        foreign: The store of that manifest and its files, when it is not the job's own.

    """

    lineage: int
    manifest: Manifest | None
    path: str | None
    foreign: CheckpointStore | None = None


class EpochRunner:
    """Runs, commits and publishes epochs; one object per generation, called by foreachBatch.

    Args:
        job: Name of the job.
        plan: Its sources, operators and sinks.
        artifact: The job file, as it lies in the store.
        store: Where checkpoints go.
        resume: What to go on from.
        parallelism: Subtasks of the epochs to come.
        max_parallelism: Number of key groups.
        generation: The driver's.
        checkpoint_directory: Spark's own, disposable one.
        gate: Asked before a commit, told after it.
        upkeep: Merges state files.
        taken_up: Called when the first epoch is committed: what was resumed from is not needed any more.
        allow_non_restored_state: Whether state that the job no longer declares may be left behind.

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
        upkeep: Upkeep,
        taken_up: Callable[[], None],
        allow_non_restored_state: bool = False,
    ) -> None:
        self._job = job
        self._plan = plan
        self._artifact = artifact
        self._store = store
        self._lineage = resume.lineage
        # Redistribution is for restores alone; within a generation every epoch goes on from where the last one was.
        self._previous = None if resume.manifest is None else rescale_by_reference(resume.manifest, parallelism)
        self._previous_path = resume.path
        self._foreign = resume.foreign
        self._restores = True
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        self._generation = generation
        self._checkpoint_directory = checkpoint_directory
        self._gate = gate
        self._upkeep = upkeep
        self._taken_up = taken_up
        self._allow_non_restored_state = allow_non_restored_state
        self._anchor: DataFrame | None = None
        self.failure: BaseException | None = None

    def __call__(self, df: DataFrame, epoch: int) -> None:
        """Process one micro-batch, exactly once however often it is called."""
        try:
            self._epoch(df, epoch)
        except BaseException as error:
            # Spark hands on the text of an error alone; the driver reports the error itself.
            self.failure = error
            raise

    def _epoch(self, df: DataFrame, epoch: int) -> None:
        there = self._store.find(self._lineage, epoch)
        if there is not None:
            if there.generation != self._generation:
                # Its cut of the sources may be another than ours, so it is no replay: only a resume can follow it.
                raise CommitConflictError(
                    f"found epoch {epoch} of lineage {self._lineage} committed by generation {there.generation}; "
                    f"expected generation {self._generation} to be the only driver; this driver stops"
                )
            log.info("epoch %d is committed already; publishing only", epoch)
            publish(self._plan.sinks, there, self._store, df.sparkSession)
            self._go_on_from(there, self._store.manifest_path(self._lineage, epoch))
            return
        started = time.time()
        clock = time.monotonic()
        now_ms = batch_timestamp_ms(self._checkpoint_directory, epoch)
        specs, commits = self._run(df, epoch, now_ms)
        ran = time.monotonic()
        manifest = self._manifest(epoch, now_ms, specs, commits)
        with self._gate.committing():
            path = self._store.commit(manifest)
        fault_point(FaultPoint.MANIFEST_WRITTEN, epoch)
        committed = time.monotonic()
        publish(self._plan.sinks, manifest, self._store, df.sparkSession)
        fault_point(FaultPoint.PUBLISHED, epoch)
        self._go_on_from(manifest, path)
        done = time.monotonic()
        every = [commit for of_operator in commits.values() for commit in of_operator]
        phases = {"run": _ms(ran - clock), "commit": _ms(committed - ran), "publish": _ms(done - committed)}
        for phase in ("load_ms", "process_ms", "write_ms"):
            phases[phase.removesuffix("_ms")] = max(getattr(commit, phase) for commit in every)
        hits = sum(commit.cached_key_groups == self._owned(specs[commit.uid], commit.subtask) for commit in every)
        fullest = max(every, key=lambda commit: commit.memory_used / commit.memory_limit)
        share = fullest.memory_used / fullest.memory_limit
        if share >= NEARLY_FULL:
            _warn_of_memory(fullest.uid, fullest)
        self._gate.committed(EpochReport(manifest, int(started * 1000), _ms(done - clock), hits, phases, share))
        self._upkeep.committed(manifest)

    def _owned(self, spec: OperatorSpec, subtask: int) -> int:
        """Return how many key groups a subtask has state of."""
        return len(key_group_range(self._max_parallelism, self._parallelism, subtask)) if spec.key_fields else 0

    def _go_on_from(self, manifest: Manifest, path: str) -> None:
        if self._restores:
            self._taken_up()
        self._previous, self._previous_path, self._restores, self._foreign = manifest, path, False, None

    def _run(
        self, df: DataFrame, epoch: int, now_ms: int
    ) -> tuple[dict[str, OperatorSpec], dict[str, list[SubtaskCommit]]]:
        """Run all operators; return what they are and, per uid, their subtasks' commits in order."""
        plan = self._plan
        anchor = self._anchor_table(df)
        flow = Dataflow(df, plan.sources, plan.operators, anchor, self._parallelism, self._max_parallelism)
        try:
            schemas = {source.name: _fields(flow.records(source)) for source in plan.sources}
            specs = {operator.uid: self._spec(operator, schemas) for operator in plan.operators}

            def run(operator: OperatorPlan, rows: DataFrame) -> DataFrame:
                spec = specs[operator.uid]
                return rows.mapInArrow(subtask_runner(spec, self._epoch_spec(spec, epoch, now_ms)), crossing_ddl(spec))

            rows = flow.commits(run, specs).collect()
        finally:
            flow.close()
        commits = [COMMIT_DECODER.decode(row[COMMIT]) for row in rows]
        return specs, checked_commits(commits, list(specs), self._parallelism, epoch)

    def _anchor_table(self, df: DataFrame) -> DataFrame:
        if self._anchor is None:
            ids = df.sparkSession.range(self._parallelism).select(F.col("id").cast("int").alias(ANCHOR))
            self._anchor = ids.repartitionById(self._parallelism, ANCHOR).persist()
            self._anchor.count()
        return self._anchor

    def _spec(self, operator: OperatorPlan, schemas: Schemas) -> OperatorSpec:
        spec = operator_spec(
            operator,
            self._plan.operators,
            schemas,
            self._store,
            self._max_parallelism,
            allow_non_restored_state=self._allow_non_restored_state,
        )
        check_key(spec, restored_operator(self._previous, operator.uid))
        return spec

    def _epoch_spec(self, spec: OperatorSpec, epoch: int, now_ms: int) -> EpochSpec:
        restored = restored_operator(self._previous, spec.uid)
        return EpochSpec(
            lineage=self._lineage,
            epoch=epoch,
            now_ms=now_ms,
            watermark_ms=None if self._previous is None else self._previous.watermark_ms,
            watermark_before_ms=None if self._previous is None else self._previous.watermark_before_ms,
            previous=None if restored is None else self._previous_path,
            foreign_store=None if self._foreign is None else self._foreign.files.url,
            restores=self._restores,
            subtasks=subtask_specs(restored, self._parallelism, self._max_parallelism),
        )

    def _manifest(
        self,
        epoch: int,
        now_ms: int,
        specs: Mapping[str, OperatorSpec],
        commits: Mapping[str, Sequence[SubtaskCommit]],
    ) -> Manifest:
        # What a foreign store holds must not be needed any more.
        known = self._previous if self._foreign is None else None
        directory, previous = self._checkpoint_directory, self._previous
        progress = capture_progress(directory, epoch, self._store, known, f"{self._generation:06d}")
        merged = self._upkeep.merged()
        operators = tuple(
            next_operator(
                specs[uid],
                restored_operator(previous, uid),
                found,
                [each for each in merged if each.merge.uid == uid],
            )
            for uid, found in commits.items()
        )
        read = SourcesRead(self._plan, commits, () if previous is None else previous.sources)
        return Manifest(
            writer=WRITER,
            job=self._job,
            lineage=self._lineage,
            epoch=epoch,
            generation=self._generation,
            artifact=self._artifact,
            root="..",
            parent=self._previous_path if self._foreign is None else self._foreign.describe(self._previous_path or ""),
            parallelism=self._parallelism,
            max_parallelism=self._max_parallelism,
            batch_timestamp_ms=now_ms,
            committed_ms=int(time.time() * 1000),
            watermark_ms=read.watermark_ms(None if previous is None else previous.watermark_ms),
            watermark_before_ms=None if previous is None else previous.watermark_ms,
            rows=read.rows,
            rows_total=read.rows + (previous.rows_total if previous is not None else 0),
            operators=operators,
            outputs=tuple(output for found in commits.values() for commit in found for output in commit.outputs),
            sources=read.positions(source_positions(directory, epoch, len(self._plan.sources))),
            progress=progress,
        )


def _fields(df: DataFrame) -> tuple[Field, ...]:
    return tuple(Field(field.name, parse_type(field.dataType.simpleString())) for field in df.schema.fields)


def _warn_of_memory(uid: str, commit: SubtaskCommit) -> None:
    log.warning(
        "found the worker of subtask %d of %r with %.1f of %.1f GiB in use; expected less than %.0f %%, because state "
        "lies in memory and a full worker is killed; rescale to a higher parallelism on more workers, give each more "
        "memory, or let state expire",
        commit.subtask, uid, commit.memory_used / 2**30, commit.memory_limit / 2**30, NEARLY_FULL * 100,
    )  # fmt: skip


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
