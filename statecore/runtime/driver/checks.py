"""Checks that a job can resume from an epoch or a savepoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from statecore.catalog import JobRecord
from statecore.errors import MaxParallelismError, StateMigrationError
from statecore.runtime.epoch.operator import check_restored_key, restored_operator
from statecore.runtime.job import Job, OperatorPlan
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify_presence


def check_resume(manifest: Manifest, store: CheckpointStore, job: JobRecord, plan: Job) -> None:
    """Check that a job can resume from a manifest of this store.

    Raises:
        StatecoreError: A file of the manifest is missing, or has another size; or the job file does not fit its state.

    """
    verify_presence(store, manifest)
    uids, lenient = [operator.uid for operator in plan.operators], job.allow_non_restored_state
    check_restorable(manifest, uids, job.max_parallelism, allow_non_restored_state=lenient)
    check_sources(manifest, [source.name for source in plan.sources], allow_non_restored_state=lenient)
    check_keys(manifest, plan.operators)


def check_restorable(
    manifest: Manifest, uids: Collection[str], max_parallelism: int, *, allow_non_restored_state: bool = False
) -> None:
    """Check that a job with operators of these uids can restore a manifest's state.

    Raises:
        StateMigrationError: The manifest has state of an operator that the job does not have.
        MaxParallelismError: The state has another number of key groups.

    """
    if manifest.max_parallelism != max_parallelism:
        raise MaxParallelismError(
            f"found state of max parallelism {manifest.max_parallelism}; expected {max_parallelism}, "
            "which the job is registered with; start from it with `start --from`, which adopts its max "
            "parallelism, or rewrite the savepoint"
        )
    gone = sorted({operator.uid for operator in manifest.operators}.difference(uids))
    if gone and not allow_non_restored_state:
        raise StateMigrationError(
            f"found state of the operators {gone} in epoch {manifest.epoch}; expected only state of "
            f"{sorted(uids)}, the operators of this job; give an operator its old uid back, or start with "
            "--allow-non-restored-state to leave that state behind"
        )


def check_sources(manifest: Manifest, names: Collection[str], *, allow_non_restored_state: bool = False) -> None:
    """Check that a job with sources of these names reads every source that a manifest names.

    Raises:
        StateMigrationError: It does not; the unread records of that source would be lost silently.

    """
    gone = [source.name for source in manifest.sources if source.name not in names]
    if gone and not allow_non_restored_state:
        raise StateMigrationError(
            f"found the sources {gone} in epoch {manifest.epoch}; expected only {sorted(names)}, the sources of "
            "this job; give a source its old name back, or start with --allow-non-restored-state to stop reading "
            "dropped sources"
        )


def check_keys(manifest: Manifest, operators: Sequence[OperatorPlan]) -> None:
    """Check that operators have the key columns that their state was written under; the types follow with the sources.

    Raises:
        StateMigrationError: One has others, or in another order; it would go on with the state of other keys.

    """
    for operator in operators:
        check_restored_key(operator, restored_operator(manifest, operator.uid))
