"""The catalog: one object with one part per subject."""

from __future__ import annotations

from typing import Self

from statecore.catalog.alerts import Alerts
from statecore.catalog.audit import this_user
from statecore.catalog.clock import Clock
from statecore.catalog.clusters import Clusters
from statecore.catalog.database import Database
from statecore.catalog.epochs import Epochs
from statecore.catalog.generations import Generations
from statecore.catalog.job_files import JobFiles
from statecore.catalog.jobs import Jobs
from statecore.catalog.leases import Leases
from statecore.catalog.overviews import Overviews
from statecore.catalog.policies import Policies
from statecore.catalog.records import Liveness
from statecore.catalog.requests import Requests
from statecore.catalog.runs import Runs
from statecore.catalog.savepoints import SavepointRecords
from statecore.catalog.supervisors import Supervisors
from statecore.catalog.transactions import Transactions


class Catalog:
    """Desired state, actual state, and the leases to change them; all parts of the system communicate through it.

    Every method of a part is one transaction. The object may be used from several threads; processes open their own.

    Args:
        url: SQLAlchemy URL of a SQLite file (its directory is created) or a PostgreSQL database.
        clock: The source of all times, for tests; None for the database's clock.
        liveness: How long a driver or a supervisor may be silent.
        who: Author of the changes made through this object, for the audit; by default the process's user and host.

    Attributes:
        jobs: Definition, desired state and audit of each job.
        job_files: The job files that each job may run.
        generations: Runs of drivers, claimed one after the other.
        requests: Requests to drivers and to the supervisor.
        savepoints: Records of savepoints.
        overviews: How jobs stand, many at once.
        epochs: Committed epochs, their subtasks and key groups, and what waits in the sources.
        leases: The right to change a job, with a copy of the job as it was before.
        runs: Rescale runs and their steps.
        clusters: Desired and actual size of each cluster.
        policies: Policies of jobs, and their decisions.
        supervisors: The active supervisor.
        alerts: The alerts that were sent.

    Raises:
        ConfigurationError: The URL is not one of a supported database. Methods raise CatalogError itself, not one of
            its subclasses, when the database cannot be reached, and CatalogSchemaError when its tables are missing or
            belong to another release; UnknownJobError when a job is not registered, and UnknownRecordError when a
            generation, request, rescale run or decision does not exist.

    """

    def __init__(
        self, url: str, *, clock: Clock | None = None, liveness: Liveness | None = None, who: str | None = None
    ) -> None:
        liveness = liveness or Liveness()
        self._database = Database(url)
        self._transactions = Transactions(self._database, clock, who or this_user())
        self.jobs = Jobs(self._transactions)
        self.job_files = JobFiles(self._transactions)
        self.generations = Generations(self._transactions, liveness)
        self.requests = Requests(self._transactions)
        self.savepoints = SavepointRecords(self._transactions)
        self.overviews = Overviews(self._transactions, liveness)
        self.epochs = Epochs(self._transactions)
        self.leases = Leases(self._transactions)
        self.runs = Runs(self._transactions)
        self.clusters = Clusters(self._transactions)
        self.policies = Policies(self._transactions)
        self.supervisors = Supervisors(self._transactions, liveness)
        self.alerts = Alerts(self._transactions)

    def now_ms(self) -> int:
        """Return the time that leases, heartbeats and every other record are measured by: the database's."""
        return self._transactions.now_ms()

    def create_schema(self, *, only_if_new: bool = False) -> None:
        """Upgrade the tables to the newest revision, or create them in a new database.

        Args:
            only_if_new: Refuse tables of an older release: its programs may be running.

        Raises:
            CatalogSchemaError: The tables belong to a newer release, or to an older one with ``only_if_new``.

        """
        self._database.create_schema(only_if_new=only_if_new)

    def grant_roles(self) -> list[str]:
        """Grant the roles of supervisor, drivers and Airflow their rights; return those that exist in the database."""
        return self._database.grant_roles()

    def revision(self) -> str | None:
        """Return the revision of the tables; None when there are none."""
        return self._database.revision()

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
