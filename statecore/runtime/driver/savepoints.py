"""Writes the savepoints that are requested from a running job.

A savepoint pins a committed epoch whose outputs are published. This writes only a manifest and reads no state, so the
cost does not depend on the state's size. For a self-contained savepoint, a Spark job then copies the files while the
stream continues.
"""

from __future__ import annotations

import logging
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

_NOTHING_COMMITTED = "found no committed epoch; expected one for the savepoint; wait for the job's first epoch"


class SavepointWriter:
    """Writes savepoints for one generation.

    Args:
        catalog: Holds the requests; savepoints are recorded there.
        job: Name of the job.
        store: The job's store.
        spark: Runs copies.
        side_jobs: Runs copies in parallel to the stream; the next driver repeats a cancelled copy.

    """

    def __init__(
        self, catalog: Catalog, job: str, store: CheckpointStore, spark: SparkSession, side_jobs: SideJobs
    ) -> None:
        self._catalog = catalog
        self._job = job
        self._store = store
        self._spark = spark
        self._side_jobs = side_jobs

    def write(self, request: RequestRecord, manifest: Manifest | None) -> None:
        """Carry out a request and report its outcome to the catalog.

        Args:
            request: Its arguments are ``name``, and optionally ``reason`` and ``target``: the URL of the folder for a
                self-contained copy.
            manifest: The epoch to pin; None when no epoch is committed.

        Raises:
            StatecoreError: The request failed.

        """
        if manifest is None:
            self._catalog.requests.finish(request.id, error=_NOTHING_COMMITTED)
            return
        try:
            path = self._pin(request, manifest)
            manifest = self._store.manifest(path)
        except StatecoreError as error:
            self._catalog.requests.finish(request.id, error=str(error))
            raise
        target = request.arguments.get("target")
        if target is None:
            self._finish(request, manifest, path, self._store.describe(path))
            return
        if request.kind != "savepoint":
            # The stream has ended; the driver ends when the copy is complete.
            self._copy(request, manifest, path, target)
        else:
            self._side_jobs.start(request.id, lambda: self._copy(request, manifest, path, target))

    def _pin(self, request: RequestRecord, manifest: Manifest) -> str:
        name, reason = request.arguments["name"], request.arguments.get("reason", "")
        path = self._store.savepoint_path(name)
        if not self._is_pinned(request, path):
            # The request's time identifies its savepoint to the next driver: hosts' clocks differ.
            self._store.write_savepoint(manifest, name, reason=reason, now_ms=request.created_ms)
            fault_point(FaultPoint.SAVEPOINT_PINNED, manifest.epoch)
        return path

    def _is_pinned(self, request: RequestRecord, path: str) -> bool:
        """Return whether an earlier driver pinned an epoch for this request before it died; any epoch satisfies it."""
        if request.kind != "savepoint" or self._store.files.size(path) is None:
            return False
        pinned = self._store.manifest(path).savepoint
        return pinned is not None and pinned.created_ms == request.created_ms

    def _copy(self, request: RequestRecord, manifest: Manifest, path: str, target: str) -> None:
        try:
            copied = copy_savepoint(self._spark, self._store.describe(path), target)
        except Exception as error:
            if self._side_jobs.closing:
                log.info("the copy of savepoint %s is left to the next driver", path)
                return
            log.exception("savepoint %s could not be copied", path)
            self._catalog.requests.finish(request.id, error=f"{type(error).__name__}: {error}")
        else:
            fault_point(FaultPoint.SAVEPOINT_COPIED, manifest.epoch)
            self._finish(request, manifest, path, copied)

    def _finish(self, request: RequestRecord, manifest: Manifest, path: str, url: str) -> None:
        self._catalog.savepoints.record(
            url,
            job=self._job,
            lineage=manifest.lineage,
            epoch=manifest.epoch,
            parallelism=manifest.parallelism,
            reason=request.arguments.get("reason", ""),
            bytes=manifest.state_bytes,
            asked_ms=request.created_ms,
        )
        result = {"savepoint": path, "url": url, "lineage": manifest.lineage, "epoch": manifest.epoch}
        self._catalog.requests.finish(request.id, result=result)
        log.info("savepoint %s of epoch %d", url, manifest.epoch)
