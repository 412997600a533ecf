"""``start``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from statecore.catalog import Catalog, ClaimedSavepoint, Generations, JobRecord
from statecore.cli.lease import LeaseRenewal, alone
from statecore.cli.options import AsJson, CatalogUrl, JobName, absolute, unique_name
from statecore.cli.output import print_json, progress, utc
from statecore.errors import ConfigurationError
from statecore.operations.kinds import require_statecore_job, rescaled_running
from statecore.operations.resizing import check_workers
from statecore.queries.job.start import begin_from
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, fingerprint
from statecore.snapshot.resume_point import known_generation
from statecore.snapshot.settings import DriverSettings
from statecore.storage import open_store


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
    parallelism: Annotated[int | None, typer.Option(min=1, help="Number of subtasks; by default as before.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of workers; by default the cluster stays as it is.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask the supervisor to run a job, from its newest epoch if it has one.

    --from applies to every attempt to start until an epoch is committed after the savepoint.
    """
    if start_from is None and (roll_back or claim):
        raise typer.BadParameter("found --roll-back or --claim without --from; expected a savepoint; add --from")
    with (
        Catalog(catalog) as opened,
        alone(opened.leases, name) as owner,
        LeaseRenewal(opened.leases, name, owner) as renewal,
    ):
        job = opened.jobs.get(name)
        newest = opened.generations.newest(name) if job.desired_state == "running" else None
        check_workers(opened.clusters, job, workers)
        DriverSettings.from_conf(job.conf)
        _check_kind(job, start_from, claim, parallelism)
        if accept_lost_records:
            remedy = "set the option failOnDataLoss of its source to false until it runs"
            require_statecore_job(job, "--accept-lost-records", remedy)
        if start_from is not None or parallelism is not None:
            _require_stopped(opened.generations, job)
        runs = newest is not None and newest.state == "running" and opened.generations.is_alive(newest)
        wishes: dict[str, Any] = {"parallelism": parallelism}
        if start_from is not None:
            begin = _beginning_of_query if job.is_query else _beginning
            wishes |= begin(job, start_from, roll_back, claim)
        # A clone may have taken longer than the catalog was reachable.
        renewal.check()
        wanted = opened.jobs.set_desired(
            name,
            state="running",
            allow_non_restored_state=allow_non_restored_state,
            # A driver that runs has all that it wants.
            accept_lost_records=accept_lost_records and not runs,
            **wishes,
        )
        if job.cluster is not None and workers is not None:
            opened.clusters.set_desired_workers(job.cluster, workers)
        is_alive = opened.generations.is_alive(newest)
    if as_json:
        found = {"parallelism": wanted.parallelism, "from": wanted.start_from or start_from}
        print_json({"job": name, "desired": "running", **found})
        return
    if newest is not None and is_alive:
        since = f"generation {newest.generation}, since {utc(newest.started_ms)} UTC"
        print(f"{name} is {newest.state} already: {since}")
        return
    beginning = "" if start_from is None else f" from {wishes.get('start_from', start_from)}"
    print(f"{name} should run{beginning}; the supervisor starts its driver")


def _check_kind(job: JobRecord, start_from: str | None, claim: bool, parallelism: int | None) -> None:
    """Refuse what a query of Spark's own cannot begin with."""
    if claim:
        require_statecore_job(job, "--claim", "leave it out: the job gets a clone; drop the savepoint when you like")
    if start_from is not None and parallelism is not None:
        require_statecore_job(job, "--parallelism with --from", "leave it out: the number is that of the savepoint")
    if parallelism not in (None, job.parallelism):
        require_statecore_job(job, "--parallelism", rescaled_running(job, parallelism))


def _beginning(job: JobRecord, start_from: str, roll_back: bool, claim: bool) -> dict[str, Any]:
    """Return the catalog's fields for a start from a savepoint; refuse to lose epochs without --roll-back."""
    own = CheckpointStore.at(job.store)
    # A relative path is resolved here, against the directory of this shell.
    store, path, asked = own.open(absolute(start_from) if Path(start_from).exists() else start_from)
    if claim and asked.savepoint is None:
        raise ConfigurationError(
            f"found a checkpoint at {store.describe(path)}; expected a savepoint with --claim, because a checkpoint "
            f"belongs to job {asked.job!r}; leave --claim out, or take a savepoint"
        )
    newest = own.newest()
    if newest is not None and not roll_back and _epoch_of(asked) != _epoch_of(newest):
        raise ConfigurationError(
            f"found epoch {newest.epoch} of lineage {newest.lineage} committed in {job.store}; expected the job to "
            f"begin with {store.describe(path)}, epoch {asked.epoch} of lineage {asked.lineage} of job {asked.job!r}; "
            "add --roll-back to leave the newer epochs behind, or start without --from to resume from them"
        )
    return {
        "start_from": store.describe(path),
        "start_after": known_generation(own, newest, asked),
        "roll_back": roll_back,
        "claims_savepoint": ClaimedSavepoint(store.describe(path), fingerprint(asked)) if claim else None,
        "max_parallelism": asked.max_parallelism,
    }


def _beginning_of_query(job: JobRecord, start_from: str, roll_back: bool, _claim: bool) -> dict[str, Any]:
    """Return the catalog's fields for a query's start from a savepoint: a clone of it, which the query writes to."""
    # As for a job of statecore, a path that is not here is one in the job's store.
    is_elsewhere = "://" in start_from or Path(start_from).exists()
    given = start_from if is_elsewhere else f"{open_store(job.store).url}/{start_from}"
    with progress("cloning the savepoint") as report:
        made = begin_from(job, absolute(given), unique_name("from"), roll_back=roll_back, report=report)
    return {"checkpoint": made.url, "parallelism": made.partitions}


def _epoch_of(manifest: Manifest) -> tuple[str, int, int]:
    return manifest.job, manifest.lineage, manifest.epoch


def _require_stopped(generations: Generations, job: JobRecord) -> None:
    """Refuse options that a running driver ignores, and that the next one, perhaps much later, would adopt."""
    if job.desired_state == "running" or generations.is_alive(generations.newest(job.name)):
        raise ConfigurationError(
            f"found {job.name} running, or about to run; expected it stopped, because only a new driver adopts --from "
            f"and --parallelism; run `stop {job.name}` first, or change its parallelism with `rescale`"
        )
