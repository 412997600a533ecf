"""Takes the savepoints that a running job is asked for.

A savepoint pins a committed epoch whose outputs are published: a manifest is written and no state byte is read, so it
costs the same at any size of state. A self-contained one is then copied by a Spark job while the stream runs on.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from statecore.catalog import Catalog, RequestRecord
from statecore.errors import StatecoreError
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.faults import FaultPoint, fault_point
from statecore.runtime.offline.copies import copy_savepoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_NOTHING_COMMITTED = (
    "found no committed epoch; expected one to make a savepoint of; "
    "there is nothing to keep yet: wait for the job's first epoch"
)


class SavepointTaker:
    """Takes savepoints for one generation.

    Args:
        catalog: Where requests come from and savepoints are recorded.
        job: Name of the job.
        store: Its store.
        spark: Runs copies.
        side_jobs: Copies while the stream runs; those that are broken off are taken up by the next driver.

    """

    def __init__(
        self, catalog: Catalog, job: str, store: CheckpointStore, spark: SparkSession, side_jobs: SideJobs
    ) -> None:
        self._catalog = catalog
        self._job = job
        self._store = store
        self._spark = spark
        self._side_jobs = side_jobs

    def take(self, request: RequestRecord, manifest: Manifest | None) -> None:
        """Carry out a request; its outcome goes to the catalog.

        Args:
            request: Its arguments are ``name``, and optionally ``reason`` and ``target``, the URL of the folder that a
                self-contained savepoint is copied to.
            manifest: The epoch to pin; None when there is none.

        Raises:
            StatecoreError: It could not be carried out.

        """
        if manifest is None:
            self._catalog.finish_request(request.id, error=_NOTHING_COMMITTED)
            return
        try:
            path = self._pin(request, manifest)
            manifest = self._store.manifest(path)
        except StatecoreError as error:
            self._catalog.finish_request(request.id, error=str(error))
            raise
        target = request.arguments.get("target")
        if target is None:
            self._finish(request, manifest, path, self._store.describe(path))
            return
        if request.kind != "savepoint":
            # The stream has ended; the driver ends when the copy is there.
            self._copy(request, manifest, path, target)
        else:
            self._side_jobs.start(request.id, lambda: self._copy(request, manifest, path, target))

    def _pin(self, request: RequestRecord, manifest: Manifest) -> str:
        name, reason = request.arguments["name"], request.arguments.get("reason", "")
        path = self._store.savepoint_path(name)
        if not self._is_pinned(request, path):
            self._store.write_savepoint(manifest, name, reason=reason, now_ms=int(time.time() * 1000))
            fault_point(FaultPoint.SAVEPOINT_PINNED, manifest.epoch)
        return path

    def _is_pinned(self, request: RequestRecord, path: str) -> bool:
        """Tell whether a driver that died since had pinned an epoch for this request; any epoch will do for it."""
        if request.kind != "savepoint" or self._store.files.size(path) is None:
            return False
        pinned = self._store.manifest(path).savepoint
        return pinned is not None and pinned.created_ms >= request.created_ms

    def _copy(self, request: RequestRecord, manifest: Manifest, path: str, target: str) -> None:
        try:
            copied = copy_savepoint(self._spark, self._store.describe(path), target)
        except Exception as error:
            if self._side_jobs.closing:
                log.info("the copy of savepoint %s is left to the next driver", path)
                return
            log.exception("savepoint %s could not be copied", path)
            self._catalog.finish_request(request.id, error=f"{type(error).__name__}: {error}")
        else:
            fault_point(FaultPoint.SAVEPOINT_COPIED, manifest.epoch)
            self._finish(request, manifest, path, copied)

    def _finish(self, request: RequestRecord, manifest: Manifest, path: str, url: str) -> None:
        self._catalog.record_savepoint(
            url,
            job=self._job,
            lineage=manifest.lineage,
            epoch=manifest.epoch,
            parallelism=manifest.parallelism,
            reason=request.arguments.get("reason", ""),
        )
        result = {"savepoint": path, "url": url, "lineage": manifest.lineage, "epoch": manifest.epoch}
        self._catalog.finish_request(request.id, result=result)
        log.info("savepoint %s of epoch %d", url, manifest.epoch)
