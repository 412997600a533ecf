"""Jobs: their definition and their desired state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, UnsetType, to_builtins
from sqlalchemy import Connection, delete, func, insert, select, update

from statecore.catalog import tables
from statecore.catalog.audit import difference
from statecore.catalog.job_files import permit
from statecore.catalog.queries import check_name, get_job, lock_cluster, one
from statecore.catalog.records import AuditRecord, ClaimedSavepoint, JobRecord, JobState
from statecore.catalog.retention import forget_history
from statecore.catalog.transactions import Transactions, again_after_conflict
from statecore.errors import ConfigurationError, MaxParallelismError
from statecore.model.key_groups import check_max_parallelism, check_parallelism

jobs = tables.jobs


class Jobs:
    """Jobs: their definition, their desired state and their audit."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @again_after_conflict
    def register(
        self,
        name: str,
        *,
        artifact: str,
        artifact_sha256: str | None = None,
        store: str,
        master_url: str,
        cluster: str | None = None,
        conf: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        parallelism: int,
        max_parallelism: int,
        checkpoint: str | None = None,
        owner: str | None = None,
    ) -> JobRecord:
        """Add a job, stopped, or update the definition of an existing one; it may run this job file from now on.

        An existing job keeps its desired state, ``start_from`` and kind. The lease of ``owner`` is released in the same
        transaction: whether the caller dies before or after it, nothing is left to roll back.

        Raises:
            ConfigurationError: The name cannot be part of a file name, the cluster or the checkpoint belongs to another
                job, or the job is of the other kind.
            InvalidParallelismError: Parallelism or max parallelism out of bounds.
            MaxParallelismError: The job exists with another max parallelism.
            UnknownClusterError: The cluster is not registered.

        """
        check_name("job", name)
        _check_parallelism(name, parallelism, max_parallelism)
        values: dict[str, Any] = {
            "artifact": artifact,
            "artifact_sha256": artifact_sha256,
            "store": store,
            "master_url": master_url,
            "cluster": cluster,
            "conf": dict(conf or {}),
            "settings": dict(settings or {}),
            "parallelism": parallelism,
            "max_parallelism": max_parallelism,
            "checkpoint": checkpoint,
        }
        with self._transactions.write() as connection:
            # Everyone who locks both locks the job first: otherwise two could wait for each other.
            connection.execute(select(jobs.c.name).where(jobs.c.name == name).with_for_update())
            if cluster is not None:
                lock_cluster(connection, cluster)
                _check_owner(connection, cluster, name)
            if checkpoint is not None:
                _check_checkpoint(connection, checkpoint, name)
            values["updated_ms"] = self._transactions.now_ms_in(connection)
            before = one(connection, jobs, jobs.c.name == name, kind=JobRecord)
            if before is not None and before.is_query != (checkpoint is not None):
                raise _other_kind(name, query=checkpoint is not None)
            if before is None:
                connection.execute(insert(jobs).values(name=name, desired_state="stopped", **values))
            elif before.max_parallelism != max_parallelism:
                raise MaxParallelismError(
                    f"job {name!r} is registered with max parallelism {before.max_parallelism}, "
                    f"found {max_parallelism}; expected the same, because it fixes the key group of every key; "
                    "keep it, or rewrite the state with the method rewrite"
                )
            else:
                connection.execute(update(jobs).where(jobs.c.name == name).values(**values))
            if owner is not None:
                leases = tables.leases
                connection.execute(delete(leases).where(leases.c.job == name, leases.c.owner == owner))
            after = get_job(connection, name)
            permit(connection, after, self._transactions.who, after.updated_ms)
            self._transactions.record_change(connection, name, difference(before, after))
            return after

    def get(self, name: str) -> JobRecord:
        """Return a job."""
        with self._transactions.read() as connection:
            return get_job(connection, name)

    def names(self) -> list[str]:
        """Return the names of all jobs, in order."""
        with self._transactions.read() as connection:
            return list(connection.execute(select(jobs.c.name).order_by(jobs.c.name)).scalars())

    def all(self) -> list[JobRecord]:
        """Return all jobs by name."""
        return self._transactions.all(select(jobs).order_by(jobs.c.name), JobRecord)

    def audit(self, job: str, *, limit: int | None = None) -> list[AuditRecord]:
        """Return the changes of a job with their authors, newest first."""
        audit = tables.audit
        return self._transactions.all(
            select(audit).where(audit.c.job == job).order_by(audit.c.id.desc()).limit(limit), AuditRecord
        )

    def set_desired(
        self,
        job: str,
        *,
        state: JobState | None = None,
        artifact: str | None = None,
        artifact_sha256: str | None = None,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        start_from: str | UnsetType | None = UNSET,
        roll_back: bool = False,
        claims_savepoint: ClaimedSavepoint | None = None,
        start_after: int = 0,
        allow_non_restored_state: bool | None = None,
        accept_lost_records: bool | None = None,
        checkpoint: str | None = None,
    ) -> JobRecord:
        """Change the desired state of a job in one transaction; omitted arguments stay unchanged.

        Args:
            job: Name of the job.
            state: Whether a driver should run.
            artifact: Path or URL of the job file that the next generation runs.
            artifact_sha256: SHA-256 of its copy in the job's store; set together with it.
            parallelism: Parallelism the next generation starts with.
            max_parallelism: Number of key groups of the savepoint to start from; only a rewritten one changes it.
            start_from: Savepoint to start from, a path in the store or a URL; None for the newest epoch.
            roll_back: Whether ``start_from`` applies although epochs were committed after it; set together with it.
            claims_savepoint: The savepoint that the job takes ownership of; set together with ``start_from``.
            start_after: A number that the next generation must exceed, such as the newest one in the job's store.
            allow_non_restored_state: Whether the driver may drop state that the job file no longer declares.
            accept_lost_records: Whether the next driver may skip records that topics no longer have.
            checkpoint: The checkpoint that the next generation of a query job resumes from.

        Raises:
            InvalidParallelismError: The parallelism is out of bounds.

        """
        with self._transactions.change_job(job) as connection:
            before = get_job(connection, job)
            given = {
                "desired_state": state,
                "artifact": artifact,
                "allow_non_restored_state": allow_non_restored_state,
                "accept_lost_records": accept_lost_records,
            }
            values: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
            values["updated_ms"] = self._transactions.now_ms_in(connection)
            if state == "stopped":
                # It was given for the previous start only.
                values["accept_lost_records"] = False
            if checkpoint is not None:
                values["checkpoint"] = checkpoint
            if artifact is not None:
                values["artifact_sha256"] = artifact_sha256
            if parallelism is not None or max_parallelism is not None:
                values["parallelism"] = before.parallelism if parallelism is None else parallelism
                values["max_parallelism"] = before.max_parallelism if max_parallelism is None else max_parallelism
                _check_parallelism(job, values["parallelism"], values["max_parallelism"])
            if not isinstance(start_from, UnsetType):
                values["start_from"] = start_from
                values["roll_back"] = roll_back and start_from is not None
                values["claims_savepoint"] = to_builtins(None if start_from is None else claims_savepoint)
                generations = tables.generations.c
                newest = select(func.max(generations.generation)).where(generations.job == job)
                values["start_after_generation"] = max(connection.execute(newest).scalar() or 0, start_after)
            connection.execute(update(jobs).where(jobs.c.name == job).values(**values))
            return get_job(connection, job)

    def clear_start(self, job: str, start_after_generation: int) -> None:
        """Clear the savepoint that a job has started from, unless another one was requested since."""
        with self._transactions.change_job(job) as connection:
            connection.execute(
                update(jobs)
                .where(jobs.c.name == job, jobs.c.start_after_generation == start_after_generation)
                .values(
                    start_from=None,
                    roll_back=False,
                    claims_savepoint=None,
                    updated_ms=self._transactions.now_ms_in(connection),
                )
            )

    def forget_history(self, job: str) -> None:
        """Remove a job's generations, requests and rescale runs that ended more than 30 days ago.

        The newest hundred generations and rescale runs stay, and so do unfinished ones.
        """
        with self._transactions.write_job(job) as connection:
            forget_history(connection, job, self._transactions.now_ms_in(connection))


def _check_owner(connection: Connection, cluster: str, job: str) -> None:
    """Refuse the cluster of another job: both jobs would resize it."""
    others = select(jobs.c.name).where(jobs.c.cluster == cluster, jobs.c.name != job)
    owner = connection.execute(others.limit(1)).scalar()
    if owner is not None:
        raise ConfigurationError(
            f"found cluster {cluster!r} in use by job {owner!r}; expected one of no other job than {job!r}, because "
            "each job resizes its own; register another cluster with `statecore cluster register`, or give this one "
            f"up first: `statecore register {owner} --cluster=`"
        )


def _check_checkpoint(connection: Connection, checkpoint: str, job: str) -> None:
    """Refuse the checkpoint of another job: two queries that write to one checkpoint destroy it."""
    others = select(jobs.c.name).where(jobs.c.checkpoint == checkpoint, jobs.c.name != job)
    owner = connection.execute(others.limit(1)).scalar()
    if owner is not None:
        raise ConfigurationError(
            f"found the checkpoint {checkpoint} in use by job {owner!r}; expected one of no other job than {job!r}, "
            "because a checkpoint belongs to one query; clone it with `statecore checkpoint clone`, and give the clone"
        )


def _other_kind(name: str, *, query: bool) -> ConfigurationError:
    kinds = ("a job of statecore", "a query of Spark's own")
    is_now, asked = kinds if query else reversed(kinds)
    return ConfigurationError(
        f"found that job {name!r} is {is_now}; expected it to stay one, because its state and savepoints are; "
        f"register {asked} under another name"
    )


def _check_parallelism(job: str, parallelism: int, max_parallelism: int) -> None:
    check_max_parallelism(max_parallelism, f" of job {job!r}")
    check_parallelism(parallelism, max_parallelism, f" of job {job!r}")
