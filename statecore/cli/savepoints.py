"""``savepoint create`` and ``savepoint list``."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape

from statecore.catalog import Catalog, JobRecord
from statecore.cli.copying import watched
from statecore.cli.driver import answer, live_driver
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute, unique_name
from statecore.cli.output import NOTHING, console, print_json, table, telling, utc
from statecore.operations.kinds import PROGRAMS
from statecore.operations.status.finding import span
from statecore.snapshot.checkpoints import CheckpointStore


def create_savepoint(
    name: JobName,
    catalog: CatalogUrl,
    savepoint: Annotated[str | None, typer.Option("--name", help="Name of the savepoint. Default: the time.")] = None,
    reason: Annotated[str, typer.Option(help="Why it was taken.")] = "by hand",
    copy_to: Annotated[
        str | None,
        typer.Option("--copy-to", help="Folder for a self-contained copy: a path or a URL. Default: no copy."),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the savepoint.")] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Take a savepoint of a running job and print its path; the job keeps running."""
    arguments = {"name": savepoint or unique_name("manual"), "reason": reason}
    path = CheckpointStore.savepoint_path(arguments["name"])
    if copy_to is not None:
        arguments["target"] = absolute(copy_to)
    with Catalog(catalog) as opened:
        job = opened.jobs.get(name)
        remedy = (
            f"start the job, or copy its newest epoch, which is kept in {job.store}/manifests, with "
            f"spark-submit {PROGRAMS / 'copy_savepoint.py'}"
        )
        live_driver(opened.generations, name, "to take a savepoint", remedy)
        # The key is unique: a second savepoint of the same name is a new request, which the driver refuses.
        request = opened.requests.send(name, "savepoint", arguments, f"{name}/{uuid.uuid4().hex}")
        with _shown(job, path, arguments.get("target")):
            result = answer(opened, request, timeout_s, f"no savepoint of {name} was taken")
    if as_json:
        print_json({"job": name, "savepoint": result["url"], "lineage": result["lineage"], "epoch": result["epoch"]})
        return
    print(result["url"])


def list_savepoints(name: JobName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print the savepoints of a job, newest first."""
    with Catalog(catalog) as opened:
        opened.jobs.get(name)
        savepoints = opened.savepoints.of(name)
    if as_json:
        print_json(savepoints)
        return
    made = table("created (UTC)", "lineage", "epoch", "parallelism", "bytes", "took", "reason", "path")
    for each in savepoints:
        numbers = map(str, (each.lineage, each.epoch, each.parallelism))
        size = NOTHING if each.bytes is None else decimal(each.bytes)
        took = NOTHING if each.took_ms is None else span(each.took_ms)
        made.add_row(utc(each.created_ms), *numbers, size, took, escape(each.reason), escape(each.path))
    console().print(made)


@contextmanager
def _shown(job: JobRecord, path: str, target: str | None) -> Iterator[None]:
    if target is None:
        with telling(f"{job.name}: pinning the newest epoch"):
            yield
    else:
        with watched(CheckpointStore.at(job.store), path, target):
            yield
