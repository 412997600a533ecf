"""Proves that one checkpoint is a rescaled copy of another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from statecore.queries.copying.clone import on_this_machine
from statecore.queries.job.query_file import load_query
from statecore.queries.progress import Report, quiet, steps, uncounted
from statecore.queries.proving.attempts import after_attempt, check_attempt
from statecore.queries.proving.digests import digests
from statecore.queries.proving.proof import Proof, check_counted, check_explained, check_same_logs, check_same_state
from statecore.queries.proving.trial import trial_restart
from statecore.queries.reading.checkpoint import open_checkpoint, require_unchanged
from statecore.queries.reading.refusals import refuse
from statecore.queries.reading.source_logs import require_whole_sources
from statecore.queries.session import query_session
from statecore.storage.workspaces import workspace


def verify(
    path: str,
    target: str,
    query: str | Path | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    report: Report = quiet,
) -> Proof:
    """Prove that two checkpoints hold the same rows, each row where Spark looks for it.

    Args:
        path: The checkpoint that the other was made from.
        target: The other; neither is written to.
        query: A file that defines ``build(spark, settings)``, for a trial restart; None skips the trial.
        settings: The settings that ``build`` gets.
        spark: A session on this machine; None starts one.
        report: Called with the number of steps done, and of all.

    Raises:
        NotProvenError: They differ, or stand at different batches.
        CheckpointRefusedError: One of them is not covered.
        CheckpointDamagedError: A file is missing or not whole.
        StorageError: The storage fails.

    """
    old, new = open_checkpoint(path), open_checkpoint(target)
    for each in (old, new):
        refuse(each)
    check_same_logs(old, new)
    build = None if query is None else load_query(query)
    done = steps(report, 2 * sum(len(operator.stores) for operator in old.operators) + 1)
    session = spark or query_session()
    with workspace("verify") as folder:
        original = on_this_machine(old, folder / "old")
        before = digests(session, original, done)
        check_counted(old, before)
        for digest in before:
            check_explained(digest)
        copy = on_this_machine(new, folder / "new")
        for each in (original, copy):
            require_whole_sources(each)
        after = digests(session, copy, done)
        check_same_state(before, after)
        with after_attempt(original, folder / "attempted") as ahead:
            if ahead is not None:
                check_attempt(session, digests(session, ahead, uncounted), copy, folder / "carried")
        for each in (old, new):
            require_unchanged(each)
        if build is not None:
            trial_restart(session, copy.url, build, settings or {}, folder / "trial", before=after)
        done()
    return Proof(new.batch, tuple(after), restart=build is not None)
