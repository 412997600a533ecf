"""Reports the outcomes as a table and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich import box
from rich.table import Table

from benchmarks.policies.goals import Goal
from benchmarks.policies.shapes import Shape
from benchmarks.policies.simulations import OURS, POLICIES, VARIANTS, Outcomes

Judged = Mapping[str, Sequence[Goal]]
"""Goals by shape."""


def table(outcomes: Outcomes, judged: Judged) -> Table:
    """Return a table of all shapes and policies."""
    drawn = Table(title="Policies", box=box.SIMPLE_HEAD)
    for heading in ("shape", "policy"):
        drawn.add_column(heading, no_wrap=True)
    for heading in ("SLO min", "core-hours", "rescales", "end"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("goals", overflow="fold")
    for shape, policies in outcomes.items():
        for index, name in enumerate(each for each in (*POLICIES, *VARIANTS) if each in policies):
            outcome = policies[name]
            drawn.add_row(
                "" if index else shape,
                name,
                f"{outcome.slo_minutes:.1f}",
                f"{outcome.core_hours:.1f}",
                str(outcome.rescales),
                str(outcome.end_parallelism),
                _verdict(judged[shape]) if name == OURS else "",
                style="bold" if name == OURS else "dim" if name.startswith("fixed") else "",
            )
        drawn.add_section()
    return drawn


def misses(shapes: Mapping[str, Shape], judged: Judged) -> Iterator[str]:
    """Yield a line for each goal that does not hold."""
    for shape, found in judged.items():
        for goal in found:
            if not goal.holds:
                why = f"; out of reach: {goal.out_of_reach}" if goal.out_of_reach else ""
                yield f"{shape} ({shapes[shape].what}): {goal.name}: found {goal.found}; expected {goal.expected}{why}"


def kinds(judged: Judged) -> str:
    """Return how many goals of each kind hold, in one line."""
    every = [goal for found in judged.values() for goal in found]
    held = Counter(goal.name for goal in every if goal.holds)
    return ", ".join(f"{name} {held[name]} of {count}" for name, count in Counter(goal.name for goal in every).items())


def write_json(shapes: Mapping[str, Shape], outcomes: Outcomes, judged: Judged, path: Path) -> None:
    """Write all figures, by shape: what it is, its goals, and the outcome of each policy."""
    figures = {
        shape: {
            "what": shapes[shape].what,
            "goals": [asdict(goal) for goal in judged[shape]],
            "policies": {name: policies[name].to_json() for name in (*POLICIES, *VARIANTS) if name in policies},
        }
        for shape, policies in outcomes.items()
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(figures, indent=2) + "\n")


def _verdict(found: Sequence[Goal]) -> str:
    missed = dict.fromkeys(goal.name for goal in found if not goal.holds)
    if missed:
        return f"[red]MISSED: {', '.join(missed)}[/]"
    return "[green]hold[/]" if found else ""
