"""Resizes clusters to their desired size, and reports their present size."""

from __future__ import annotations

import logging
import socket
import time

from statecore.catalog import ClusterRecord, Clusters
from statecore.cluster import Cluster, ClusterSize, cluster_for
from statecore.errors import ClusterBusyError, ClusterError

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
"""Errors that pass sooner are not reported: throttling, another change of the group, a master that restarts."""


class ClusterTending:
    """Takes one step with a cluster at a time; different clusters may be handled at once."""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters
        self._host = socket.gethostname()
        self._opened: dict[str, tuple[ClusterRecord, Cluster]] = {}
        self._busy_since_s: dict[str, float] = {}
        self._empty_since_s: dict[str, float] = {}

    def tend(self, name: str) -> None:
        """Take the next step towards a cluster's desired size, and report its size or the error."""
        # Read now, because the call may have waited for its turn.
        record = self._clusters.get(name)
        size, trouble = self._step(record)
        message = self._told(record, trouble)
        if size is None:
            # An error that may pass does not change the reported size.
            known = message is None
            size = ClusterSize(
                running=record.desired_workers,
                ready=record.ready_workers if known else 0,
                smallest=record.min_workers if known else None,
                largest=record.max_workers if known else None,
            )
        if message is not None and message != record.message:
            log.error("cluster %r: %s", record.name, message)
        if size.ready != record.ready_workers:
            log.info("cluster %r: %d of %d workers ready", record.name, size.ready, record.desired_workers)
        self._clusters.report(
            record.name,
            ready_workers=size.ready,
            min_workers=size.smallest,
            max_workers=size.largest,
            message=message,
        )

    def _step(self, record: ClusterRecord) -> tuple[ClusterSize | None, ClusterError | OSError | None]:
        """Resize a cluster; return its size, None when unknown, and the first error."""
        trouble: ClusterError | OSError | None = None
        try:
            cluster = self._cluster(record)
            try:
                if cluster.is_local:
                    self._claim(record, cluster)
                cluster.resize(record.desired_workers)
            except (ClusterError, OSError) as error:
                # Existing workers stay even if, for example, a quota prevents the resize.
                trouble = error
            return cluster.size(), trouble
        except (ClusterError, OSError) as error:
            return None, trouble or error

    def _claim(self, record: ClusterRecord, cluster: Cluster) -> None:
        """Refuse a cluster whose worker processes run on another host: starting them here would double them.

        Once none of them has been ready for a while, their host is given up, and this one starts its own.
        """
        host = self._clusters.claim(record.name, self._host).host
        if host == self._host:
            return
        if cluster.size().ready > 0:
            self._empty_since_s.pop(record.name, None)
        elif time.monotonic() - self._empty_since_s.setdefault(record.name, time.monotonic()) >= PATIENCE_S:
            log.warning("cluster %r: no worker of host %s is left; this host starts its own", record.name, host)
            self._clusters.claim(record.name, self._host, replacing=host)
            return
        raise ClusterError(
            f"found the workers of cluster {record.name!r} on host {host}; expected them on {self._host}, where the "
            f"supervisor runs; run the supervisor on {host}, or end the workers there: {PATIENCE_S:g} s later they "
            "start here"
        )

    def _told(self, record: ClusterRecord, trouble: ClusterError | OSError | None) -> str | None:
        """Return the error to report; None without one, and while it may pass by itself."""
        if not isinstance(trouble, ClusterBusyError):
            self._busy_since_s.pop(record.name, None)
            return None if trouble is None else str(trouble)
        since_s = self._busy_since_s.setdefault(record.name, time.monotonic())
        if time.monotonic() - since_s < PATIENCE_S:
            log.info("cluster %r: waiting: %s", record.name, trouble)
            return None
        return str(trouble)

    def _cluster(self, record: ClusterRecord) -> Cluster:
        known = self._opened.get(record.name)
        if known is not None and (known[0].kind, known[0].settings) == (record.kind, record.settings):
            return known[1]
        cluster = cluster_for(record)
        if known is not None:
            known[1].close()
        self._opened[record.name] = (record, cluster)
        return cluster
