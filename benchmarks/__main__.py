"""Runs the benchmark: ``python -m benchmarks [--group GROUP | --only ROW]``."""

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
from benchmarks.report import merged, notes, read_json, table, write_json, write_plot
from benchmarks.targets import FAMILIES, GROUPS, TARGETS, Family

RUN = Path(".run")


def main() -> int:
    """Measure, print, merge into ``.run/bench.json`` and ``.run/bench.png``; return 1 if a row failed or was wrong."""
    rows = _asked()
    console = Console()
    # Before the measurements: if it is damaged, nothing is lost.
    earlier = read_json(RUN / "bench.json")
    started = time.monotonic()
    _print_configurations(console)
    figures, failed = _measured(rows, console)
    ratios = merged(earlier, figures, rows, TARGETS)
    write_json(ratios, TARGETS, RUN / "bench.json")
    write_plot(ratios, TARGETS, RUN / "bench.png")
    console.print(table(figures, TARGETS))
    for line in notes(figures, TARGETS):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(f"{time.monotonic() - started:.0f} s; figures in {RUN / 'bench.json'}, plot in {RUN / 'bench.png'}")
    for name in failed:
        console.print(f"[red]found no figure for {name}[/]; expected one; see its error above")
    wrong = [each for each in figures if TARGETS[each.name].must_hold and not TARGETS[each.name].met(each.ratio)]
    for figure in wrong:
        target = TARGETS[figure.name]
        console.print(f"[red]found {figure.name} {figure.ratio:.2f}[/]; expected {target}, or the run fails")
    return 1 if failed or wrong else 0


def _asked() -> set[str]:
    """Return the rows to measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Compare statecore with its peers.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--group", choices=GROUPS, help="run one group of rows")
    choice.add_argument("--only", metavar="ROW", choices=TARGETS, help=f"run one row: {', '.join(TARGETS)}")
    asked = parser.parse_args()
    if asked.only is not None:
        return {asked.only}
    return {row for family in FAMILIES if asked.group in (None, family.group) for row in family.rows}


def _print_configurations(console: Console) -> None:
    console.print(f"{WORKERS} workers of one core; parallelism {PARALLELISM}, max parallelism {MAX_PARALLELISM}")
    for title, conf in (("application", APPLICATION), ("Spark's stateful operators", peers.STATE_STORE)):
        console.print(f"{title}:")
        for key, value in conf.items():
            console.print(f"  {key} {value}", highlight=False)


def _measured(rows: set[str], console: Console) -> tuple[list[Figure], list[str]]:
    """Return the figures, and the names of failed rows; a failure does not stop the others."""
    families = [family for family in FAMILIES if not rows.isdisjoint(family.rows)]
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
                measured = family.measure(Bench(spark, folder, say, rows))
                figures += [figure for figure in measured if figure.name in rows]
            except Exception:
                progress.console.print_exception()
                failed += [row for row in family.rows if row in rows]
            progress.advance(task)
    return figures, failed


if __name__ == "__main__":
    sys.exit(main())
