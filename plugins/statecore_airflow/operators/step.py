"""What all steps have in common that change a job: they hold its lease, and what they did can be found again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from statecore.catalog import Catalog, RescaleMethod, RescaleRunRecord
from statecore.errors import ConfigurationError, LeaseHeldError, StatecoreError, UnknownRecordError
from statecore_airflow.faults import Place, fault_point
from statecore_airflow.hooks.settings import lease_ttl_ms
from statecore_airflow.operators.base import CatalogOperator, now_ms


class JobStep(CatalogOperator):
    """One step of a run that changes a job: say what is wanted, wait, defer if it takes long, go on when it is there.

    A step that is tried or run again finds what it did before, in the catalog, under the id of its DAG run. Why it
    failed is noted there, too: the step ``rollback`` tells it.

    Args:
        **kwargs: See ``CatalogOperator``.

    """

    step: ClassVar[str]
    methods: ClassVar[frozenset[RescaleMethod]] = frozenset({"by_reference", "rewrite", "live"})
    """The rescale methods that need this step; for others it is skipped."""

    def execute(self, context: Context) -> str | None:
        """Begin the step, or go on where an earlier try left it."""
        run = change_id(context)
        with self.noting(run) as catalog:
            record = find_run(catalog, run)
            if record is not None and not self.is_needed(record):
                raise AirflowSkipException(f"not needed: {_described(record)}")
            if record is not None and record.state == "done":
                self.log.info("Rescale run %s is done; nothing is left to do", run)
                catalog.release_lease(self.job, run)
                return self.recorded(record)
            self.hold_lease(catalog, context)
            fault_point(self.step, Place.BEGUN)
            self._mark(catalog, run, started=True)
            return self._end(catalog, run, self.begin(catalog, context))

    def execute_complete(self, context: Context, event: dict[str, str]) -> str | None:
        """Go on after a trigger has fired."""
        run = change_id(context)
        with self.noting(run) as catalog:
            self.judge(event["status"], event["message"])
            self.hold_lease(catalog, context)
            return self._end(catalog, run, self.finish(catalog, context))

    @abstractmethod
    def begin(self, catalog: Catalog, context: Context) -> str | None:
        """Ask for what the step does, wait for it, and return what ``finish`` returns."""

    @abstractmethod
    def finish(self, catalog: Catalog, context: Context) -> str | None:
        """Return the step's result, now that what was asked for is there."""

    def is_needed(self, run: RescaleRunRecord) -> bool:
        """Tell whether this run needs the step."""
        return run.method in self.methods

    def recorded(self, run: RescaleRunRecord) -> str | None:
        """Return the result of this step in a run that is done."""
        return None

    def hold_lease(self, catalog: Catalog, context: Context) -> None:
        """Renew the lease: a run that has lost it must not touch the job any more."""
        catalog.renew_lease(self.job, change_id(context), lease_ttl_ms())

    @contextmanager
    def noting(self, run: str) -> Iterator[Catalog]:
        """Open the catalog, and note there why the step fails, if it does."""
        with self.catalog() as catalog:
            try:
                yield catalog
            except AirflowSkipException:
                raise
            except Exception as error:
                self.log.error("%s", error)
                # A catalog that is away must not hide the error itself, and a step that comes too late, or is cleared
                # by hand, not why the run has failed.
                with suppress(StatecoreError):
                    record = find_run(catalog, run)
                    if record is not None and record.state == "running":
                        catalog.update_rescale_run(run, error=f"step {self.step} failed: {error}")
                raise

    def _mark(self, catalog: Catalog, run: str, *, started: bool = False, ended: bool = False) -> None:
        # A job that is stopped to stay so is no rescale, and no such run is recorded.
        with suppress(UnknownRecordError):
            catalog.mark_step(run, self.step, started=started, ended=ended)

    def _end(self, catalog: Catalog, run: str, result: str | None) -> str | None:
        self._mark(catalog, run, ended=True)
        record = find_run(catalog, run)
        if record is not None and record.state == "running" and record.error:
            # An earlier try's; it has come right.
            catalog.update_rescale_run(run, error="")
        fault_point(self.step, Place.ENDED)
        return result


def change_id(context: Context) -> str:
    """Return the id under which the catalog knows a DAG run that changes a job: as rescale run, and as lease owner.

    That of the DAG ``rescale`` is Airflow's. Those of other DAGs have the DAG's name in front, because an id that
    somebody chose is only unique within its DAG.
    """
    dag, run = context["dag"].dag_id, str(context["run_id"])
    return run if dag == "rescale" else f"{dag}:{run}"


def require_free(catalog: Catalog, job: str, run: str) -> None:
    """Refuse a job that another run is changing.

    Raises:
        LeaseHeldError: One is; the message has its id.

    """
    lease = catalog.lease(job)
    if lease is not None and lease.owner != run and now_ms() < lease.expires_ms:
        raise LeaseHeldError(
            f"found run {lease.owner!r} changing job {job!r}; expected nobody to; wait until that run has ended"
        )


def find_run(catalog: Catalog, run: str) -> RescaleRunRecord | None:
    """Return a rescale run, or None when it was never started."""
    with suppress(UnknownRecordError):
        return catalog.rescale_run(run)
    return None


def out_of_order(run: str, what: str, step: str) -> ConfigurationError:
    """Return the error of a step that misses what an earlier one should have left."""
    return ConfigurationError(
        f"found no {what} of rescale run {run!r}; expected that of the step {step}; run that step first"
    )


def _described(run: RescaleRunRecord) -> str:
    return (
        f"method {run.method}, parallelism {run.from_parallelism} to {run.to_parallelism}, workers {run.from_workers} "
        f"to {run.to_workers}"
    )
