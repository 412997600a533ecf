"""``python -m statecore``: jobs, savepoints and the supervisor from a shell.

Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 usage. What was asked for is on stdout, everything
else on stderr, so that a script may take ``$(python -m statecore savepoint create …)`` for a path.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from statecore.catalog import Catalog, JobRecord, RequestRecord, SourceBacklog, over_all
from statecore.catalog.rebuild import Rebuilt, rebuild_job
from statecore.errors import ConfigurationError, MissingFileError, RequestFailedError, StatecoreError, UnknownJobError
from statecore.model import StateKind, default_max_parallelism
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest, OperatorState
from statecore.snapshot.plan import plan_rescale
from statecore.snapshot.savepoints import drop_savepoint
from statecore.snapshot.verify import verify as verify_files
from statecore.supervisor import run_supervisor

app = typer.Typer(
    help="Savepoints and rescaling for stateful PySpark streaming.",
    no_args_is_help=True,
    # They would print the values of variables, a database's password among them.
    pretty_exceptions_enable=False,
)
savepoint_app = typer.Typer(help="Take savepoints, look at them, check and drop them.", no_args_is_help=True)
job_app = typer.Typer(help="Register, start and stop jobs.", no_args_is_help=True)
catalog_app = typer.Typer(help="Look after the catalog.", no_args_is_help=True)
app.add_typer(savepoint_app, name="savepoint")
app.add_typer(job_app, name="job")
app.add_typer(catalog_app, name="catalog")

CatalogUrl = Annotated[
    str, typer.Option("--catalog", envvar="STATECORE_CATALOG", help="URL of the catalog, e.g. sqlite:///catalog.db")
]
SavepointPath = Annotated[str, typer.Argument(help="A savepoint's folder, or a manifest file: a path or a URL.")]
JobName = Annotated[str, typer.Argument(help="Name of the job.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on one line.")]

_POLL_S = 0.5
_NUMBERS = {
    "subtask", "key groups", "files", "rows", "bytes", "elements", "lineage", "epoch", "parallelism", "rows in all",
    "of the average", "rows/s", "lag",
}  # fmt: skip


def main() -> None:
    """Run the command line; a refusal is one line on stderr and exit code 1."""
    try:
        app()
    except StatecoreError as error:
        _complain(error)
        sys.exit(1)


@savepoint_app.command("show")
def show_savepoint(path: SavepointPath, as_json: AsJson = False) -> None:
    """Print what a savepoint or checkpoint holds."""
    store, manifest_path = open_savepoint(path)
    manifest = store.manifest(manifest_path)
    if as_json:
        _print_json(_facts(store.describe(manifest_path), manifest))
        return
    console = _console()
    console.print(_summary(manifest))
    for operator in manifest.operators:
        key = ", ".join(f"{field.name} {field.type}" for field in operator.key_fields)
        table = _table("subtask", "state", "key groups", "files", "rows", "bytes")
        table.title = escape(f"operator {operator.uid}, key ({key})")
        for share in _shares(operator):
            table.add_row(
                str(share.subtask),
                escape(f"{share.state} ({share.scope} {share.kind} of {share.type})"),
                ", ".join(f"{start}–{end}" for start, end in share.key_groups),
                *map(str, (share.files, share.rows, share.bytes)),
            )
        console.print(table)
    if manifest.sources:
        table = _table("source", "elements", "positions")
        table.title = "sources, as operator list state"
        for source in manifest.sources:
            table.add_row(escape(source.name), str(len(source.positions)), escape(", ".join(source.positions)))
        console.print(table)


@savepoint_app.command("create")
def create_savepoint(
    name: JobName,
    catalog: CatalogUrl,
    savepoint: Annotated[str | None, typer.Option("--name", help="Name of the savepoint; by default the time.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for whoever finds it.")] = "by hand",
    copy_to: Annotated[
        str | None,
        typer.Option("--copy-to", help="Folder, path or URL, for a self-contained copy; by default nothing is copied."),
    ] = None,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for it.")] = 600.0,
) -> None:
    """Take a savepoint of a running job, which runs on, and print where it is."""
    arguments = {"name": savepoint or _savepoint_name(), "reason": reason}
    CheckpointStore.savepoint_path(arguments["name"])
    if copy_to is not None:
        arguments["target"] = _absolute(copy_to)
    with Catalog(catalog) as opened:
        job = opened.job(name)
        if not opened.is_alive(opened.newest_generation(name)):
            raise RequestFailedError(
                f"found no live driver of {name}; expected one to take a savepoint; start the job, or copy its newest "
                f"epoch, which is kept in {job.store}/manifests, with sparkjobs/copy_savepoint.py"
            )
        # A key of its own: the same name again is another savepoint, and the driver refuses it.
        request = opened.request(name, "savepoint", arguments, f"{name}/{uuid.uuid4().hex}")
        doing = "pinning the newest epoch" if copy_to is None else "copying files"
        result = _wait_for(opened, request, timeout_s, doing, f"no savepoint of {name} was taken")
    print(result["url"])


@savepoint_app.command("list")
def list_savepoints(name: JobName, catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print the savepoints of a job, newest first."""
    with Catalog(catalog) as opened:
        opened.job(name)
        found = opened.savepoints(name)
    if as_json:
        _print_json(found)
        return
    table = _table("created (UTC)", "lineage", "epoch", "parallelism", "reason", "path")
    for each in found:
        numbers = map(str, (each.lineage, each.epoch, each.parallelism))
        table.add_row(_utc(each.created_ms), *numbers, escape(each.reason), escape(each.path))
    _console().print(table)


@savepoint_app.command("drop")
def remove_savepoint(
    path: SavepointPath,
    catalog: Annotated[
        str | None, typer.Option("--catalog", envvar="STATECORE_CATALOG", help="Catalog that lists it, if any.")
    ] = None,
) -> None:
    """Remove a savepoint and the files that nothing else needs; no job has to run."""
    try:
        store, manifest_path = open_savepoint(path)
    except MissingFileError:
        # Somebody removed the folder, or an earlier drop was cut off here.
        if not _forget(catalog, path):
            raise
        print(f"{path} was gone already; the catalog lists it no more")
        return
    where = store.describe(manifest_path)
    freed = drop_savepoint(store, manifest_path)
    _forget(catalog, path, where)
    print(f"dropped {where}: {freed} bytes freed")


@savepoint_app.command("verify")
def verify_savepoint(path: SavepointPath) -> None:
    """Read every file of a savepoint and compare it with size and checksum in the manifest."""
    store, manifest_path = open_savepoint(path)
    manifest = store.manifest(manifest_path)
    with _progress("checking files") as progress:
        problems = verify_files(store, manifest, progress=progress)
    for problem in problems:
        _complain(problem)
    if problems:
        raise typer.Exit(1)
    print(f"whole: {len(manifest.files())} files, {sum(ref.size for ref in manifest.files())} bytes")


@job_app.command("register")
def register_job(
    name: JobName,
    catalog: CatalogUrl,
    artifact: Annotated[str, typer.Option(help="Job file, path or URL, which defines build(job).")],
    store: Annotated[str, typer.Option(help="Where checkpoints and savepoints go.")],
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
    setting: Annotated[list[str] | None, typer.Option(help="key=value, read by the job file as job.settings.")] = None,
    conf: Annotated[list[str] | None, typer.Option(help="key=value, Spark configuration.")] = None,
) -> None:
    """Add a job to the catalog, or change its definition."""
    with Catalog(catalog) as opened:
        opened.create_schema()
        job = opened.register_job(
            name,
            artifact=artifact if "://" in artifact else str(Path(artifact).resolve()),
            store=_absolute(store),
            master_url=master,
            cluster=cluster,
            conf=_pairs("--conf", conf),
            settings=_pairs("--setting", setting),
            parallelism=parallelism,
            max_parallelism=max_parallelism or _max_parallelism(opened, name, parallelism),
        )
    print(f"registered {job.name}: parallelism {job.parallelism}, max parallelism {job.max_parallelism}")


@job_app.command("start")
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
        bool, typer.Option("--claim", help="Own the savepoint: drop it as soon as the job needs it no more.")
    ] = False,
    parallelism: Annotated[int | None, typer.Option(min=1, help="Number of subtasks; by default as before.")] = None,
) -> None:
    """Ask the supervisor to run a job, from its newest epoch if it has one.

    A savepoint given with --from counts until an epoch was committed after it, over any number of attempts to start.
    """
    if start_from is None and (roll_back or claim):
        raise typer.BadParameter("found no --from; expected a savepoint with --roll-back and --claim; name it")
    with Catalog(catalog) as opened:
        job = opened.job(name)
        if start_from is not None or parallelism is not None:
            _require_stopped(opened, job)
        wishes: dict[str, Any] = {}
        if start_from is not None:
            wishes = {**_beginning(job, start_from, roll_back), "claims_savepoint": claim}
        opened.set_desired(
            name,
            state="running",
            parallelism=parallelism,
            allow_non_restored_state=allow_non_restored_state,
            **wishes,
        )
    beginning = f" from {wishes['start_from']}" if wishes else ""
    print(f"{name} is to run{beginning}; the supervisor starts its driver")


@job_app.command("stop")
def stop_job(
    name: JobName,
    catalog: CatalogUrl,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the savepoint.")] = 120.0,
) -> None:
    """Stop a job with a savepoint, wait until its driver has ended, and print the savepoint's path."""
    savepoint = _savepoint_name()
    with Catalog(catalog) as opened:
        opened.set_desired(name, state="stopped")
        if not opened.is_alive(opened.newest_generation(name)):
            # One that is silent and wakes up later finds itself replaced.
            opened.fail_lost_generation(name)
            print(f"{name} has no live driver; nothing to stop", file=sys.stderr)
            return
        request = opened.request(name, "stop_with_savepoint", {"name": savepoint, "reason": "by hand"}, savepoint)
        result = _wait_for(
            opened, request, timeout_s, "stopping with a savepoint", f"{name} is to stop, but without a savepoint"
        )
        _wait_until_ended(opened, name, timeout_s)
    print(result["url"])


@job_app.command("list")
def list_jobs(catalog: CatalogUrl, as_json: AsJson = False) -> None:
    """Print all jobs: whether they should run, whether they do, their newest epoch, and whether they keep up."""
    with Catalog(catalog) as opened:
        found = [_status(opened, job) for job in opened.jobs()]
    if as_json:
        _print_json(found)
        return
    table = _table(
        "job", "desired", "driver", "parallelism", "lineage", "epoch", "rows in all", "rows/s", "backlog", "lag"
    )
    for each in found:
        numbers = (each.parallelism, each.lineage, each.epoch, each.rows_total)
        cells = ("–" if n is None else str(n) for n in numbers)
        table.add_row(each.job, each.desired, each.driver, *cells, *_keeping_up(each))
    _console().print(table)
    for each in found:
        if each.error is not None:
            print(f"{each.job}, generation {each.generation}: {each.error} (log: {each.log})")


@app.command()
def rescale(
    name: JobName,
    catalog: CatalogUrl,
    parallelism: Annotated[int, typer.Option(min=1, help="Number of subtasks to be.")],
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for it.")] = 600.0,
) -> None:
    """Give a running job another parallelism without stopping it, and wait until it is taken up.

    Operators whose parallelism the job file fixes keep it. A job that is stopped takes it with `job start`.
    """
    with Catalog(catalog) as opened:
        job = opened.job(name)
        if parallelism > job.max_parallelism:
            raise ConfigurationError(
                f"found parallelism {parallelism} for {name}; expected at most {job.max_parallelism}, its max "
                "parallelism; choose less, or rewrite a savepoint for another max parallelism"
            )
        if not opened.is_alive(opened.newest_generation(name)):
            raise RequestFailedError(
                f"found no live driver of {name}; expected one to take it up; run `job start {name} --parallelism "
                f"{parallelism}`"
            )
        request = opened.request(name, "rescale", {"parallelism": parallelism}, f"{name}/{uuid.uuid4().hex}")
        doing = f"waiting for parallelism {parallelism} to be taken up"
        result = _wait_for(opened, request, timeout_s, doing, f"{name} was not rescaled")
    print(f"{name}: parallelism {result['from_parallelism']} -> {result['parallelism']} after epoch {_epoch(result)}")


def _epoch(result: dict[str, Any]) -> str:
    return "none yet" if result["after_epoch"] is None else str(result["after_epoch"])


@app.command()
def plan(
    path: SavepointPath,
    parallelism: Annotated[int, typer.Option(min=1, help="Number of subtasks to be.")],
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Number of key groups to be; by default it stays.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a rescale of a savepoint or checkpoint will do; nothing is written or moved."""
    store, manifest_path = open_savepoint(path)
    manifest = store.manifest(manifest_path)
    with _progress("counting rows") as progress:
        planned = plan_rescale(store, manifest, parallelism, max_parallelism, progress=progress)
    if as_json:
        _print_json({**msgspec.to_builtins(planned), "rows": planned.rows, "skew": planned.skew})
        return
    print(
        f"{planned.job}, epoch {planned.epoch} of lineage {planned.lineage}: parallelism {planned.from_parallelism} -> "
        f"{planned.to_parallelism}, max parallelism {planned.from_max_parallelism} -> {planned.to_max_parallelism}, "
        f"{planned.method}; {planned.bytes_written} bytes to write, skew {planned.skew:.2f}"
    )
    for uid, fixed in planned.fixed:
        print(f"operator {uid} keeps its own parallelism, {fixed}")
    table = _table("subtask", "key groups", "files", "rows", "bytes", "of the average")
    average = planned.rows / len(planned.subtasks) or 1
    for each in planned.subtasks:
        start, end = each.key_groups
        counts = map(str, (each.files, each.rows, each.bytes))
        table.add_row(str(each.subtask), f"{start}–{end}", *counts, f"{each.rows / average:.0%}")
    _console().print(table)


@catalog_app.command("rebuild")
def rebuild_catalog(
    stores: Annotated[list[str], typer.Argument(help="Root of a job's store, path or URL; several are possible.")],
    catalog: CatalogUrl,
) -> None:
    """Bring jobs and their savepoints back into a catalog that was lost; the jobs stay stopped.

    Copies of savepoints outside of the stores are not found. What cannot be read is named, and the rest brought back.
    """
    problems: list[StatecoreError] = []
    with Catalog(catalog) as opened:
        opened.create_schema()
        for store in stores:
            try:
                found = rebuild_job(opened, _absolute(store))
            except StatecoreError as error:
                problems.append(error)
                continue
            problems += found.problems
            for line in _rebuilt(found):
                print(line)
    for problem in problems:
        _complain(problem)
    if problems:
        raise typer.Exit(1)


@app.command()
def supervisor(
    catalog: CatalogUrl,
    logs: Annotated[Path, typer.Option(help="Directory for the drivers' output.")],
) -> None:
    """Run jobs: launch their drivers, bring them back, resize their clusters; ends on SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run_supervisor(catalog, logs)


@dataclass(frozen=True, slots=True)
class _Share:
    """What a subtask has of a state."""

    subtask: int
    state: str
    scope: str
    kind: StateKind
    type: str
    key_groups: tuple[tuple[int, int], ...]
    files: int
    rows: int
    bytes: int


def _shares(operator: OperatorState) -> Iterator[_Share]:
    for index, subtask in enumerate(operator.subtasks):
        for state in operator.states:
            keyed = [item for item in subtask.keyed if item.state == state.name and state.scope == "keyed"]
            listed = [item for item in subtask.operator if item.state == state.name and state.scope == "operator"]
            yield _Share(
                subtask=index,
                state=state.name,
                scope=state.scope,
                kind=state.kind,
                type=state.type,
                key_groups=tuple(sorted({item.key_groups for item in keyed})),
                files=len(keyed) + len(listed),
                rows=sum(item.rows for item in keyed) + sum(len(item.partitions.offsets) for item in listed),
                bytes=sum(item.file.size for item in keyed) + sum(item.file.size for item in listed),
            )


def _summary(manifest: Manifest) -> Table:
    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")
    info = manifest.savepoint
    rows = {
        "savepoint": "none, a checkpoint" if info is None else info.name,
        "reason": "" if info is None else info.reason,
        "job": manifest.job,
        "lineage, epoch": f"{manifest.lineage}, {manifest.epoch}",
        "parallelism": f"{manifest.parallelism} of at most {manifest.max_parallelism}",
        "watermark": "none" if manifest.watermark_ms is None else f"{_utc(manifest.watermark_ms)} UTC",
        "job file": _artifact(manifest),
        "epoch time": f"{_utc(manifest.batch_timestamp_ms)} UTC",
        "rows so far": str(manifest.rows_total),
        "written by": f"{manifest.writer}, generation {manifest.generation}",
        "files": f"{len(manifest.files())}, {sum(ref.size for ref in manifest.files())} bytes",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    return table


def _facts(path: str, manifest: Manifest) -> dict[str, Any]:
    """Return what ``savepoint show`` tells programs."""
    return {
        "path": path,
        "savepoint": manifest.savepoint,
        "job": manifest.job,
        "lineage": manifest.lineage,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "writer": manifest.writer,
        "parallelism": manifest.parallelism,
        "max_parallelism": manifest.max_parallelism,
        "watermark_ms": manifest.watermark_ms,
        "batch_timestamp_ms": manifest.batch_timestamp_ms,
        "rows_total": manifest.rows_total,
        "artifact": manifest.artifact,
        "files": len(manifest.files()),
        "bytes": sum(ref.size for ref in manifest.files()),
        "operators": [
            {"uid": operator.uid, "key": operator.key_fields, "states": list(_shares(operator))}
            for operator in manifest.operators
        ],
        "sources": manifest.sources,
    }


@dataclass(frozen=True, slots=True)
class _Status:
    """A job as ``job list`` tells it.

    Attributes:
        backlog_records, backlog_bytes, backlog_files, event_time_lag_ms: Over all sources, when it was last measured.
        error, log: Of a driver that failed or is lost.

    """

    job: str
    desired: str
    driver: str
    generation: int | None
    parallelism: int
    max_parallelism: int
    lineage: int | None
    epoch: int | None
    rows_total: int | None
    rows_per_second: float | None
    backlog_records: int | None
    backlog_bytes: int | None
    backlog_files: int | None
    event_time_lag_ms: int | None
    backlog_measured_ms: int | None
    sources: tuple[SourceBacklog, ...]
    error: str | None
    log: str | None


def _status(catalog: Catalog, job: JobRecord) -> _Status:
    generation = catalog.newest_generation(job.name)
    figures = catalog.figures(job.name)
    newest, backlog = figures.epoch, figures.backlog
    sources = () if backlog is None else backlog.sources
    waiting = over_all(sources)
    driver, error = "never started", None
    if generation is not None:
        driver, error = generation.state, generation.error
        if not (generation.ended or catalog.is_alive(generation)):
            driver, error = "lost", "no heartbeat for too long; if no new driver starts, no supervisor runs"
    # Figures of epochs are not rebuilt; what a generation knows is.
    known = newest or generation
    return _Status(
        job=job.name,
        desired=job.desired_state,
        driver=driver,
        generation=None if generation is None else generation.generation,
        parallelism=job.parallelism,
        max_parallelism=job.max_parallelism,
        lineage=None if known is None else known.lineage,
        epoch=None if known is None else known.epoch,
        rows_total=None if newest is None else newest.rows_total,
        rows_per_second=figures.rows_per_second,
        backlog_records=waiting.records,
        backlog_bytes=waiting.bytes,
        backlog_files=waiting.files,
        event_time_lag_ms=waiting.event_time_lag_ms,
        backlog_measured_ms=None if backlog is None else backlog.measured_ms,
        sources=sources,
        error=error,
        log=None if error is None or generation is None else generation.log_path,
    )


def _keeping_up(status: _Status) -> Iterator[str]:
    """Yield rate, backlog and lag of a job whose driver runs; what was measured of another is out of date."""
    if status.driver != "running":
        yield from ("–", "–", "–")
        return
    yield "–" if status.rows_per_second is None else f"{status.rows_per_second:,.0f}"
    waiting = [f"{status.backlog_records:,} records"] if status.backlog_records is not None else []
    if status.backlog_files is not None:
        waiting.append(f"{status.backlog_files:,} files")
    if status.backlog_bytes is not None:
        waiting.append(decimal(status.backlog_bytes))
    yield ", ".join(waiting) or "–"
    lag_ms = status.event_time_lag_ms
    yield "–" if lag_ms is None else str(timedelta(seconds=lag_ms // 1000))


def _rebuilt(found: Rebuilt) -> Iterator[str]:
    newest = "no epoch yet" if found.epoch is None else f"epoch {found.epoch} of lineage {found.lineage}"
    yield f"{found.job.name}: {newest}, {found.savepoints} savepoints; it is {found.job.desired_state}"
    if found.registered_before:
        yield "  it was registered again already, and stays as it was registered"
    if found.withheld:
        yield f"  register it again to set {', '.join(found.withheld)}: secrets are not kept in the store"
    if found.lost_cluster is not None:
        yield f"  register its cluster {found.lost_cluster!r}, then the job again with --cluster {found.lost_cluster}"


def _beginning(job: JobRecord, start_from: str, roll_back: bool) -> dict[str, Any]:
    """Return what to wish for to start a job from a savepoint.

    Raises:
        ConfigurationError: Epochs were committed that it does not hold, and nobody said to leave them behind.

    """
    own = CheckpointStore.at(job.store)
    # Where it lies is settled here, by the directory of whoever asked.
    store, path = own.open(_absolute(start_from) if Path(start_from).exists() else start_from)
    asked, newest = store.manifest(path), own.newest()
    if newest is not None and not roll_back and _epoch_of(asked) != _epoch_of(newest):
        raise ConfigurationError(
            f"found epoch {newest.epoch} of lineage {newest.lineage} committed in {job.store}; expected the job to "
            f"begin with {store.describe(path)}, epoch {asked.epoch} of lineage {asked.lineage} of job {asked.job!r}; "
            "add --roll-back to leave the newer epochs behind, or start without --from to go on from them"
        )
    return {
        "start_from": store.describe(path),
        "roll_back": roll_back,
        "max_parallelism": asked.max_parallelism,
    }


def _epoch_of(manifest: Manifest) -> tuple[str, int, int]:
    return manifest.job, manifest.lineage, manifest.epoch


def _require_stopped(catalog: Catalog, job: JobRecord) -> None:
    """Refuse what a running driver would not notice, and the next one, perhaps much later, would."""
    if job.desired_state == "running" or catalog.is_alive(catalog.newest_generation(job.name)):
        raise ConfigurationError(
            f"found {job.name} running, or wanted so; expected it to be stopped, because --from and --parallelism are "
            f"taken up by a new driver; run `job stop {job.name}` first"
        )


def _max_parallelism(catalog: Catalog, name: str, parallelism: int) -> int:
    try:
        return catalog.job(name).max_parallelism
    except UnknownJobError:
        return default_max_parallelism(parallelism)


def _forget(catalog: str | None, *paths: str) -> bool:
    """Remove what a catalog says of a savepoint, however it was written there; return whether it said anything."""
    if catalog is None:
        return False
    folders = {_absolute(path).rstrip("/").removesuffix(f"/{MANIFEST}") for path in paths}
    with Catalog(catalog) as opened:
        return opened.forget_savepoint(*folders, *(f"{folder}/{MANIFEST}" for folder in folders))


def _wait_for(catalog: Catalog, request: RequestRecord, timeout_s: float, doing: str, failed: str) -> dict[str, Any]:
    """Return the result of a request that a driver carries out.

    Raises:
        RequestFailedError: It did not, or not in time.

    """
    deadline = time.monotonic() + timeout_s
    with Console(stderr=True).status(f"{request.job}: {doing}"):
        while request.state in ("pending", "taken"):
            if time.monotonic() > deadline:
                raise RequestFailedError(
                    f"{failed}: found no answer after {timeout_s:g} s; expected the driver to give one; look at its "
                    f"log {_log(catalog, request.job)}; it was not told to give up, so it may still come"
                )
            time.sleep(_POLL_S)
            # In this order: a driver answers before it ends.
            deserted = _is_deserted(catalog, request.job)
            request = catalog.get_request(request.id)
            if deserted and request.result is None:
                request = catalog.finish_request(
                    request.id,
                    error=f"found its driver ended; expected an answer before; look at its log "
                    f"{_log(catalog, request.job)}; the newest epoch is kept, and a start goes on from it",
                )
    if request.result is None:
        raise RequestFailedError(f"{failed}: {request.error}")
    return request.result


def _is_deserted(catalog: Catalog, job: str) -> bool:
    """Tell whether a job has no driver and will get none."""
    if catalog.job(job).desired_state == "running" or catalog.is_alive(catalog.newest_generation(job)):
        return False
    catalog.fail_lost_generation(job)
    return True


def _wait_until_ended(catalog: Catalog, job: str, timeout_s: float) -> None:
    """Wait for a driver that has answered, so that what comes next finds its job stopped."""
    deadline = time.monotonic() + timeout_s
    with Console(stderr=True).status(f"{job}: waiting for the driver to end"):
        while catalog.is_alive(catalog.newest_generation(job)):
            if time.monotonic() > deadline:
                print(f"the driver of {job} has not ended yet; see {_log(catalog, job)}", file=sys.stderr)
                return
            time.sleep(_POLL_S)


def _log(catalog: Catalog, job: str) -> str:
    newest = catalog.newest_generation(job)
    return "" if newest is None else newest.log_path


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a screen how far something is; give what to call with what is done and how much there is."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _complain(error: StatecoreError) -> None:
    print(f"error: {error}", file=sys.stderr)


def _print_json(value: Any) -> None:
    print(msgspec.json.encode(value).decode())


def _console() -> Console:
    """Return where tables go: a screen folds them to its width, a pipe gets every row on one line."""
    return Console(width=None if sys.stdout.isatty() else 10_000)


def _table(*headings: str) -> Table:
    table = Table(title_justify="left")
    for heading in headings:
        # Never cut: a path with an ellipsis in it leads nowhere.
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    return table


def _utc(ms: int) -> str:
    # Event time may lie before the year 1, by the lateness that is allowed.
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{ms} ms since 1970"


def _artifact(manifest: Manifest) -> str:
    return "none" if manifest.artifact is None else f"{manifest.artifact.name}, {manifest.artifact.file.sha256[:12]}"


def _savepoint_name() -> str:
    return f"manual-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def _absolute(path: str) -> str:
    """Return a URL or path as a process in another directory understands it, always the same for the same place."""
    if "://" in path:
        return path
    absolute = Path(path).absolute()
    # A link stays one: it is there to be turned elsewhere. What `..` leads to is known only behind it.
    return str(absolute.resolve() if ".." in absolute.parts else absolute)


def _pairs(option: str, items: list[str] | None) -> dict[str, str]:
    pairs = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not (separator and key):
            raise typer.BadParameter(f"found {item!r}; expected key=value", param_hint=option)
        pairs[key] = value
    return pairs
