"""The subtasks of all operators: where they run, the state that they start an epoch from, and the epoch itself.

::

    df ─► key group, subtask ─► repartitionById ⟗ anchor ─► sort ─► mapInArrow(subtask) ─► commit rows

Parallelism belongs to the epoch: between two epochs, ``rescale`` assigns the same state files to another number of
subtasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, cast

import msgspec
from pyspark.sql.types import StructType

from statecore.model import Field
from statecore.model.key_groups import check_parallelism
from statecore.runtime.epoch.anchor import Anchor
from statecore.runtime.epoch.commits import checked_commits
from statecore.runtime.epoch.dataflow import Dataflow
from statecore.runtime.epoch.layouts import Layouts
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.load_ahead import load_ahead
from statecore.runtime.epoch.operator import (
    ColumnsOf,
    check_restored_key,
    operator_spec,
    restored_operator,
    subtask_specs,
)
from statecore.runtime.epoch.sampling import Sampling
from statecore.runtime.epoch.sources_read import SourcesRead
from statecore.runtime.job import Job, OperatorPlan, Origin
from statecore.runtime.job.places import at_line
from statecore.runtime.messages import COMMIT, COMMIT_DECODER, EpochSpec, OperatorSpec, SubtaskCommit
from statecore.runtime.worker.crossing import crossing_ddl
from statecore.runtime.worker.subtask import subtask_runner
from statecore.snapshot.claims import claimed
from statecore.snapshot.manifest import Manifest, OperatorState
from statecore.snapshot.rescale import rescale_by_reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Ran:
    """An epoch that all subtasks have run, ready to commit.

    Attributes:
        specs: Per uid the operator.
        commits: Per uid its subtasks' commits, in order.
        read: What was read from the sources.

    """

    specs: Mapping[str, OperatorSpec]
    commits: Mapping[str, Sequence[SubtaskCommit]]
    read: SourcesRead


class Subtasks:
    """Runs the subtasks of one generation.

    Args:
        plan: The job's sources, operators and sinks.
        lineage: The state that epochs start from.
        parallelism: Subtasks of the following epochs.
        max_parallelism: Number of key groups.
        allow_non_restored_state: Whether state that the job no longer declares may be left behind.

    Attributes:
        parallelism: The job's parallelism in the next epoch.
        max_parallelism: Number of key groups.
        own: Per operator uid the parallelism that the job file fixes; None for the job's.

    """

    def __init__(
        self, plan: Job, lineage: Lineage, parallelism: int, max_parallelism: int, *, allow_non_restored_state: bool
    ) -> None:
        self._plan = plan
        self._lineage = lineage
        self.max_parallelism = max_parallelism
        self.own = {operator.uid: operator.parallelism for operator in plan.operators}
        self._allow_non_restored_state = allow_non_restored_state
        self._specs: dict[str, OperatorSpec] = {}
        self._columns: dict[Origin, tuple[Field, ...]] = {}
        self._layouts = Layouts(max_parallelism, self.own)
        self._sampling = Sampling()
        self._redistribute(parallelism)

    def prepare(self, spark: SparkSession, parallelism: int) -> Anchor:
        """Prepare another parallelism while epochs continue: place its subtasks and load their state there.

        Raises:
            InvalidParallelismError: The parallelism is not within 1 and max parallelism.

        """
        check_parallelism(parallelism, self.max_parallelism)
        anchor, moved = self._layouts.next(spark, parallelism)
        store = self._lineage.store
        if moved and not self._lineage.restores and (newest := self._lineage.newest) is not None:
            path = store.manifest_path(newest.lineage, newest.epoch)
            try:
                # Epochs that are committed meanwhile may make it one that is thinned out.
                with claimed(store.files, path, f"a live rescale of job {newest.job}"):
                    self._load_ahead(newest, anchor, moved)
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

    def run(self, df: DataFrame, epoch: int, now_ms: int) -> Ran:
        """Run an epoch on its records, at its time; nothing of it is visible before its manifest is committed.

        Raises:
            CommitError: The subtasks' commits do not fit together.
            StateMigrationError: An operator has another key than its state.
            JobDefinitionError: The columns of an input are not those that an operator needs.

        """
        plan, lineage, previous = self._plan, self._lineage, self._lineage.previous
        anchors = self._layouts.all(df.sparkSession, self.parallelism)
        counts_state = self._sampling.due()
        flow = Dataflow(df, plan.sources, plan.operators, anchors, self.max_parallelism, self._columns)
        try:
            # Kept for the preparation of a live rescale, once there is state to load.
            specs = self._specs = {operator.uid: self._spec(operator, flow.columns_of) for operator in plan.operators}

            def run(operator: OperatorPlan, rows: DataFrame) -> DataFrame:
                spec = specs[operator.uid]
                restored = restored_operator(previous, spec.uid)
                parts = lineage.parts.get(spec.uid)
                states = subtask_specs(restored, self._parallelism_of(spec.uid), self.max_parallelism, parts)
                epoch_spec = self._epoch_spec(
                    epoch, now_ms, previous, restored, states, restores=lineage.restores, counts_state=counts_state
                )
                return rows.mapInArrow(subtask_runner(spec, epoch_spec), _parsed(crossing_ddl(spec)))

            rows = flow.commits(run, specs).collect()
            observed = flow.observed()
        finally:
            flow.close()
        decoded = [COMMIT_DECODER.decode(row[COMMIT]) for row in rows]
        commits = checked_commits(decoded, {uid: self._parallelism_of(uid) for uid in specs}, epoch)
        before = () if previous is None else previous.sources
        return Ran(specs, commits, SourcesRead(plan, commits, before, observed))

    def _redistribute(self, parallelism: int) -> None:
        self._lineage.redistribute(parallelism, self.own)
        self.parallelism = parallelism

    def _parallelism_of(self, uid: str) -> int:
        return self.own[uid] or self.parallelism

    def _load_ahead(self, newest: Manifest, anchor: Anchor, subtasks: Sequence[int]) -> None:
        """Load the state of subtasks on the executors that will run them."""
        rescaled = rescale_by_reference(newest, anchor.parallelism, self.own)
        for operator in self._plan.operators:
            spec = self._specs[operator.uid]
            restored = restored_operator(rescaled, operator.uid)
            if operator.parallelism is None and spec.key_fields and restored is not None:
                states = subtask_specs(restored, anchor.parallelism, self.max_parallelism)
                told = tuple(state if index in subtasks else b"" for index, state in enumerate(states))
                epoch = self._epoch_spec(newest.epoch, 0, rescaled, restored, told, restores=True)
                load_ahead(anchor, subtasks, spec, epoch)

    def _spec(self, operator: OperatorPlan, columns_of: ColumnsOf) -> OperatorSpec:
        with at_line(operator.line):
            spec = operator_spec(
                operator,
                self._plan.operators,
                columns_of,
                self._lineage.store,
                self.max_parallelism,
                allow_non_restored_state=self._allow_non_restored_state,
            )
        check_restored_key(operator, restored_operator(self._lineage.previous, operator.uid), spec.key_fields)
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
        foreign = self._lineage.foreign
        return EpochSpec(
            lineage=self._lineage.number,
            epoch=epoch,
            now_ms=now_ms,
            watermark_ms=None if before is None else before.watermark_ms,
            watermark_before_ms=None if before is None else before.watermark_before_ms,
            previous=self._lineage.path,
            restored=None
            if restored is None
            else msgspec.structs.replace(restored, subtasks=(), metrics=msgspec.UNSET),
            foreign_store=None if foreign is None else foreign.files.url,
            restores=restores,
            counts_state=counts_state,
            subtasks=subtasks,
        )


@cache
def _parsed(ddl: str) -> StructType:
    """Return columns as Spark's type; otherwise Spark would parse them in every epoch."""
    return cast("StructType", StructType.fromDDL(ddl))
