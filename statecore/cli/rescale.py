"""``rescale``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from statecore.catalog import Catalog
from statecore.cli.abort import abort_rescale
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import note, print_json
from statecore.cli.steps import carry_out, shell_change
from statecore.operations.changes import REWRITE_TIMEOUT_S, RescaleRequest, require_free, rescale_steps
from statecore.operations.downtime import downtime_words, expected_downtime


class Method(StrEnum):
    """The rescale method."""

    auto = "auto"
    live = "live"
    by_reference = "by_reference"
    rewrite = "rewrite"


def rescale(
    name: JobName,
    catalog: CatalogUrl,
    parallelism: Annotated[int | None, typer.Option(min=1, help="Number of subtasks; required.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers; by default the cluster stays as it is.")
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="auto: live if a driver runs, else by_reference. live: between two epochs of the running driver. "
            "by_reference: stop with a savepoint, start from it. rewrite: the same, but a Spark job rewrites all "
            "state in between.",
        ),
    ] = Method.auto,
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Number of key groups; only with --method rewrite.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for the history.")] = "by hand",
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            help="Seconds that each step may take; long epochs, a large backlog and a rewrite get more.",
        ),
    ] = 600.0,
    abort: Annotated[
        bool,
        typer.Option("--abort", help="End the run that changes the job now, from Airflow or a shell; roll it back."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Give a running job another parallelism, and wait until it keeps up.

    A job keeps up when it commits epochs and processes rows as fast as before for its size, or its backlog shrinks.
    If a step fails, the job returns to its old size and resumes from its newest epoch. Operators whose parallelism
    the job file fixes keep it. For a stopped job, use `start --parallelism`.
    """
    if abort:
        if parallelism is not None:
            raise typer.BadParameter("found --abort with --parallelism; expected one of them")
        abort_rescale(name, catalog, timeout_s, as_json=as_json)
        return
    if parallelism is None:
        raise typer.BadParameter("found neither --parallelism nor --abort; expected one of them")
    if max_parallelism is not None and method is not Method.rewrite:
        raise typer.BadParameter(f"found --max-parallelism with the method {method}; it needs --method rewrite")
    request = RescaleRequest(
        job=name,
        parallelism=parallelism,
        workers=workers,
        method=method.value,
        max_parallelism=max_parallelism,
        reason=reason,
    )
    with Catalog(catalog) as opened:
        change = shell_change(opened, name)
        # First: while another run changes the job, its state must not be the reason for a refusal.
        require_free(opened, name, change.run_id)
        job, resolved = request.checked(opened), request.resolved(opened)
        downtime = downtime_words(resolved, expected_downtime(opened.runs.of(name), resolved))
        note(f"{name}: method {resolved}; expected downtime: {downtime}")
        results = carry_out(rescale_steps(change, request, max(timeout_s, REWRITE_TIMEOUT_S)), timeout_s)
        run = opened.runs.get(change.run_id)
    if as_json:
        sizes = {"from": job.parallelism, "to": parallelism}
        print_json({"job": name, "run": change.run_id, "method": run.method, **sizes})
        return
    savepoint = results.get("stop_with_savepoint")
    stopped = f"; stopped with savepoint {savepoint}" if savepoint else ""
    print(f"{name}: parallelism {job.parallelism} -> {parallelism}, {run.method}{stopped}")
