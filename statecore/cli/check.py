"""``check``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from statecore.cli.options import AsJson, absolute, pairs
from statecore.cli.output import console, print_json, table, telling
from statecore.model.job_parts import Trial
from statecore.operations.trial import TriedFile, try_job_file
from statecore.snapshot.job_files import read_source
from statecore.snapshot.settings import DriverSettings


def check(
    job_file: Annotated[str, typer.Argument(metavar="FILE", help="Job file that defines build(job): a path or a URL.")],
    setting: Annotated[
        list[str] | None, typer.Option(help="key=value, in the job file as job.settings; repeatable.")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(help="key=value, Spark configuration; repeatable.")] = None,
    start_from: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH", help="A savepoint whose state the job must be able to take up."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try a job file on Spark, without a catalog: build its sources and run one empty epoch.

    Columns of keys, orders, event times and sinks are resolved against the sources' schemas, and functions are opened.
    No source is read, and no sink is called.
    """
    settings, confs = pairs("--setting", setting), pairs("--conf", conf)
    DriverSettings.from_conf(confs)
    path = absolute(job_file)
    source = read_source(path)
    with telling("trying the job file on Spark"):
        savepoint = None if start_from is None else absolute(start_from)
        trial = try_job_file(TriedFile(path, source, settings, confs), savepoint=savepoint)
    if as_json:
        print_json(trial)
        return
    show_parts(trial)
    print(f"{job_file} can start{'' if trial.epoch is None else f' from {trial.epoch}'}")


def show_parts(trial: Trial) -> None:
    """Print the parts of a job that has been tried."""
    made = table("part", "name", "what", "columns or states")
    for part in trial.parts:
        made.add_row(part.kind, *map(Text, (part.name, part.does, part.has)))
    console().print(made)
