"""Clusters: desired and actual size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from statecore.catalog import tables
from statecore.catalog.queries import Queries, check_name, one, records, unknown_cluster
from statecore.catalog.records import ClusterRecord
from statecore.errors import ConfigurationError

clusters = tables.clusters


class Clusters(Queries):
    """Queries on clusters."""

    def register_cluster(self, name: str, kind: str, settings: Mapping[str, Any], workers: int) -> ClusterRecord:
        """Add a cluster or update an existing one; ``workers`` becomes the desired size.

        Raises:
            ConfigurationError: The name cannot be part of a file name, or the size is negative.

        """
        check_name("cluster", name)
        _check_workers(name, workers)
        values = {"kind": kind, "settings": dict(settings), "desired_workers": workers}
        try:
            return self._upsert_cluster(name, values)
        except IntegrityError:
            # Another process inserted it after we looked (PostgreSQL only); now there is a row to update.
            return self._upsert_cluster(name, values)

    def _upsert_cluster(self, name: str, values: dict[str, Any]) -> ClusterRecord:
        values = {**values, "updated_ms": self._clock.now_ms()}
        with self._database.write() as connection:
            if one(connection, clusters, clusters.c.name == name, kind=ClusterRecord) is None:
                connection.execute(insert(clusters).values(name=name, ready_workers=0, **values))
            else:
                connection.execute(update(clusters).where(clusters.c.name == name).values(**values))
            found = one(connection, clusters, clusters.c.name == name, kind=ClusterRecord)
            assert found is not None
            return found

    def set_desired_workers(self, name: str, workers: int) -> ClusterRecord:
        """Record the desired size.

        Raises:
            UnknownClusterError: The cluster is not registered.
            ConfigurationError: The size is negative.

        """
        _check_workers(name, workers)
        return self._update(name, {"desired_workers": workers})

    def report_cluster(self, name: str, *, ready_workers: int, message: str | None = None) -> ClusterRecord:
        """Record the actual size, and what prevents the desired one.

        Raises:
            UnknownClusterError: The cluster is not registered.

        """
        return self._update(name, {"ready_workers": ready_workers, "message": message})

    def cluster(self, name: str) -> ClusterRecord:
        """Return a cluster.

        Raises:
            UnknownClusterError: It is not registered; the message lists those that are.

        """
        with self._database.read() as connection:
            found = one(connection, clusters, clusters.c.name == name, kind=ClusterRecord)
            if found is None:
                raise unknown_cluster(connection, name)
            return found

    def clusters(self) -> list[ClusterRecord]:
        """Return all clusters by name."""
        with self._database.read() as connection:
            rows = connection.execute(select(clusters).order_by(clusters.c.name)).all()
            return records(rows, ClusterRecord)

    def _update(self, name: str, values: dict[str, Any]) -> ClusterRecord:
        changes = {**values, "updated_ms": self._clock.now_ms()}
        with self._database.write() as connection:
            connection.execute(update(clusters).where(clusters.c.name == name).values(**changes))
            found = one(connection, clusters, clusters.c.name == name, kind=ClusterRecord)
            if found is None:
                raise unknown_cluster(connection, name)
            return found


def _check_workers(name: str, workers: int) -> None:
    if workers < 0:
        raise ConfigurationError(f"cluster {name!r}: {workers} workers wanted; expected 0 or more; choose another size")
