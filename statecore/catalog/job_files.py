"""Job files that each job may run: what the supervisor and drivers ask before code runs.

On PostgreSQL only the owner of the tables and the supervisor may add a line, and no program may change one. So the
logins of drivers and of Airflow can choose among the job files of a job, and cannot bring another.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, and_, insert, select

from statecore.catalog import tables
from statecore.catalog.records import JobFileRecord, JobRecord
from statecore.catalog.transactions import Transactions
from statecore.errors import JobDefinitionError

job_files = tables.job_files


class JobFiles:
    """The job files that each job may run."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def permit(self, job: JobRecord) -> None:
        """Let a job run the job file that this record names, from now on; idempotent."""
        with self._transactions.write_job(job.name) as connection:
            permit(connection, job, self._transactions.who, self._transactions.now_ms_in(connection))

    def require_permitted(self, job: JobRecord) -> None:
        """Refuse to run a job file that nobody permitted.

        Raises:
            JobDefinitionError: Neither the owner of the catalog nor the supervisor let the job run it.

        """
        with self._transactions.read() as connection:
            if connection.execute(select(job_files.c.id).where(_is_of(job)).limit(1)).first() is not None:
                return
        digest = "no SHA-256" if job.artifact_sha256 is None else f"the SHA-256 {job.artifact_sha256}"
        raise JobDefinitionError(
            f"found the job file {job.artifact} with {digest} in the catalog for job {job.name!r}; expected one that "
            "was registered, or that the supervisor accepted for an upgrade; it was not run; find out who changed the "
            f"job: `statecore audit {job.name}`, then register the job file"
        )

    def of(self, job: str) -> list[JobFileRecord]:
        """Return the job files that a job may run, newest first."""
        query = select(job_files).where(job_files.c.job == job)
        return self._transactions.all(query.order_by(job_files.c.id.desc()), JobFileRecord)


def permit(connection: Connection, job: JobRecord, on_behalf_of: str, at_ms: int) -> None:
    """Add the job's job file, unless it is permitted already; the caller has locked the job."""
    if connection.execute(select(job_files.c.id).where(_is_of(job)).limit(1)).first() is None:
        values = {"job": job.name, "artifact": job.artifact, "artifact_sha256": job.artifact_sha256}
        connection.execute(insert(job_files).values(**values, on_behalf_of=on_behalf_of, at_ms=at_ms))


def _is_of(job: JobRecord) -> ColumnElement[bool]:
    return and_(
        job_files.c.job == job.name,
        job_files.c.artifact == job.artifact,
        job_files.c.artifact_sha256.is_not_distinct_from(job.artifact_sha256),
    )
