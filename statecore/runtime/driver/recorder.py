"""Writes the figures of committed epochs to the catalog."""

from __future__ import annotations

import logging

from statecore.catalog import Catalog
from statecore.runtime.backlog.monitor import BacklogMonitor
from statecore.runtime.epoch.metrics import record_epoch
from statecore.runtime.epoch.report import EpochReport

log = logging.getLogger(__name__)


class EpochRecorder:
    """Records each epoch with the backlog after it.

    Args:
        catalog: Takes the figures.
        backlog: Measures the sources.

    """

    def __init__(self, catalog: Catalog, backlog: BacklogMonitor) -> None:
        self._catalog = catalog
        self._backlog = backlog

    def committed(self, report: EpochReport) -> None:
        """Record an epoch; the figures are for people, so a failure is logged and the stream goes on."""
        try:
            record_epoch(self._catalog, report, self._backlog.committed(report.manifest))
        except Exception:
            log.exception("the figures of epoch %d could not be recorded", report.manifest.epoch)
