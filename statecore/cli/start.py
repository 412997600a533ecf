"""``start``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from statecore.catalog import Catalog, Generations, JobRecord
from statecore.cli.lease import LeaseRenewal, alone
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute, unique_name
from statecore.cli.output import print_json, progress, utc
from statecore.errors import ConfigurationError
from statecore.operations.kinds import kind_of, rescaled_running
from statecore.operations.resizing import check_workers
from statecore.snapshot.settings import DriverSettings


def start_job(
    name: JobName,
    catalog: CatalogUrl,
    allow_non_restored_state: Annotated[
        bool,
        typer.Option(
            "--allow-non-restored-state",
            help="Start although the job file no longer declares some state; without this it is refused.",
        ),
    ] = False,
    accept_lost_records: Annotated[
        bool,
        typer.Option(
            "--accept-lost-records",
            help="Go on, this once, without records that Kafka no longer has; without this it is refused.",
        ),
    ] = False,
    start_from: Annotated[
        str | None, typer.Option("--from", help="Savepoint to start from: a path in the job's store, a path or a URL.")
    ] = None,
    roll_back: Annotated[
        bool,
        typer.Option(
            "--roll-back", help="Start from it although epochs were committed since; published output is not withdrawn."
        ),
    ] = False,
    claim: Annotated[
        bool, typer.Option("--claim", help="Own the savepoint: drop it once the job no longer needs it.")
    ] = False,
    skip_unpublished: Annotated[
        bool,
        typer.Option(
            "--skip-unpublished",
            help="Start from it although sinks have not published rows of its epoch; without this it is refused.",
        ),
    ] = False,
    parallelism: Annotated[int | None, typer.Option(min=1, help="Number of subtasks; by default as before.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers; by default the cluster stays as it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the supervisor to run a job, from its newest epoch if it has one.

    --from applies to every attempt to start until an epoch is committed after the savepoint.
    """
    if start_from is None and (roll_back or claim or skip_unpublished):
        raise typer.BadParameter(
            "found --roll-back, --claim or --skip-unpublished without --from; expected a savepoint; add --from"
        )
    with (
        Catalog(catalog) as opened,
        alone(opened.leases, name) as owner,
        LeaseRenewal(opened.leases, name, owner) as renewal,
    ):
        job = opened.jobs.get(name)
        last = opened.generations.newest(name)
        newest = last if job.desired_state == "running" else None
        check_workers(opened.clusters, job, workers)
        DriverSettings.from_conf(job.conf)
        _check_kind(job, start_from, claim, skip_unpublished, parallelism)
        if accept_lost_records:
            remedy = "set the option failOnDataLoss of its source to false until it runs"
            kind_of(job).require_statecore_job("--accept-lost-records", remedy)
        if start_from is not None or parallelism is not None:
            _require_stopped(opened.generations, job)
        runs = newest is not None and newest.state == "running" and opened.generations.is_alive(newest)
        wishes: dict[str, Any] = {"parallelism": parallelism}
        if start_from is not None:
            with progress("cloning the savepoint") as report:
                wishes |= kind_of(job).beginning(
                    absolute(start_from) if Path(start_from).exists() else start_from,
                    unique_name("from"),
                    0 if last is None else last.generation,
                    roll_back=roll_back,
                    claim=claim,
                    skip_unpublished=skip_unpublished,
                    report=report,
                )
        # The lease may have been lost while the savepoint was cloned.
        renewal.check()
        wanted = opened.jobs.set_desired(
            name,
            state="running",
            allow_non_restored_state=allow_non_restored_state,
            # A running driver has read its options already.
            accept_lost_records=accept_lost_records and not runs,
            **wishes,
        )
        if job.cluster is not None and workers is not None:
            opened.clusters.set_desired_workers(job.cluster, workers)
        is_alive = opened.generations.is_alive(newest)
    if as_json:
        fields = {"parallelism": wanted.parallelism, "from": wanted.start_from or start_from}
        print_json({"job": name, "desired": "running", **fields})
        return
    if newest is not None and is_alive:
        since = f"generation {newest.generation}, since {utc(newest.started_ms)} UTC"
        print(f"{name} is {newest.state} already: {since}")
        return
    beginning = "" if start_from is None else f" from {wishes.get('start_from', start_from)}"
    print(f"{name} should run{beginning}; the supervisor starts its driver")


def _check_kind(
    job: JobRecord, start_from: str | None, claim: bool, skip_unpublished: bool, parallelism: int | None
) -> None:
    """Refuse options that a query of Spark's own does not support."""
    kind = kind_of(job)
    if claim:
        kind.require_statecore_job("--claim", "leave it out: the job gets a clone; drop the savepoint when you like")
    if skip_unpublished:
        kind.require_statecore_job(
            "--skip-unpublished", "leave it out: a query commits a batch after its sink has the rows"
        )
    if start_from is not None and parallelism is not None:
        kind.require_statecore_job("--parallelism with --from", "leave it out: the number is that of the savepoint")
    if parallelism not in (None, job.parallelism):
        kind.require_statecore_job("--parallelism", rescaled_running(job, parallelism))


def _require_stopped(generations: Generations, job: JobRecord) -> None:
    """Refuse options that a running driver ignores and the next one, perhaps much later, would adopt."""
    if job.desired_state == "running" or generations.is_alive(generations.newest(job.name)):
        raise ConfigurationError(
            f"found {job.name} running, or about to run; expected it stopped, because only a new driver adopts --from "
            f"and --parallelism; run `stop {job.name}` first, or change its parallelism with `rescale`"
        )
