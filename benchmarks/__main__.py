"""Runs the benchmark: ``python -m benchmarks [--only NAME]``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import peers
from benchmarks.cluster import APPLICATION, MAX_PARALLELISM, PARALLELISM, WORKERS, application
from benchmarks.harness import Bench, Figure
from benchmarks.report import notes, table, write_json, write_plot
from benchmarks.targets import FAMILIES, TARGETS, Family

RUN = Path(".run")


def main() -> int:
    """Measure, print, write ``.run/bench.json`` and ``.run/bench.png``; return 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare statecore with its peers.")
    parser.add_argument("--only", metavar="NAME", choices=TARGETS, help=f"run one row: {', '.join(TARGETS)}")
    only = parser.parse_args().only
    console = Console()
    families = [family for family in FAMILIES if only is None or only in family.rows]
    started = time.monotonic()
    _print_configurations(console)
    figures, failed = _measured(families, console, only)
    write_json(figures, TARGETS, RUN / "bench.json")
    write_plot(figures, TARGETS, RUN / "bench.png")
    console.print(table(figures, TARGETS))
    for line in notes(figures, TARGETS):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(f"{time.monotonic() - started:.0f} s; figures in {RUN / 'bench.json'}, plot in {RUN / 'bench.png'}")
    for name in failed:
        console.print(f"[red]found no figure for {name}[/]; expected one; see its error above")
    return 1 if failed else 0


def _print_configurations(console: Console) -> None:
    console.print(f"{WORKERS} workers of one core; parallelism {PARALLELISM}, max parallelism {MAX_PARALLELISM}")
    for title, conf in (("application", APPLICATION), ("Spark's stateful operators", peers.STATE_STORE)):
        console.print(f"{title}:")
        for key, value in conf.items():
            console.print(f"  {key} {value}", highlight=False)


def _measured(families: list[Family], console: Console, only: str | None) -> tuple[list[Figure], list[str]]:
    """Return the figures, and the names of failed rows; a failure does not stop the others."""
    folder = (RUN / "bench").absolute()
    figures: list[Figure] = []
    failed: list[str] = []
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress, application(folder) as spark:
        task = progress.add_task("", total=len(families))
        for family in families:
            progress.update(task, description=", ".join(family.rows))

            def say(text: str, family: Family = family) -> None:
                progress.console.print(f"{time.strftime('%H:%M:%S')} {family.rows[0]} {text}", highlight=False)

            try:
                measured = family.measure(Bench(spark, folder, say, None if only is None else {only}))
                figures += [figure for figure in measured if only in (None, figure.name)]
            except Exception:
                progress.console.print_exception()
                failed += family.rows
            progress.advance(task)
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
