"""``python -m tests.chaos``: everything breaks, again and again, and no count is lost.

With ``--kafka`` the job goes from topic to topic, and the broker breaks, too. With ``--query`` it is a query of Spark's
own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from stack.processes import StackError
from statecore.errors import StatecoreError
from tests.chaos.campaign import carry_out, schedule
from tests.chaos.clocks import has_clocks
from tests.chaos.kafka.strikes import DECK as KAFKA_DECK
from tests.chaos.kafka.world import KafkaWorld
from tests.chaos.processes import ChaosError, DifferenceError, Processes
from tests.chaos.queries.strikes import DECK as QUERY_DECK
from tests.chaos.queries.strikes import move
from tests.chaos.queries.world import QueryWorld
from tests.chaos.report import Report, Round, show
from tests.chaos.strikes.base import Need, Strike
from tests.chaos.world import World
from tests.support.postgres import Replicated
from tests.support.s3 import s3_server

console = Console(soft_wrap=True)


def main(
    rounds: Annotated[
        int | None, typer.Option(help="How many strikes; by default 80, or 200 with Kafka or a query.", min=2)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="What the campaign follows from; a new one by default.")] = None,
    minutes: Annotated[float, typer.Option(help="Begin no more rounds after so long.")] = float("inf"),
    sqlite: Annotated[bool, typer.Option("--sqlite", help="Keep the catalog in SQLite, not in PostgreSQL.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Go from a Kafka topic to another; SQLite.")] = False,
    query: Annotated[bool, typer.Option("--query", help="Strike at a query of Spark's own; SQLite.")] = False,
    victim: Annotated[list[str] | None, typer.Option(help="Strike at this victim alone; may be repeated.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write what came of it to this file, as JSON.")] = None,
) -> None:
    """Strike a job again and again; at the end its state and its outputs must be those of an undisturbed run."""
    # Ended by any signal, it ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    made = Report(SystemRandom().randrange(1_000_000) if seed is None else seed)
    made.catalog = "SQLite" if sqlite or kafka or query else "PostgreSQL"
    rounds = rounds or (200 if kafka or query else 80)
    again = ["--kafka"] if kafka else ["--query"] if query else ["--sqlite"] if sqlite else []
    again += [f"--victim {shlex.quote(each)}" for each in victim or ()]
    again += [] if minutes == float("inf") else [f"--minutes {minutes:g}"]
    replay = " ".join(["python -m tests.chaos", f"--rounds {rounds} --seed {made.seed}", *again])
    folder = Path(tempfile.mkdtemp(prefix="statecore-chaos-"))
    console.print(f"seed {made.seed}: {replay}")
    try:
        campaign = _between_topics if kafka else _on_a_query if query else _on_everything
        with campaign(folder, made, rounds, victim or ()) as (world, ground, strikes):
            _run(world, ground, strikes, made, minutes)
        made.demand_flights()
    except (ChaosError, StackError, StatecoreError) as error:
        made.differences.append(str(error))
        if isinstance(error, DifferenceError):
            made.lost, made.doubled = error.verdict.lost, error.verdict.doubled
    except BaseException as error:
        made.differences.append(f"the campaign was cut off: {error!r}")
        raise
    finally:
        if report is not None:
            report.write_bytes(msgspec.json.encode(made))
    show([made], console)
    if made.differences:
        console.print(f"logs are in {folder}/logs\nagain: {replay}")
        sys.exit(1)
    shutil.rmtree(folder, ignore_errors=True)
    console.print(
        f"[green]{'outputs' if kafka or query else 'state, timers and outputs'} are those of an undisturbed run[/]"
    )


Campaign = tuple[Processes, str, list[Strike]]
"""A world, where its job begins, and what happens to it."""


@contextmanager
def _on_everything(folder: Path, report: Report, rounds: int, victims: Collection[str]) -> Iterator[Campaign]:
    offered = set() if report.catalog == "SQLite" else {Need.POSTGRES}
    if offered and has_clocks():
        offered.add(Need.CLOCKS)
    ground, strikes = schedule(report.seed, rounds, offered=offered, victims=victims)
    for need in sorted(set(Need) - offered):
        report.left_out.append(f"strikes that need {need}")
    with ExitStack() as stack:
        endpoint = stack.enter_context(s3_server())
        stack.enter_context(_s3_environment(endpoint))
        postgres = stack.enter_context(closing(Replicated())) if Need.POSTGRES in offered else None
        yield stack.enter_context(World(folder, endpoint, report.seed, postgres)), ground, strikes


@contextmanager
def _between_topics(folder: Path, report: Report, rounds: int, victims: Collection[str]) -> Iterator[Campaign]:
    ground, strikes = schedule(report.seed, rounds, deck=KAFKA_DECK, victims=victims)
    with KafkaWorld(folder, report.seed) as world:
        yield world, ground, strikes


@contextmanager
def _on_a_query(folder: Path, report: Report, rounds: int, victims: Collection[str]) -> Iterator[Campaign]:
    ground, strikes = schedule(report.seed, rounds, deck=QUERY_DECK, victims=victims, move=move)
    with QueryWorld(folder, report.seed) as world:
        yield world, ground, strikes


def _run(world: Processes, ground: str, strikes: list[Strike], report: Report, minutes: float) -> None:
    columns = (SpinnerColumn(), TextColumn("{task.completed}/{task.total} {task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("the job starts", total=len(strikes))

        def on_round(_: int, strike: Strike) -> None:
            progress.update(task, description=f"{strike.victim} {strike.how}")

        def on_done(number: int, done: Round) -> None:
            progress.advance(task)
            flight = "in flight" if done.in_flight else "between epochs"
            console.print(f"{number:3} {done.seconds:5.1f} s  {done.victim}, {done.how}: {flight}")

        carry_out(world, ground, strikes, report, until_s=minutes * 60, on_round=on_round, on_done=on_done)


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
