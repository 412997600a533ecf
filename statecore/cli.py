"""``python -m statecore``: jobs, savepoints and the supervisor from a shell.

Exit codes: 0 done, 1 refused or failed (the reason is on stderr), 2 usage.
"""

from __future__ import annotations

import logging
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from statecore.catalog import Catalog, EpochRecord, RequestRecord
from statecore.catalog.rebuild import rebuild_job
from statecore.errors import ConfigurationError, StatecoreError
from statecore.model import default_max_parallelism
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.plan import plan_rescale
from statecore.snapshot.savepoints import drop_savepoint
from statecore.snapshot.verify import verify as verify_files
from statecore.supervisor import run_supervisor

app = typer.Typer(help="Savepoints and rescaling for stateful PySpark streaming.", no_args_is_help=True)
savepoint_app = typer.Typer(help="Take savepoints, look at them, check and drop them.", no_args_is_help=True)
job_app = typer.Typer(help="Register, start and stop jobs.", no_args_is_help=True)
catalog_app = typer.Typer(help="Look after the catalog.", no_args_is_help=True)
app.add_typer(savepoint_app, name="savepoint")
app.add_typer(job_app, name="job")
app.add_typer(catalog_app, name="catalog")

CatalogUrl = Annotated[
    str, typer.Option("--catalog", envvar="STATECORE_CATALOG", help="URL of the catalog, e.g. sqlite:///catalog.db")
]
SavepointPath = Annotated[str, typer.Argument(help="A savepoint's folder, or a manifest file.")]
JobName = Annotated[str, typer.Argument(help="Name of the job.")]


def main() -> None:
    """Run the command line; a refusal is one line on stderr and exit code 1."""
    try:
        app()
    except StatecoreError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


@savepoint_app.command("show")
def show_savepoint(path: SavepointPath) -> None:
    """Print what a savepoint holds."""
    store, manifest_path = open_savepoint(path)
    manifest = store.manifest(manifest_path)
    console = Console()
    console.print(_summary(manifest))
    for operator in manifest.operators:
        key = ", ".join(f"{field.name} {field.type}" for field in operator.key_fields)
        table = Table(title=escape(f"operator {operator.uid}, key ({key})"), title_justify="left")
        for heading in ("subtask", "state", "key groups", "files", "rows", "bytes"):
            table.add_column(heading, justify="left" if heading == "state" else "right")
        for index, subtask in enumerate(operator.subtasks):
            for state in operator.states:
                keyed = [item for item in subtask.keyed if item.state == state.name and state.scope == "keyed"]
                listed = [item for item in subtask.operator if item.state == state.name and state.scope == "operator"]
                groups = sorted({item.key_groups for item in keyed})
                table.add_row(
                    str(index),
                    escape(f"{state.name} ({state.scope} {state.kind} of {state.type})"),
                    ", ".join(f"{start}–{end}" for start, end in groups),
                    str(len(keyed) + len(listed)),
                    str(sum(item.rows for item in keyed) + sum(len(item.partitions.offsets) for item in listed)),
                    str(sum(item.file.size for item in keyed) + sum(item.file.size for item in listed)),
                )
        console.print(table)
    if manifest.sources:
        table = Table(title="sources, as operator list state", title_justify="left")
        for heading in ("source", "elements", "positions"):
            table.add_column(heading, justify="right" if heading == "elements" else "left")
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
    """Take a savepoint of a running job, which runs on, and print its path."""
    arguments = {"name": savepoint or _savepoint_name(), "reason": reason}
    if copy_to is not None:
        arguments["target"] = copy_to if "://" in copy_to else str(Path(copy_to).absolute())
    with Catalog(catalog) as opened:
        if not opened.is_alive(opened.newest_generation(name)):
            raise ConfigurationError(
                f"found no live driver of {name}; expected one to take a savepoint; its newest epoch is kept anyway, "
                "and can be copied with sparkjobs/copy_savepoint.py"
            )
        request = opened.request(name, "savepoint", arguments, arguments["name"])
        result = _wait_for(opened, request, timeout_s, "copying files" if copy_to else "pinning the newest epoch")
    print(result["url"])


@savepoint_app.command("list")
def list_savepoints(name: JobName, catalog: CatalogUrl) -> None:
    """Print the savepoints of a job, newest first."""
    table = Table()
    for heading in ("created (UTC)", "lineage", "epoch", "parallelism", "reason", "path"):
        table.add_column(heading, overflow="fold")
    with Catalog(catalog) as opened:
        opened.job(name)
        for found in opened.savepoints(name):
            created = datetime.fromtimestamp(found.created_ms / 1000, UTC)
            numbers = map(str, (found.lineage, found.epoch, found.parallelism))
            table.add_row(f"{created:%Y-%m-%d %H:%M:%S}", *numbers, escape(found.reason), escape(found.path))
    Console().print(table)


@savepoint_app.command("drop")
def remove_savepoint(
    path: SavepointPath,
    catalog: Annotated[
        str | None, typer.Option("--catalog", envvar="STATECORE_CATALOG", help="Catalog that lists it, if any.")
    ] = None,
) -> None:
    """Remove a savepoint and the files that nothing else needs; no job has to run."""
    store, manifest_path = open_savepoint(path)
    freed = drop_savepoint(store, manifest_path)
    if catalog is not None:
        with Catalog(catalog) as opened:
            for recorded in (store.describe(manifest_path), store.files.url):
                opened.forget_savepoint(recorded)
    print(f"dropped {store.describe(manifest_path)}: {freed} bytes freed")


@savepoint_app.command("verify")
def verify_savepoint(path: SavepointPath) -> None:
    """Read every file of a savepoint and compare it with size and checksum in the manifest."""
    store, manifest_path = open_savepoint(path)
    manifest = store.manifest(manifest_path)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking files", total=None)
        problems = verify_files(
            store, manifest, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
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
        int | None, typer.Option(min=1, help="Number of key groups, fixed for good; by default what Flink takes.")
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
            store=store if "://" in store else str(Path(store).absolute()),
            master_url=master,
            cluster=cluster,
            conf=_pairs("--conf", conf),
            settings=_pairs("--setting", setting),
            parallelism=parallelism,
            max_parallelism=max_parallelism or default_max_parallelism(parallelism),
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
    """Ask the supervisor to run a job, from its newest epoch if it has one."""
    if start_from is None and (roll_back or claim):
        raise typer.BadParameter("found no --from; expected a savepoint with --roll-back and --claim")
    with Catalog(catalog) as opened:
        wishes: dict[str, Any] = {}
        if start_from is not None:
            store, path = CheckpointStore.at(opened.job(name).store).open(_absolute(start_from))
            # Where it lies is settled here, by the directory of whoever asked.
            wishes = {
                "start_from": store.describe(path),
                "roll_back": roll_back,
                "claims_savepoint": claim,
                "max_parallelism": store.manifest(path).max_parallelism,
            }
        opened.set_desired(
            name,
            state="running",
            parallelism=parallelism,
            allow_non_restored_state=allow_non_restored_state,
            **wishes,
        )
    print(f"{name} is to run; the supervisor starts its driver")


@job_app.command("stop")
def stop_job(
    name: JobName,
    catalog: CatalogUrl,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the savepoint.")] = 120.0,
) -> None:
    """Stop a job with a savepoint and print the savepoint's path."""
    savepoint = _savepoint_name()
    with Catalog(catalog) as opened:
        opened.set_desired(name, state="stopped")
        if not opened.is_alive(opened.newest_generation(name)):
            print(f"{name} has no live driver; nothing to stop")
            return
        request = opened.request(name, "stop_with_savepoint", {"name": savepoint, "reason": "by hand"}, savepoint)
        result = _wait_for(opened, request, timeout_s, "stopping with a savepoint")
        print(f"{opened.job(name).store}/{result['savepoint']}")


@job_app.command("list")
def list_jobs(catalog: CatalogUrl) -> None:
    """Print all jobs with their newest epoch."""
    table = Table()
    for heading in ("job", "desired", "driver", "parallelism", "lineage", "epoch", "rows in all"):
        table.add_column(heading)
    with Catalog(catalog) as opened:
        for job in opened.jobs():
            generation = opened.newest_generation(job.name)
            epochs = opened.epochs(job.name, limit=1)
            table.add_row(
                job.name,
                job.desired_state,
                "never started" if generation is None else generation.state,
                str(job.parallelism),
                *(_newest(epochs[-1]) if epochs else ["–"] * 3),
            )
    Console().print(table)


@app.command()
def plan(
    path: SavepointPath,
    parallelism: Annotated[int, typer.Option(min=1, help="Number of subtasks to be.")],
    max_parallelism: Annotated[
        int | None, typer.Option(min=1, help="Number of key groups to be; by default it stays.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show what a rescale of a savepoint or checkpoint will do; nothing is written or moved."""
    store, manifest_path = open_savepoint(path)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("counting rows", total=None)
        planned = plan_rescale(
            store,
            store.manifest(manifest_path),
            parallelism,
            max_parallelism,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    if as_json:
        print(msgspec.json.encode({**msgspec.to_builtins(planned), "skew": planned.skew}).decode())
        return
    print(
        f"{planned.job}, epoch {planned.epoch} of lineage {planned.lineage}: parallelism {planned.from_parallelism} -> "
        f"{planned.to_parallelism}, max parallelism {planned.from_max_parallelism} -> {planned.to_max_parallelism}, "
        f"{planned.method}; {planned.bytes_written} bytes to write, skew {planned.skew:.2f}"
    )
    table = Table()
    for heading in ("subtask", "key groups", "files", "rows", "bytes", "of the average"):
        table.add_column(heading, justify="right")
    average = planned.rows / len(planned.subtasks) or 1
    for each in planned.subtasks:
        start, end = each.key_groups
        counts = map(str, (each.files, each.rows, each.bytes))
        table.add_row(str(each.subtask), f"{start}–{end}", *counts, f"{each.rows / average:.0%}")
    Console().print(table)


@catalog_app.command("rebuild")
def rebuild_catalog(
    stores: Annotated[list[str], typer.Argument(help="Root of a job's store, path or URL; several are possible.")],
    catalog: CatalogUrl,
) -> None:
    """Bring jobs and their savepoints back into a catalog that was lost; the jobs stay stopped."""
    with Catalog(catalog) as opened:
        opened.create_schema()
        for store in stores:
            found = rebuild_job(opened, _absolute(store))
            newest = "no epoch yet" if found.epoch is None else f"epoch {found.epoch} of lineage {found.lineage}"
            print(f"{found.job.name}: {newest}, {found.savepoints} savepoints; it is stopped until you start it")
            if found.withheld:
                print(f"  register it again to set {', '.join(found.withheld)}: secrets are not kept in the store")


@app.command()
def supervisor(
    catalog: CatalogUrl,
    logs: Annotated[Path, typer.Option(help="Directory for the drivers' output.")],
) -> None:
    """Run jobs: launch their drivers, bring them back, resize their clusters; ends on SIGTERM."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    run_supervisor(catalog, logs)


def _summary(manifest: Manifest) -> Table:
    table = Table(show_header=False, box=None)
    info = manifest.savepoint
    rows = {
        "savepoint": "none, a checkpoint" if info is None else info.name,
        "reason": "" if info is None else info.reason,
        "job": manifest.job,
        "lineage, epoch": f"{manifest.lineage}, {manifest.epoch}",
        "parallelism": f"{manifest.parallelism} of at most {manifest.max_parallelism}",
        "watermark": "none" if manifest.watermark_ms is None else f"{_utc(manifest.watermark_ms)}",
        "job file": _artifact(manifest),
        "epoch time": _utc(manifest.batch_timestamp_ms),
        "rows so far": str(manifest.rows_total),
        "written by": f"{manifest.writer}, generation {manifest.generation}",
        "files": f"{len(manifest.files())}, {sum(ref.size for ref in manifest.files())} bytes",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    return table


def _utc(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _artifact(manifest: Manifest) -> str:
    return "none" if manifest.artifact is None else f"{manifest.artifact.name}, {manifest.artifact.file.sha256[:12]}"


def _wait_for(catalog: Catalog, request: RequestRecord, timeout_s: float, doing: str) -> dict[str, Any]:
    """Return the result of a request that a driver carries out."""
    deadline = time.monotonic() + timeout_s
    with Console(stderr=True).status(f"{request.job}: {doing}"):
        while request.state in ("pending", "taken"):
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"found no savepoint of {request.job} after {timeout_s:g} s; expected the driver to write one; "
                    "look at the driver's log and try again"
                )
            time.sleep(0.5)
            request = catalog.get_request(request.id)
    if request.result is None:
        raise ConfigurationError(f"the driver of {request.job} failed at {doing}: {request.error}")
    return request.result


def _savepoint_name() -> str:
    return f"manual-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def _absolute(path: str) -> str:
    """Return a URL or path as a process in another directory understands it."""
    return path if "://" in path or not Path(path).exists() else str(Path(path).absolute())


def _newest(epoch: EpochRecord) -> list[str]:
    return [str(epoch.lineage), str(epoch.epoch), str(epoch.rows_total)]


def _pairs(option: str, items: list[str] | None) -> dict[str, str]:
    pairs = {}
    for item in items or []:
        key, separator, value = item.partition("=")
        if not (separator and key):
            raise typer.BadParameter(f"found {item!r}; expected key=value", param_hint=option)
        pairs[key] = value
    return pairs
