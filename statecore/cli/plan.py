"""``plan``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from statecore.catalog import Catalog
from statecore.cli.options import AsJson, OptionalCatalogUrl
from statecore.cli.output import console, print_json, progress, table
from statecore.operations import changes
from statecore.operations.downtime import Downtime, downtime_words, expected_downtime
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.plan import RescalePlan, newest_to_plan, plan_rescale


def plan(
    what: Annotated[
        str,
        typer.Argument(
            metavar="JOB|PATH", help="Name of a job, for its newest epoch; or a savepoint's folder or manifest file."
        ),
    ],
    parallelism: Annotated[int, typer.Option(min=1, help="New number of subtasks.")],
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="New number of key groups. Default: unchanged.")
    ] = None,
    catalog: OptionalCatalogUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what a rescale of a job or a savepoint would do; nothing is written or moved."""
    if catalog is not None and not _is_path(what):
        with Catalog(catalog) as opened:
            if opened.jobs.get(what).is_query:
                request = changes.RescaleRequest(job=what, parallelism=parallelism, max_parallelism=max_parallelism)
                _print_query(changes.plan(opened, request, check=False), as_json)
                return
    store, manifest = _manifest_of(what, catalog)
    with progress("counting rows") as report:
        planned = plan_rescale(store, manifest, parallelism, max_parallelism, progress=report)
    downtime = _downtime(what, planned, catalog)
    if as_json:
        told = {"rows": planned.rows, "skew": planned.skew, "downtime_ms": downtime and downtime.median_ms}
        print_json({**msgspec.to_builtins(planned), **told})
    else:
        _print(planned, downtime)


def _manifest_of(what: str, catalog: str | None) -> tuple[CheckpointStore, Manifest]:
    """Return the manifest that the argument names, and its store."""
    if catalog is None or _is_path(what):
        store, _, manifest = open_savepoint(what)
        return store, manifest
    with Catalog(catalog) as opened:
        store = CheckpointStore.at(opened.jobs.get(what).store)
    return store, newest_to_plan(store, what)


def _print_query(planned: changes.Plan, as_json: bool) -> None:
    """Print the plan for a query of Spark's own."""
    assert planned.query is not None
    downtime, shown = planned.downtime, planned.query
    if as_json:
        sizes = {"from_parallelism": shown.partitions, "to_parallelism": planned.request.parallelism}
        told = {"method": planned.method, "downtime_ms": downtime and downtime.median_ms, "refusal": shown.refusal}
        print_json({"job": planned.job.name, **sizes, **told, "operators": shown.operators})
        return
    print(f"{planned.job.name}: {shown.partitions} -> {planned.request.parallelism} state partitions, {planned.method}")
    for line in planned.query_lines():
        print(line)
    print(f"expected downtime: {downtime_words(planned.method, downtime)}")


def _is_path(what: str) -> bool:
    return "/" in what or Path(what).exists()


def _downtime(what: str, planned: RescalePlan, catalog: str | None) -> Downtime | None:
    """Return the downtime of the job's earlier rescales; None for a savepoint, or without any."""
    if catalog is None or _is_path(what):
        return None
    with Catalog(catalog) as opened:
        return expected_downtime(opened.runs.of(planned.job), planned.method)


def _print(planned: RescalePlan, downtime: Downtime | None) -> None:
    print(
        f"{planned.job}, epoch {planned.epoch} of lineage {planned.lineage}: parallelism {planned.from_parallelism} -> "
        f"{planned.to_parallelism}, max parallelism {planned.from_max_parallelism} -> {planned.to_max_parallelism}, "
        f"{planned.method}; {planned.bytes_written:,} bytes to write, skew {planned.skew:.2f}"
    )
    for operator in planned.operators:
        print(f"operator {operator.uid}: {operator.rows:,} rows of state, {operator.bytes:,} bytes")
    if downtime is not None:
        print(f"expected downtime: {downtime_words(planned.method, downtime)}")
    for uid, fixed in planned.fixed:
        print(f"operator {uid} keeps its own parallelism, {fixed}")
    made = table("subtask", "key groups", "files", "rows", "bytes", "of the average")
    average = planned.rows / len(planned.subtasks) or 1
    for each in planned.subtasks:
        start, end = each.key_groups
        counts = (f"{count:,}" for count in (each.files, each.rows, each.bytes))
        made.add_row(str(each.subtask), f"{start}–{end}", *counts, f"{each.rows / average:.0%}")
    console().print(made)
