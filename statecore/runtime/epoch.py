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
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from pyspark.sql import functions as F

from statecore.errors import CommitConflictError, CommitError, JobDefinitionError, StateConflictError
from statecore.model import key_group_range, parse_type, require_key_type
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.job import OperatorPlan, Source
from statecore.runtime.memory import NEARLY_FULL
from statecore.runtime.messages import (
    ANCHOR,
    COMMIT_DECODER,
    SUBTASK,
    EpochSpec,
    OperatorSpec,
    SubtaskCommit,
    SubtaskSpec,
)
from statecore.runtime.placement import column, place
from statecore.runtime.progress import batch_timestamp_ms, capture_progress, source_positions
from statecore.runtime.publishing import publish, staged_sinks
from statecore.runtime.subtask import subtask_runner
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import Merged, with_merged
from statecore.snapshot.manifest import (
    WRITER,
    Artifact,
    FieldRef,
    Manifest,
    OperatorState,
    ProgressFile,
    StateSchema,
    SubtaskState,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import describe_key

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
        plan: Its operator.
        artifact: The job file, as it lies in the store.
        store: Where checkpoints go.
        resume: What to go on from.
        parallelism: Subtasks of the epochs to come.
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
        plan: OperatorPlan,
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
        specs = self._subtask_specs()
        spec = self._operator_spec(df)
        now_ms = batch_timestamp_ms(self._checkpoint_directory, epoch)
        epoch_spec = EpochSpec(
            lineage=self._lineage,
            epoch=epoch,
            now_ms=now_ms,
            watermark_ms=None if self._previous is None else self._previous.watermark_ms,
            previous=None if self._restored_operator() is None else self._previous_path,
            foreign_store=None if self._foreign is None else self._foreign.files.url,
            restores=self._restores,
            subtasks=specs,
        )
        commits = self._run(df, spec, epoch_spec)
        ran = time.monotonic()
        # What a foreign store holds must not be needed any more.
        known = self._previous if self._foreign is None else None
        progress = capture_progress(self._checkpoint_directory, epoch, self._store, known, f"{self._generation:06d}")
        manifest = self._manifest(spec, epoch_spec, commits, progress)
        with self._gate.committing():
            path = self._store.commit(manifest)
        fault_point(FaultPoint.MANIFEST_WRITTEN, epoch)
        committed = time.monotonic()
        publish(self._plan.sinks, manifest, self._store, df.sparkSession)
        fault_point(FaultPoint.PUBLISHED, epoch)
        self._go_on_from(manifest, path)
        done = time.monotonic()
        phases = {"run": _ms(ran - clock), "commit": _ms(committed - ran), "publish": _ms(done - committed)}
        for phase in ("load_ms", "process_ms", "write_ms"):
            phases[phase.removesuffix("_ms")] = max(getattr(commit, phase) for commit in commits)
        hits = sum(commit.cached_key_groups == _count(specs[commit.subtask]) for commit in commits)
        fullest = max(commits, key=lambda commit: commit.memory_used / commit.memory_limit)
        share = fullest.memory_used / fullest.memory_limit
        if share >= NEARLY_FULL:
            _warn_of_memory(self._plan.uid, fullest)
        self._gate.committed(EpochReport(manifest, int(started * 1000), _ms(done - clock), hits, phases, share))
        self._upkeep.committed(manifest)

    def _go_on_from(self, manifest: Manifest, path: str) -> None:
        if self._restores:
            self._taken_up()
        self._previous, self._previous_path, self._restores, self._foreign = manifest, path, False, None

    def _run(self, df: DataFrame, spec: OperatorSpec, epoch: EpochSpec) -> list[SubtaskCommit]:
        parallelism = len(epoch.subtasks)
        anchor = self._anchor_table(df)
        placed = place(df, self._plan.key_columns, spec.max_parallelism, parallelism)
        joined = placed.join(anchor.hint("shuffle_hash"), placed[SUBTASK] == anchor[ANCHOR], "full_outer")
        if self._plan.order_by:
            joined = joined.sortWithinPartitions(*[column(name) for name in self._plan.order_by])
        rows = joined.mapInArrow(subtask_runner(spec, epoch), "commit string").collect()
        commits = sorted((COMMIT_DECODER.decode(row["commit"]) for row in rows), key=lambda commit: commit.subtask)
        if [commit.subtask for commit in commits] != list(range(parallelism)):
            raise CommitError(
                f"found commits of the subtasks {[commit.subtask for commit in commits]} in epoch {epoch.epoch}; "
                f"expected one of each of {parallelism}; the epoch is not committed and will be replayed"
            )
        return commits

    def _anchor_table(self, df: DataFrame) -> DataFrame:
        if self._anchor is None:
            ids = df.sparkSession.range(self._parallelism).select(F.col("id").cast("int").alias(ANCHOR))
            self._anchor = ids.repartitionById(self._parallelism, ANCHOR).persist()
            self._anchor.count()
        return self._anchor

    def _operator_spec(self, df: DataFrame) -> OperatorSpec:
        fields = []
        for name in self._plan.key_columns:
            ddl = df.schema[name].dataType.simpleString()
            require_key_type(parse_type(ddl))
            fields.append(FieldRef(name=name, type=parse_type(ddl).ddl()))
        key_fields = tuple(fields)
        self._check_key(key_fields)
        return OperatorSpec(
            uid=self._plan.uid,
            function=self._plan.function,
            event_time=_event_time_column(df, self._plan.source),
            key_fields=key_fields,
            max_parallelism=self._max_parallelism,
            sinks=staged_sinks(self._plan.sinks, self._store),
            store_url=self._store.files.url,
            allow_non_restored_state=self._allow_non_restored_state,
        )

    def _check_key(self, fields: tuple[FieldRef, ...]) -> None:
        operator = self._restored_operator()
        if operator is None:
            return
        restored = operator.key_fields
        if [field.type for field in restored] != [field.type for field in fields]:
            raise CommitError(
                f"found the key {describe_key(fields)} for {self._plan.uid!r}; expected {describe_key(restored)}, "
                "under which its state was written; another key type is another key: rewrite the state or use a new uid"
            )

    def _restored_operator(self) -> OperatorState | None:
        """Return the operator's state of the epoch before; None for an operator that is new."""
        operators = () if self._previous is None else self._previous.operators
        return next((operator for operator in operators if operator.uid == self._plan.uid), None)

    def _restored_subtasks(self) -> tuple[SubtaskState, ...]:
        operator = self._restored_operator()
        return (SubtaskState(),) * self._parallelism if operator is None else operator.subtasks

    def _subtask_specs(self) -> tuple[SubtaskSpec, ...]:
        return tuple(self._subtask_spec(index, state) for index, state in enumerate(self._restored_subtasks()))

    def _subtask_spec(self, index: int, state: SubtaskState) -> SubtaskSpec:
        own = key_group_range(self._max_parallelism, self._parallelism, index)
        heads = [""] * len(own)
        for item in state.keyed:
            start, end = item.key_groups
            heads[start - own.start : end - own.start + 1] = [item.token] * (end - start + 1)
        return SubtaskSpec((own.start, own.end), _runs(own.start, heads), state.operator_token)

    def _manifest(
        self,
        spec: OperatorSpec,
        epoch: EpochSpec,
        commits: Sequence[SubtaskCommit],
        progress: tuple[ProgressFile, ...],
    ) -> Manifest:
        restored = self._restored_subtasks()
        merged: dict[int, list[Merged]] = defaultdict(list)
        for each in self._upkeep.merged():
            merged[each.merge.subtask].append(each)
        subtasks = tuple(next_state(restored[commit.subtask], commit, merged[commit.subtask]) for commit in commits)
        operator = OperatorState(
            uid=spec.uid, key_fields=spec.key_fields, states=self._state_schemas(commits), subtasks=subtasks
        )
        rows = sum(commit.rows for commit in commits)
        return Manifest(
            writer=WRITER,
            job=self._job,
            lineage=epoch.lineage,
            epoch=epoch.epoch,
            generation=self._generation,
            artifact=self._artifact,
            root="..",
            parent=self._previous_path if self._foreign is None else self._foreign.describe(self._previous_path or ""),
            parallelism=len(epoch.subtasks),
            max_parallelism=spec.max_parallelism,
            batch_timestamp_ms=epoch.now_ms,
            committed_ms=int(time.time() * 1000),
            watermark_ms=self._watermark_ms(commits),
            rows=rows,
            rows_total=rows + (self._previous.rows_total if self._previous is not None else 0),
            operators=(operator,),
            outputs=tuple(output for commit in commits for output in commit.outputs),
            sources=source_positions(self._checkpoint_directory, epoch.epoch, [self._plan.source.name]),
            progress=progress,
        )

    def _state_schemas(self, commits: Sequence[SubtaskCommit]) -> tuple[StateSchema, ...]:
        # A state that no subtask has touched yet is still part of what was restored.
        operator = self._restored_operator()
        return merged_schemas(() if operator is None else operator.states, [commit.states for commit in commits])

    def _watermark_ms(self, commits: Sequence[SubtaskCommit]) -> int | None:
        """Return where event time stands after an epoch, in which it never goes back."""
        # One millisecond behind, as in Flink: another record with the newest event time may still come.
        lag_ms = self._plan.source.max_lateness // timedelta(milliseconds=1) + 1
        before = () if self._previous is None or self._previous.watermark_ms is None else (self._previous.watermark_ms,)
        seen = [commit.max_event_time_ms - lag_ms for commit in commits if commit.max_event_time_ms is not None]
        return max((*before, *seen), default=None)


def merged_schemas(
    restored: Sequence[StateSchema], committed: Sequence[Sequence[StateSchema]]
) -> tuple[StateSchema, ...]:
    """Return what a manifest says of an operator's states: what was restored, overruled by what its subtasks found.

    Raises:
        StateConflictError: Two subtasks hold one state under different types.

    """
    merged: dict[tuple[str, str], StateSchema] = {}
    for state in chain.from_iterable(committed):
        found = merged.get((state.scope, state.name), state)
        if _form(found) != _form(state):
            raise StateConflictError(
                f"found state {state.name!r} as {_form(found)} in one subtask and as {_form(state)} in another; "
                "expected the same in all; get states in open(), by the same descriptor in every subtask"
            )
        merged[state.scope, state.name] = _completed(state, found)
    for state in restored:
        found = merged.get((state.scope, state.name), state)
        merged[state.scope, state.name] = _completed(found, state)
    return tuple(merged[key] for key in sorted(merged))


def _form(state: StateSchema) -> str:
    words = (state.mode, state.kind, "of", state.type, "with time to live" if state.stamped else None)
    return " ".join(word for word in words if word)


def _completed(state: StateSchema, other: StateSchema) -> StateSchema:
    """Return a schema with what only one of them can know: who has met a window, who has seen the descriptor."""
    ttl = state.ttl or (other.ttl if state.stamped else None)
    return msgspec.structs.replace(state, windowed=state.windowed or other.windowed, ttl=ttl)


def _event_time_column(df: DataFrame, source: Source) -> str | None:
    name = source.event_time
    if name is None:
        return None
    found = next((field.dataType.simpleString() for field in df.schema.fields if field.name == name), None)
    if found not in ("timestamp", "timestamp_ntz"):
        column_found = "no column" if found is None else f"a column of type {found}"
        raise JobDefinitionError(
            f"found {column_found} {name!r} in source {source.name!r}; expected a timestamp, "
            "because it was named as the event time; cast it, or name another column"
        )
    return name


def next_state(restored: SubtaskState, commit: SubtaskCommit, merged: Sequence[Merged]) -> SubtaskState:
    """Return a subtask's files after an epoch.

    Args:
        restored: Its files before.
        commit: What it wrote.
        merged: Which of the files before were laid together meanwhile.

    """
    return SubtaskState(
        keyed=commit.keyed if commit.replaces else (*with_merged(restored.keyed, merged), *commit.keyed),
        operator=restored.operator if commit.operator is None else commit.operator,
        operator_token=commit.operator_token,
    )


def _warn_of_memory(uid: str, commit: SubtaskCommit) -> None:
    log.warning(
        "found the worker of subtask %d of %r with %.1f of %.1f GiB in use; expected less than %.0f %%, because state "
        "lies in memory and a full worker is killed; rescale to a higher parallelism on more workers, give each more "
        "memory, or let state expire",
        commit.subtask, uid, commit.memory_used / 2**30, commit.memory_limit / 2**30, NEARLY_FULL * 100,
    )  # fmt: skip


def _count(spec: SubtaskSpec) -> int:
    start, end = spec.key_groups
    return end - start + 1


def _runs(first: int, heads: Sequence[str]) -> tuple[tuple[int, int, str], ...]:
    """Return runs of equal heads as (first key group, last key group, head)."""
    runs: list[tuple[int, int, str]] = []
    for offset, head in enumerate(heads):
        if runs and runs[-1][2] == head:
            runs[-1] = (runs[-1][0], first + offset, head)
        else:
            runs.append((first + offset, first + offset, head))
    return tuple(runs)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
