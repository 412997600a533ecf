"""Compares the policies: ``python -m benchmarks.policies [--only NAME] [--policy NAME] [--picture FILE]``.

``--random N --seed S`` takes N random shapes instead of the known ones.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.policies.goals import goals
from benchmarks.policies.picture import write_picture
from benchmarks.policies.random_shapes import random_shapes
from benchmarks.policies.reach import explained
from benchmarks.policies.report import kinds, misses, table, write_json
from benchmarks.policies.shapes import SHAPES, Shape
from benchmarks.policies.simulations import OURS, PEERS, POLICIES, VARIANTS, Outcomes, simulated

FIGURES = Path(".run/policies.json")


def main() -> int:
    """Simulate, print, write ``.run/policies.json`` and the picture; return 1 if a goal within reach does not hold."""
    arguments = _arguments()
    console = Console()
    started = time.monotonic()
    shapes, policies = _chosen(arguments)
    outcomes = _outcomes(shapes, policies, arguments.workers, console)
    judged = {shape: goals(shapes[shape], found) for shape, found in outcomes.items()}
    if arguments.random:
        # Those of the known shapes hold, so each that does not is a fault.
        judged = {
            shape: [explained(shapes[shape], goal, outcomes[shape][OURS]) for goal in found]
            for shape, found in judged.items()
        }
    missed = list(misses(shapes, judged))
    if not arguments.random:
        console.print(table(outcomes, judged))
    for line in missed:
        console.print(line, highlight=False, soft_wrap=True)
    write_json(shapes, outcomes, judged, FIGURES)
    if arguments.picture is not None:
        write_picture(shapes, outcomes, arguments.picture)
    every = [goal for found in judged.values() for goal in found]
    held = sum(goal.holds for goal in every)
    beyond = sum(bool(goal.out_of_reach) for goal in every)
    console.print(
        f"{held} of {len(every)} goals hold ({kinds(judged)}), {beyond} are out of reach; "
        f"{time.monotonic() - started:.0f} s; figures in {FIGURES}"
    )
    return 1 if held + beyond < len(every) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policies", description="Compare policies on shapes.")
    parser.add_argument("--only", metavar="NAME", action="append", choices=SHAPES, help=f"shape: {', '.join(SHAPES)}")
    known = (*POLICIES, *VARIANTS)
    parser.add_argument("--policy", metavar="NAME", action="append", choices=known, help=", ".join(known))
    parser.add_argument("--random", metavar="N", type=int, help="take N random shapes; run ours and its peers on them")
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="of the random shapes; default 0")
    parser.add_argument("--workers", metavar="N", type=int, default=2, help="processes that simulate; default 2")
    parser.add_argument("--picture", metavar="FILE", type=Path, help="PNG to write")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> tuple[dict[str, Shape], list[str]]:
    """Return the shapes and the policies to run."""
    if arguments.random:
        return random_shapes(arguments.random, arguments.seed), arguments.policy or [OURS, *PEERS]
    return {name: SHAPES[name] for name in arguments.only or SHAPES}, arguments.policy or list(POLICIES)


def _outcomes(shapes: dict[str, Shape], policies: list[str], workers: int, console: Console) -> Outcomes:
    outcomes: Outcomes = {shape: {} for shape in shapes}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("simulating", total=len(shapes) * len(policies))
        for shape, policy, outcome in simulated(list(shapes.values()), policies, workers):
            outcomes[shape][policy] = outcome
            progress.update(task, advance=1, description=f"{shape}, {policy}")
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
