"""``rescale``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from statecore.catalog import Catalog, JobRecord, RescaleMethod
from statecore.cli.driver import live_driver
from statecore.cli.lease import held, shell_run
from statecore.cli.options import AsJson, CatalogUrl, JobName
from statecore.cli.output import note, print_json
from statecore.cli.rescale_steps import Rescale, Wish
from statecore.errors import ConfigurationError
from statecore.operations.downtime import downtime_words, expected_downtime
from statecore.operations.resizing import check_workers


class Method(StrEnum):
    """How state gets to its new subtasks."""

    live = "live"
    by_reference = "by_reference"
    rewrite = "rewrite"


def rescale(
    name: JobName,
    catalog: CatalogUrl,
    parallelism: Annotated[int, typer.Option(min=1, help="Number of subtasks to be.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers to be; by default the cluster stays as it is.")
    ] = None,
    method: Annotated[
        Method,
        typer.Option(
            help="live: between two epochs, the driver runs on. by_reference: stop with a savepoint, start from it. "
            "rewrite: the same, and a Spark job lays all state out anew in between.",
        ),
    ] = Method.live,
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Number of key groups to be; with --method rewrite alone.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Why, for whoever looks at the run.")] = "by hand",
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout",
            help="Seconds that each step may take; more where epochs are long, or much waits, "
            "and two hours for a rewrite.",
        ),
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Give a running job another parallelism, and wait until it keeps up at it.

    It keeps up when epochs commit, and as fast as before for its size, or what waits becomes less. When a step fails,
    the job goes back to its old size and goes on from its newest epoch. Operators whose parallelism the job file fixes
    keep it. A job that is stopped takes another parallelism with `start`.
    """
    if max_parallelism is not None and method is not Method.rewrite:
        raise typer.BadParameter(f"found --max-parallelism with the method {method}; it takes --method rewrite")
    with Catalog(catalog) as opened:
        job = opened.job(name)
        _check(job, parallelism, max_parallelism, workers)
        live_driver(opened, name, "to take it up", f"run `start {name} --parallelism {parallelism}`")
        run = shell_run()
        wish = Wish(parallelism, workers, max_parallelism, reason, timeout_s)
        how: RescaleMethod = method.value
        if how != "live":
            downtime = expected_downtime(opened.rescale_runs(name), how)
            note(f"{name} will stand still; expected downtime: {downtime_words(how, downtime)}")
        with held(opened, name, run) as lease:
            told = Rescale(opened, job, lease, run, wish).carry_out(how)
    if as_json:
        print_json({"job": name, "run": run, "method": method, "from": job.parallelism, "to": parallelism})
    else:
        print(told)


def _check(job: JobRecord, parallelism: int, max_parallelism: int | None, workers: int | None) -> None:
    """Refuse before anything is stopped."""
    limit = job.max_parallelism if max_parallelism is None else max_parallelism
    if parallelism > limit:
        raise ConfigurationError(
            f"found parallelism {parallelism} for {job.name}; expected at most {limit}, its max parallelism; "
            "choose less, or say --method rewrite --max-parallelism"
        )
    check_workers(job, workers)
