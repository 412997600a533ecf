"""``register``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute, pairs
from statecore.cli.output import print_json
from statecore.errors import UnknownJobError
from statecore.model import default_max_parallelism


def register_job(
    name: JobName,
    catalog: CatalogUrl,
    artifact: Annotated[str, typer.Option(help="Job file, path or URL, which defines build(job).")],
    store: Annotated[str, typer.Option(help="Where checkpoints and savepoints go: a path or a URL.")],
    master: Annotated[str, typer.Option(help="Spark master, e.g. spark://host:7077 or local[2].")],
    parallelism: Annotated[int, typer.Option(min=1, help="Number of subtasks.")],
    max_parallelism: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of key groups, which only a rewritten savepoint changes; "
            "by default what the job has, and for a new one what Flink takes.",
        ),
    ] = None,
    cluster: Annotated[str | None, typer.Option(help="Cluster that grows and shrinks with the job.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="key=value, read by the job file as job.settings; any number.")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(help="key=value, Spark configuration; any number.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add a job to the catalog, or change its definition; what runs is not changed before its next start."""
    with Catalog(catalog) as opened:
        opened.create_schema(only_if_new=True)
        job = opened.register_job(
            name,
            artifact=artifact if "://" in artifact else str(Path(artifact).resolve()),
            store=absolute(store),
            master_url=master,
            cluster=cluster,
            conf=pairs("--conf", conf),
            settings=pairs("--setting", setting),
            parallelism=parallelism,
            max_parallelism=max_parallelism or _max_parallelism(opened, name, parallelism),
        )
    if as_json:
        print_json({"job": job.name, "parallelism": job.parallelism, "max_parallelism": job.max_parallelism})
        return
    print(f"registered {job.name}: parallelism {job.parallelism}, max parallelism {job.max_parallelism}")


def _max_parallelism(catalog: Catalog, name: str, parallelism: int) -> int:
    try:
        return catalog.job(name).max_parallelism
    except UnknownJobError:
        return default_max_parallelism(parallelism)
