"""``register``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from statecore.catalog import Catalog
from statecore.cli.lease import alone
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute, pairs
from statecore.cli.output import print_json
from statecore.model import default_max_parallelism

_NEW = "To be given for a new job."
_PAIRS = "Others stay; key= takes one away."


def register_job(
    name: JobName,
    catalog: CatalogUrl,
    artifact: Annotated[
        str | None, typer.Option(help=f"Job file, path or URL, which defines build(job). {_NEW}")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help=f"Where checkpoints and savepoints go: a path or a URL. {_NEW}")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help=f"Spark master, e.g. spark://host:7077 or local[2]. {_NEW}")
    ] = None,
    parallelism: Annotated[int | None, typer.Option(min=1, help=f"Number of subtasks. {_NEW}")] = None,
    max_parallelism: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of key groups, which only a rewritten savepoint changes; "
            "by default what the job has, and for a new one what Flink takes.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Cluster that grows and shrinks with the job; empty for none.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(help=f"key=value, read by the job file as job.settings; any number. {_PAIRS}"),
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option(help=f"key=value, Spark configuration; any number. {_PAIRS}")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a job to the catalog, or change its definition; what is not given stays.

    What runs is not changed before its next start.
    """
    confs, settings = pairs("--conf", conf), pairs("--setting", setting)
    asked = {
        "artifact": artifact if artifact is None or "://" in artifact else str(Path(artifact).resolve()),
        "store": None if store is None else absolute(store),
        "master_url": master,
        "parallelism": parallelism,
        "max_parallelism": max_parallelism,
    }
    given = {field: value for field, value in asked.items() if value is not None}
    with Catalog(catalog) as opened:
        opened.create_schema(only_if_new=True)
        if name not in [known.name for known in opened.jobs()]:
            job = opened.register_job(
                name,
                **_complete(name, given),
                cluster=cluster or None,
                conf=_with({}, confs),
                settings=_with({}, settings),
            )
        else:
            with alone(opened, name):
                known = opened.job(name)
                job = opened.register_job(
                    name,
                    **{field: getattr(known, field) for field in asked} | given,
                    cluster=known.cluster if cluster is None else cluster or None,
                    conf=_with(known.conf, confs),
                    settings=_with(known.settings, settings),
                )
    if as_json:
        print_json({"job": job.name, "parallelism": job.parallelism, "max_parallelism": job.max_parallelism})
        return
    print(f"registered {job.name}: parallelism {job.parallelism}, max parallelism {job.max_parallelism}")


def _complete(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return what a new job is registered with; what it cannot do without is wrong usage when it is missing."""
    needed = {"artifact": "--artifact", "store": "--store", "master_url": "--master", "parallelism": "--parallelism"}
    missing = [option for field, option in needed.items() if field not in given]
    if missing:
        raise typer.BadParameter(
            f"found no {', '.join(missing)} for {name!r}, which is not registered yet; expected them for a new job; "
            "give them, or correct the name"
        )
    return {"max_parallelism": default_max_parallelism(given["parallelism"]), **given}


def _with(known: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Return what is known with what is given in its place; a value that is given empty goes."""
    return {key: value for key, value in {**known, **given}.items() if given.get(key) != ""}
