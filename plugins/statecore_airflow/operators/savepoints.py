"""The steps of scheduled savepoints: take one of each job, verify it, drop old ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.catalog import Catalog, RequestRecord, SavepointRecord
from statecore.catalog.retention import superfluous_savepoints
from statecore.errors import MissingFileError, SavepointInUseError, StepFailedError
from statecore.operations.kinds import require_statecore_job
from statecore.operations.rescaling import savepoint_name
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore, open_savepoint
from statecore.snapshot.savepoints import drop_savepoint
from statecore.snapshot.verify import verify
from statecore_airflow.operators.base import CatalogOperator, CatalogWideOperator, event_finding, open_catalog
from statecore_airflow.triggers.catalog import RequestTrigger

_PREFIX = "airflow-"
_REASON = "taken by the DAG savepoints"


class RunningJobsOperator(CatalogWideOperator):
    """Returns the names of the jobs to take savepoints of: the requested one, or all that should run."""

    def execute(self, context: Context) -> list[str]:
        """Read the catalog."""
        asked = context["params"]["job"]
        with open_catalog(self.conn_id) as catalog:
            if asked is not None:
                job = catalog.job(asked)
                require_statecore_job(job, "scheduled savepoints", f"take one: `statecore savepoint create {job.name}`")
                return [job.name]
            # Savepoints of Spark's own queries are neither verified nor dropped yet.
            return [job.name for job in catalog.jobs() if job.desired_state == "running" and not job.is_query]


class TakeSavepointOperator(CatalogOperator):
    """Takes a savepoint of a job, which keeps running; returns the savepoint's address."""

    def execute(self, context: Context) -> str:
        """Ask the driver, and wait."""
        with self.catalog() as catalog:
            request = self._request(catalog, context["run_id"])
            if request.state in ("pending", "taken") and not catalog.is_alive(catalog.newest_generation(self.job)):
                self._withdraw(catalog, request)
                # Retryable: in the middle of a rescale a job has no driver for a moment.
                raise AirflowException(
                    f"found no live driver of job {self.job!r}; expected one to take a savepoint; its newest epoch is "
                    "kept; find out why no driver runs"
                )
            self.wait(catalog, RequestTrigger, request_id=request.id)
            return self._taken(catalog, context["run_id"])

    def execute_complete(self, context: Context, event: dict[str, str]) -> str:
        """Continue after the trigger has fired."""
        with self.catalog() as catalog:
            try:
                self.judge(event_finding(event))
            except StepFailedError as error:
                if not error.is_retryable:
                    # A driver that comes back later must not take a savepoint that no task waits for.
                    self._withdraw(catalog, self._request(catalog, context["run_id"]))
                raise
            return self._taken(catalog, context["run_id"])

    def _request(self, catalog: Catalog, run: str) -> RequestRecord:
        """Return the first request of this run that has not failed."""
        attempt = 1
        while True:
            name = f"{_PREFIX}{savepoint_name(run)}" + (f"-{attempt}" if attempt > 1 else "")
            arguments = {"name": name, "reason": _REASON}
            request = catalog.request(self.job, "savepoint", arguments, f"{run}/savepoint/{self.job}/{attempt}")
            if request.state != "failed":
                return request
            attempt += 1

    @staticmethod
    def _withdraw(catalog: Catalog, request: RequestRecord) -> None:
        catalog.finish_request(request.id, error="withdrawn: its task has failed")

    def _taken(self, catalog: Catalog, run: str) -> str:
        result = self._request(catalog, run).result
        assert result is not None
        self.log.info("Savepoint %s, epoch %s of lineage %s", result["url"], result["epoch"], result["lineage"])
        return str(result["url"])


class VerifySavepointOperator(CatalogOperator):
    """Compares every file of a savepoint with its size and checksum in the manifest; takes and returns the address."""

    template_fields = (*CatalogOperator.template_fields, "savepoint")

    def __init__(self, *, savepoint: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint

    def execute(self, context: Context) -> str:
        """Read every file."""
        store, _, manifest = open_savepoint(self.savepoint)
        problems = verify(store, manifest)
        for problem in problems:
            self.log.error("%s", problem)
        if problems:
            raise AirflowFailException(
                f"found {len(problems)} problems with savepoint {self.savepoint}, the first: {problems[0]}; expected "
                "none; older savepoints stay as they are; find out what happened to the files"
            )
        self.log.info("Whole: %s files, %s bytes", len(manifest.files()), sum(ref.size for ref in manifest.files()))
        return self.savepoint


class RetainSavepointsOperator(CatalogOperator):
    """Drops old savepoints of a job: those that this DAG took, and those that ended rescale runs left behind.

    The savepoint just verified stays. So the last good one is never dropped, even if a rescale has left a newer one
    meanwhile. Savepoints that are being read, that a job will start from, or that people took, stay as well.
    """

    template_fields = (*CatalogOperator.template_fields, "verified")

    def __init__(self, *, verified: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.verified = verified

    def execute(self, context: Context) -> list[str]:
        """Drop surplus savepoints; return their addresses."""
        params = context["params"]
        with self.catalog() as catalog:
            store = CheckpointStore.at(catalog.job(self.job).store)
            surplus = superfluous_savepoints(
                list(self._droppable(catalog, store).values()),
                keep=params["keep"],
                max_age_ms=int(timedelta(days=params["max_age_days"]).total_seconds() * 1000),
                now_ms=catalog.now_ms(),
                needed=_start_points(catalog) | {_address(store, self.verified)},
            )
            return [each.path for each in surplus if self._drop(catalog, store, each.path)]

    def _droppable(self, catalog: Catalog, store: CheckpointStore) -> dict[str, SavepointRecord]:
        """Return the savepoints that may be dropped, by address; one that is recorded twice appears once."""
        runs = catalog.rescale_runs(self.job)
        left = {
            _address(store, path)
            for run in runs
            if run.state != "running"
            for path in (run.savepoint, run.rescaled)
            if path is not None
        }
        found = {}
        for record in catalog.savepoints(self.job):
            address = _address(store, record.path)
            if address in left or address.startswith(store.describe(f"savepoints/{_PREFIX}")):
                found[address] = dataclasses.replace(record, path=address)
        return found

    def _drop(self, catalog: Catalog, store: CheckpointStore, address: str) -> bool:
        path = address.removeprefix(store.describe(""))
        try:
            freed = drop_savepoint(store, path)
        except SavepointInUseError as error:
            self.log.info("Kept: %s", error)
            return False
        except MissingFileError:
            freed = 0
        catalog.forget_savepoint(*_spellings(address, path))
        self.log.info("Dropped %s: %s bytes freed", address, freed)
        return True


def _start_points(catalog: Catalog) -> set[str]:
    """Return the addresses that jobs will start from, or have started from."""
    points = set()
    for job in catalog.jobs():
        if job.start_from is not None:
            points.add(_address(CheckpointStore.at(job.store), job.start_from))
    return points


def _address(store: CheckpointStore, path: str) -> str:
    """Return the address of a savepoint's manifest, for any spelling of its path."""
    whole = path if "://" in path or path.startswith("/") else store.describe(path)
    return whole if whole.endswith(f"/{MANIFEST}") else f"{whole.rstrip('/')}/{MANIFEST}"


def _spellings(address: str, path: str) -> Iterable[str]:
    for each in (address, path):
        yield from (each, each.removesuffix(f"/{MANIFEST}"))
