"""Rescales a job while its stream runs.

::

    prepare: subtasks are placed, their state is loaded there     epochs continue
    ── boundary ── the catalog records the parallelism, the subtasks take it
    the next epoch runs at it

If the rescale is interrupted, the job continues at the parallelism in the catalog: the old one before the boundary, the
new one after it.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import CatalogError, CommitError, UnknownRecordError
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.epoch.lineage import Lineage
from statecore.runtime.epoch.subtasks import Subtasks
from statecore.runtime.faults import FaultPoint, fault_point

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_CATALOG_AWAY_SECONDS = 1.0


class LiveRescaler:
    """Carries out live rescales of one generation.

    Args:
        catalog: Holds the requests.
        job: Name of the job.
        lineage: The epochs of the driver's generation.
        subtasks: The subtasks to rescale.
        boundary: Lock that an epoch in flight holds.
        spark: The session of the stream.
        side_jobs: Runs the rescales.

    """

    def __init__(
        self,
        catalog: Catalog,
        job: str,
        lineage: Lineage,
        subtasks: Subtasks,
        boundary: threading.Lock,
        spark: SparkSession,
        side_jobs: SideJobs,
    ) -> None:
        self._catalog = catalog
        self._job = job
        self._lineage = lineage
        self._subtasks = subtasks
        self._boundary = boundary
        self._spark = spark
        self._side_jobs = side_jobs
        self._one_at_a_time = threading.Lock()

    def start(self, request: RequestRecord) -> None:
        """Carry out a request with the argument ``parallelism`` in parallel to the stream; report its outcome."""
        self._side_jobs.start(request.id, lambda: self._carry_out(request))

    def _carry_out(self, request: RequestRecord) -> None:
        try:
            with self._one_at_a_time:
                self._rescale(request)
        except Exception as error:
            if self._side_jobs.closing:
                return
            log.exception("request %d for another parallelism could not be carried out", request.id)
            self._catalog.requests.finish(request.id, error=f"{type(error).__name__}: {error}")

    def _rescale(self, request: RequestRecord) -> None:
        lineage, subtasks, parallelism = self._lineage, self._subtasks, int(request.arguments["parallelism"])
        anchor = subtasks.prepare(self._spark, parallelism)
        try:
            fault_point(FaultPoint.RESCALE_PREPARED, lineage.newest_epoch or 0)
            try:
                with self._boundary:
                    result = {
                        "parallelism": parallelism,
                        "from_parallelism": subtasks.parallelism,
                        "after_epoch": lineage.newest_epoch,
                    }
                    if self._side_jobs.closing or not self._catalog.generations.apply_parallelism(
                        self._job, lineage.generation, parallelism, request.id, result
                    ):
                        raise CommitError(
                            f"job {self._job!r} not rescaled to parallelism {parallelism}: generation "
                            f"{lineage.generation} is ending; retry when the next driver runs, or start the job at "
                            "that parallelism"
                        )
                    fault_point(FaultPoint.RESCALE_APPLIED, lineage.newest_epoch or 0)
                    subtasks.rescale(anchor)
            except CatalogError as error:
                if not self._was_recorded(request, error):
                    raise
                with self._boundary:
                    subtasks.rescale(anchor)
        except BaseException:
            anchor.close()
            raise
        log.info("rescaled live: %s", result)

    def _was_recorded(self, request: RequestRecord, error: CatalogError) -> bool:
        """Return whether the catalog recorded the parallelism and only its response was lost.

        Afterwards the request is finished, so the result cannot change. Meanwhile, epochs continue at the old
        parallelism.
        """
        while not self._side_jobs.closing:
            try:
                # The first recorded outcome stays.
                self._catalog.requests.finish(request.id, error=f"{type(error).__name__}: {error}")
                return self._catalog.requests.get(request.id).state == "done"
            except UnknownRecordError:
                break
            except CatalogError:
                time.sleep(_CATALOG_AWAY_SECONDS)
        return False
