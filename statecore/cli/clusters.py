"""``cluster``: the clusters that the supervisor resizes."""

from __future__ import annotations

from contextlib import nullcontext
from enum import StrEnum
from typing import Annotated

import typer
from rich.markup import escape

from statecore.catalog import Catalog, ClusterRecord, Jobs
from statecore.cli.lease import alone
from statecore.cli.options import AsJson, CatalogUrl, pairs
from statecore.cli.output import NOTHING, console, print_json, table
from statecore.cluster import cluster_settings

ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of the cluster.")]


class Kind(StrEnum):
    """What the workers are."""

    standalone = "standalone"
    ec2 = "ec2"


def register_cluster(
    name: ClusterName,
    catalog: CatalogUrl,
    kind: Annotated[
        Kind | None,
        typer.Option(
            help="standalone: processes on the supervisor's machine. ec2: instances of an Auto Scaling group. "
            "Required for a new cluster."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Number of workers. Required for a new cluster.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="key=value, a setting of the kind; repeatable. Others stay; key= removes one."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a cluster to the catalog, or change it; omitted options keep their values."""
    given = pairs("--setting", setting)
    with Catalog(catalog) as opened:
        opened.create_schema(only_if_new=True)
        known = next((each for each in opened.clusters.all() if each.name == name), None)
        if known is None and (kind is None or workers is None):
            raise typer.BadParameter(
                f"found no --kind or no --workers for {name!r}, which is not registered yet; expected them for a new "
                "cluster; add them, or correct the name"
            )
        chosen = kind.value if kind is not None else known.kind if known is not None else ""
        stay = known.settings if known is not None and known.kind == chosen else {}
        merged = {key: value for key, value in {**stay, **given}.items() if given.get(key) != ""}
        settings = cluster_settings(name, chosen, merged)
        size = workers if workers is not None else known.desired_workers if known is not None else 0
        owner = _job_of(opened.jobs, name)
        with nullcontext() if owner is None else alone(opened.leases, owner):
            cluster = opened.clusters.register(name, chosen, settings, size)
    if as_json:
        print_json(_told(cluster, owner))
        return
    print(f"registered cluster {cluster.name}: {cluster.kind}, {cluster.desired_workers} workers")


def list_clusters(catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print all clusters: kind, workers, the job that each belongs to, and what prevents its size."""
    with Catalog(catalog) as opened:
        clusters = [(each, _job_of(opened.jobs, each.name)) for each in opened.clusters.all()]
    if as_json:
        print_json([_told(cluster, job) for cluster, job in clusters])
        return
    made = table("cluster", "kind", "workers", "job", "host", "message")
    for cluster, job in clusters:
        workers = f"{cluster.ready_workers} ready of {cluster.desired_workers}"
        cells = (cluster.name, cluster.kind, workers, job or NOTHING, cluster.host or NOTHING, cluster.message or "")
        made.add_row(*map(escape, cells))
    console().print(made)


def remove_cluster(name: ClusterName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Remove a cluster that belongs to no job from the catalog; its workers stay."""
    with Catalog(catalog) as opened:
        removed = opened.clusters.remove(name)
    if as_json:
        print_json(_told(removed, None))
        return
    print(f"removed cluster {name}; {removed.ready_workers} workers stay")


def _job_of(jobs: Jobs, cluster: str) -> str | None:
    return next((job.name for job in jobs.all() if job.cluster == cluster), None)


def _told(cluster: ClusterRecord, job: str | None) -> dict[str, object]:
    """Return a cluster for programs; its settings are left out, because they may hold secrets."""
    return {
        "cluster": cluster.name,
        "kind": cluster.kind,
        "workers": {"ready": cluster.ready_workers, "desired": cluster.desired_workers},
        "job": job,
        "host": cluster.host,
        "message": cluster.message,
    }
