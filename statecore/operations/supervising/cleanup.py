"""Removes files of killed drivers on the supervisor's machine, and old records in the catalog."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from pathlib import Path

from statecore.catalog import Catalog
from statecore.catalog.retention import KEPT_MS
from statecore.storage.workspaces import remove_abandoned

log = logging.getLogger(__name__)

_EVERY_MS = 3_600_000
_LOG = re.compile(r"(?P<job>.+)-(?P<generation>\d+)\.log")


class Cleanup:
    """Removes old files and records once an hour.

    Args:
        catalog: The catalog.
        logs_dir: The drivers' output.

    """

    def __init__(self, catalog: Catalog, logs_dir: Path) -> None:
        self._catalog = catalog
        self._logs_dir = logs_dir
        self._due_ms = 0

    def remove(self, jobs: Sequence[str]) -> None:
        """Remove old files and records of these jobs, if an hour has passed since the last time.

        In this order: old generations, requests and rescale runs in the catalog; logs of generations that the catalog
        does not know; temporary folders of dead drivers.
        """
        now_ms = self._catalog.now_ms()
        if now_ms < self._due_ms:
            return
        self._due_ms = now_ms + _EVERY_MS
        for job in jobs:
            self._catalog.jobs.forget_history(job)
        known = {(job, each.generation) for job in jobs for each in self._catalog.generations.of(job)}
        for file in self._logs_dir.glob("*.log"):
            match = _LOG.fullmatch(file.name)
            if (
                match is not None
                and match["job"] in jobs
                and (match["job"], int(match["generation"])) not in known
                and file.stat().st_mtime * 1000 < now_ms - KEPT_MS
            ):
                file.unlink(missing_ok=True)
        abandoned = remove_abandoned()
        if abandoned:
            log.info("removed the temporary folders of dead drivers: %s", ", ".join(abandoned))
