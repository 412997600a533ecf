"""``python -m tests.chaos``: everything breaks, again and again, and no count is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from statecore.runtime.faults import FaultPoint
from tests.chaos.campaign import Report, Round, carry_out, schedule
from tests.chaos.strikes import Strike
from tests.chaos.world import ChaosError, World
from tests.support.s3 import s3_server

console = Console(soft_wrap=True)
# Of 50 rounds, 30 must have met an epoch in flight.
_IN_FLIGHT = 30 / 50


def main(
    rounds: Annotated[int, typer.Option(help="How many strikes.", min=2)] = 50,
    seed: Annotated[int | None, typer.Option(help="What the campaign follows from; a new one by default.")] = None,
    minutes: Annotated[float, typer.Option(help="Begin no more rounds after so long.")] = float("inf"),
) -> None:
    """Strike a job again and again; at the end its state and its outputs must be those of an undisturbed run."""
    # Ended by any signal, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = SystemRandom().randrange(1_000_000) if seed is None else seed
    replay = f"python -m tests.chaos --rounds {rounds} --seed {seed}"
    if minutes != float("inf"):
        replay += f" --minutes {minutes:g}"
    folder = Path(tempfile.mkdtemp(prefix="statecore-chaos-"))
    console.print(f"seed {seed}: {replay}")
    try:
        with s3_server() as endpoint, _s3_environment(endpoint), World(folder, endpoint, seed) as world:
            report = _run(world, seed, rounds, minutes)
    except ChaosError as error:
        console.print(f"[red]{error}[/]\nlogs are in {folder}/logs\nagain: {replay}")
        sys.exit(1)
    _show(report)
    demanded = len(report.rounds) * _IN_FLIGHT
    if report.in_flight < demanded:
        report.differences.append(f"{report.in_flight} strikes met an epoch in flight; {demanded:g} are demanded")
    if report.differences:
        for difference in report.differences:
            console.print(f"[red]{difference}[/]", markup=True, highlight=False)
        console.print(f"logs are in {folder}/logs\nagain: {replay}")
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)
    console.print("[green]state, timers and outputs are those of an undisturbed run[/]")


def _run(world: World, seed: int, rounds: int, minutes: float) -> Report:
    columns = (SpinnerColumn(), TextColumn("{task.completed}/{task.total} {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("the job starts", total=rounds)

        def on_round(_: int, strike: Strike) -> None:
            progress.update(task, description=f"{strike.victim} {strike.how}")

        def on_done(number: int, done: Round) -> None:
            progress.advance(task)
            flight = "in flight" if done.in_flight else "between epochs"
            console.print(f"{number:3} {done.seconds:5.1f} s  {done.strike.victim}, {done.strike.how}: {flight}")

        ground, strikes = schedule(seed, rounds)
        return carry_out(world, ground, strikes, seed, until_s=minutes * 60, on_round=on_round, on_done=on_done)


def _show(report: Report) -> None:
    victims = Table("victim", "rounds", "in flight")
    met = Counter(done.strike.victim for done in report.rounds if done.in_flight)
    for victim, number in sorted(Counter(done.strike.victim for done in report.rounds).items()):
        victims.add_row(victim, str(number), str(met[victim]))
    victims.add_section()
    victims.add_row("all", str(len(report.rounds)), str(report.in_flight))
    points = Table("fault point", "hits")
    for point in FaultPoint:
        points.add_row(point, str(report.hits[point]))
    console.print(victims, points, sep="\n")
    console.print(f"lineage {report.lineage}, epoch {report.epoch}, generation {report.generation}")


@contextmanager
def _s3_environment(endpoint: str) -> Iterator[None]:
    """Lead boto3 to the server, nowhere else; for the life of this process."""
    os.environ |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    yield


if __name__ == "__main__":
    typer.run(main)
