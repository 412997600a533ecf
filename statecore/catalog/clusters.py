"""Clusters: desired and actual size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, or_, select, update

from statecore.catalog import tables
from statecore.catalog.queries import check_name, get_cluster, lock_cluster, one
from statecore.catalog.records import ClusterRecord
from statecore.catalog.transactions import Transactions, again_after_conflict
from statecore.errors import ConfigurationError

clusters = tables.clusters


class Clusters:
    """Clusters; methods on one cluster raise UnknownClusterError when it is not registered."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    @again_after_conflict
    def register(self, name: str, kind: str, settings: Mapping[str, Any], workers: int) -> ClusterRecord:
        """Add a cluster or update an existing one; ``workers`` becomes the desired size.

        The cluster gives up its host: a supervisor on another one may then ``claim`` it.
        """
        check_name("cluster", name)
        _check_workers(name, workers)
        values: dict[str, Any] = {"kind": kind, "settings": dict(settings), "desired_workers": workers}
        values["host"] = None
        with self._transactions.write() as connection:
            values["updated_ms"] = self._transactions.now_ms_in(connection)
            if one(connection, clusters, clusters.c.name == name, kind=ClusterRecord) is None:
                connection.execute(insert(clusters).values(name=name, ready_workers=0, **values))
            else:
                connection.execute(update(clusters).where(clusters.c.name == name).values(**values))
            return get_cluster(connection, name)

    def set_desired_workers(self, name: str, workers: int) -> ClusterRecord:
        """Record the desired size; raise ConfigurationError for a negative one."""
        _check_workers(name, workers)
        return self._update(name, {"desired_workers": workers})

    def report(
        self,
        name: str,
        *,
        ready_workers: int,
        min_workers: int | None = None,
        max_workers: int | None = None,
        message: str | None = None,
    ) -> ClusterRecord:
        """Record the actual size, its limits, and a message: why the desired size is not reached."""
        seen = {"ready_workers": ready_workers, "min_workers": min_workers, "max_workers": max_workers}
        return self._update(name, {**seen, "message": message})

    def claim(self, name: str, host: str, *, replacing: str | None = None) -> ClusterRecord:
        """Record the host that runs the workers, unless it is another one already, other than ``replacing``."""
        with self._transactions.write() as connection:
            free = or_(clusters.c.host.is_(None), clusters.c.host == replacing)
            connection.execute(update(clusters).where(clusters.c.name == name, free).values(host=host))
            return get_cluster(connection, name)

    def remove(self, name: str) -> ClusterRecord:
        """Forget a cluster; its workers stay. Raise ConfigurationError if it belongs to a job."""
        with self._transactions.write() as connection:
            cluster = lock_cluster(connection, name)
            job = connection.execute(select(tables.jobs.c.name).where(tables.jobs.c.cluster == name)).scalar()
            if job is not None:
                raise ConfigurationError(
                    f"found cluster {name!r} in use by job {job!r}; expected a cluster of no job; give it up first: "
                    f"`statecore register {job} --cluster=`"
                )
            connection.execute(delete(clusters).where(clusters.c.name == name))
            return cluster

    def get(self, name: str) -> ClusterRecord:
        """Return a cluster."""
        with self._transactions.read() as connection:
            return get_cluster(connection, name)

    def all(self) -> list[ClusterRecord]:
        """Return all clusters by name."""
        return self._transactions.all(select(clusters).order_by(clusters.c.name), ClusterRecord)

    def _update(self, name: str, values: dict[str, Any]) -> ClusterRecord:
        with self._transactions.write() as connection:
            changes = {**values, "updated_ms": self._transactions.now_ms_in(connection)}
            connection.execute(update(clusters).where(clusters.c.name == name).values(**changes))
            return get_cluster(connection, name)


def _check_workers(name: str, workers: int) -> None:
    if workers < 0:
        raise ConfigurationError(f"cluster {name!r}: found {workers} workers; expected 0 or more; choose another size")
