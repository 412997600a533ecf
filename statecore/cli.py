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
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from statecore.catalog import Catalog, EpochRecord
from statecore.errors import ConfigurationError, StatecoreError
from statecore.model import default_max_parallelism
from statecore.snapshot.checkpoints import open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify as verify_files
from statecore.supervisor import run_supervisor

app = typer.Typer(help="Savepoints and rescaling for stateful PySpark streaming.", no_args_is_help=True)
savepoint_app = typer.Typer(help="Look at savepoints and check them.", no_args_is_help=True)
job_app = typer.Typer(help="Register, start and stop jobs.", no_args_is_help=True)
app.add_typer(savepoint_app, name="savepoint")
app.add_typer(job_app, name="job")

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
    artifact: Annotated[Path, typer.Option(help="Job file, which defines build(job).")],
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
            artifact=str(artifact.resolve()),
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
) -> None:
    """Ask the supervisor to run a job, from its newest epoch if it has one."""
    with Catalog(catalog) as opened:
        opened.set_desired(name, state="running", allow_non_restored_state=allow_non_restored_state)
    print(f"{name} is to run; the supervisor starts its driver")


@job_app.command("stop")
def stop_job(
    name: JobName,
    catalog: CatalogUrl,
    timeout_s: Annotated[float, typer.Option("--timeout", help="Seconds to wait for the savepoint.")] = 120.0,
) -> None:
    """Stop a job with a savepoint and print the savepoint's path."""
    savepoint = f"manual-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"
    with Catalog(catalog) as opened:
        opened.set_desired(name, state="stopped")
        if not opened.is_alive(opened.newest_generation(name)):
            print(f"{name} has no live driver; nothing to stop")
            return
        request = opened.request(name, "stop_with_savepoint", {"name": savepoint, "reason": "by hand"}, savepoint)
        deadline = time.monotonic() + timeout_s
        while request.state in ("pending", "taken"):
            if time.monotonic() > deadline:
                raise ConfigurationError(
                    f"found no savepoint of {name} after {timeout_s:g} s; expected the driver to write one; "
                    "look at the driver's log and try again"
                )
            time.sleep(0.5)
            request = opened.get_request(request.id)
        if request.result is None:
            raise ConfigurationError(f"the driver of {name} could not stop with a savepoint: {request.error}")
        print(f"{opened.job(name).store}/{request.result['savepoint']}")


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
        "epoch time": f"{datetime.fromtimestamp(manifest.batch_timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC",
        "rows so far": str(manifest.rows_total),
        "written by": f"{manifest.writer}, generation {manifest.generation}",
        "files": f"{len(manifest.files())}, {sum(ref.size for ref in manifest.files())} bytes",
    }
    for name, value in rows.items():
        table.add_row(name, escape(value))
    return table


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
