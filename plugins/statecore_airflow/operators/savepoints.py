"""The steps of scheduled savepoints: take one of each job, verify it, drop old ones."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from statecore.catalog import Catalog, Jobs, RequestRecord, Requests, SavepointRecord
from statecore.catalog.retention import superfluous_savepoints
from statecore.errors import CheckpointDamagedError, SavepointInUseError, StepFailedError
from statecore.operations.changes import savepoint_name
from statecore.operations.kinds import kind_of
from statecore.operations.savepoints import Savepoints
from statecore.storage import open_store
from statecore_airflow.operators.base import CatalogOperator, CatalogWideOperator, event_finding, open_catalog
from statecore_airflow.operators.change_id import run_key
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
                return [catalog.jobs.get(asked).name]
            return [job.name for job in catalog.jobs.all() if job.desired_state == "running"]


class TakeSavepointOperator(CatalogOperator):
    """Takes a savepoint of a job, which keeps running; returns the savepoint's address."""

    def execute(self, context: Context) -> str:
        """Send a request to the driver, and wait."""
        with self.catalog() as catalog:
            request = self._request(catalog.requests, run_key(context))
            if request.state in ("pending", "taken") and not catalog.generations.is_alive(
                catalog.generations.newest(self.job)
            ):
                self._withdraw(catalog.requests, request)
                # Retryable: in the middle of a rescale a job has no driver for a moment.
                raise AirflowException(
                    f"found no live driver of job {self.job!r}; expected one to take a savepoint; its newest epoch is "
                    "kept; find out why no driver runs"
                )
            self.wait(catalog, RequestTrigger, request_id=request.id)
            return self._taken(catalog, run_key(context))

    def execute_complete(self, context: Context, event: dict[str, str]) -> str:
        """Continue after the trigger has fired."""
        with self.catalog() as catalog:
            try:
                self.judge(event_finding(event))
            except StepFailedError as error:
                if not error.is_retryable:
                    # A driver that comes back later must not take a savepoint that no task waits for.
                    self._withdraw(catalog.requests, self._request(catalog.requests, run_key(context)))
                raise
            return self._taken(catalog, run_key(context))

    def _request(self, requests: Requests, run: str) -> RequestRecord:
        """Return the first request of this run that has not failed."""
        attempt = 1
        while True:
            name = f"{_PREFIX}{savepoint_name(run)}" + (f"-{attempt}" if attempt > 1 else "")
            arguments = {"name": name, "reason": _REASON}
            request = requests.send(self.job, "savepoint", arguments, f"{run}/savepoint/{self.job}/{attempt}")
            if request.state != "failed":
                return request
            attempt += 1

    @staticmethod
    def _withdraw(requests: Requests, request: RequestRecord) -> None:
        requests.finish(request.id, error="withdrawn: its task has failed")

    def _taken(self, catalog: Catalog, run: str) -> str:
        result = self._request(catalog.requests, run).result
        assert result is not None
        self.log.info("Savepoint %s, epoch %s of lineage %s", result["url"], result["epoch"], result["lineage"])
        return str(result["url"])


class VerifySavepointOperator(CatalogOperator):
    """Checks that a savepoint is whole, by reading all of it; gets and returns its address."""

    template_fields = (*CatalogOperator.template_fields, "savepoint")

    def __init__(self, *, savepoint: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint

    def execute(self, context: Context) -> str:
        """Read every file."""
        with self.catalog() as catalog:
            savepoints = kind_of(catalog.jobs.get(self.job)).savepoints
        try:
            self.log.info("Whole: %s", savepoints.check(self.savepoint))
        except CheckpointDamagedError as error:
            raise AirflowFailException(str(error)) from error
        return self.savepoint


class RetainSavepointsOperator(CatalogOperator):
    """Drops old savepoints of a job: those of this DAG, and those of ended rescale runs.

    The savepoint just verified stays. So the last good one is never dropped, even if a rescale has taken a newer one.
    Savepoints that are being read, that a job will start from, or that people took, stay as well.
    """

    template_fields = (*CatalogOperator.template_fields, "verified")

    def __init__(self, *, verified: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.verified = verified

    def execute(self, context: Context) -> list[str]:
        """Drop surplus savepoints; return their addresses."""
        params = context["params"]
        max_age_ms = int(timedelta(days=params["max_age_days"]).total_seconds() * 1000)
        with self.catalog() as catalog:
            savepoints = kind_of(catalog.jobs.get(self.job)).savepoints
            surplus = superfluous_savepoints(
                list(self._droppable(catalog, savepoints).values()),
                keep=params["keep"],
                max_age_ms=max_age_ms,
                now_ms=catalog.now_ms(),
                needed=_start_points(catalog.jobs) | {savepoints.address(self.verified)},
            )
            dropped = [each.path for each in surplus if self._drop(catalog, savepoints, each.path)]
            savepoints.remove_surplus(catalog, max_age_ms)
            return dropped

    def _droppable(self, catalog: Catalog, savepoints: Savepoints) -> dict[str, SavepointRecord]:
        """Return the savepoints that may be dropped, by address; one that is recorded twice appears once."""
        runs = catalog.runs.of(self.job)
        left = {
            savepoints.address(path)
            for run in runs
            if run.state != "running"
            for path in (run.savepoint, run.rescaled)
            if path is not None
        }
        own = f"{open_store(savepoints.job.store).url.rstrip('/')}/savepoints/{_PREFIX}"
        by_address = {}
        for record in catalog.savepoints.of(self.job):
            address = savepoints.address(record.path)
            if address in left or address.startswith(own):
                by_address[address] = dataclasses.replace(record, path=address)
        return by_address

    def _drop(self, catalog: Catalog, savepoints: Savepoints, address: str) -> bool:
        try:
            freed = savepoints.drop(address, catalog)
        except SavepointInUseError as error:
            self.log.info("Kept: %s", error)
            return False
        catalog.savepoints.forget(*savepoints.spellings(address))
        self.log.info("Dropped %s: %s bytes freed", address, freed)
        return True


def _start_points(jobs: Jobs) -> set[str]:
    """Return the addresses that jobs will start from, or have started from."""
    return {kind_of(job).savepoints.address(job.start_from) for job in jobs.all() if job.start_from is not None}
