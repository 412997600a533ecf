"""Reports the results as a table, a plot and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich import box
from rich.table import Table

from benchmarks.harness import Figure, Target

_LONGEST = 100


def table(figures: Sequence[Figure], targets: Mapping[str, Target]) -> Table:
    """Return a table of the rows and their targets."""
    drawn = Table(title="Benchmark", box=box.SIMPLE_HEAD)
    drawn.add_column("row", no_wrap=True)
    for heading in ("ratio", "target"):
        drawn.add_column(heading, justify="right")
    drawn.add_column("")
    for heading in ("of", "to"):
        drawn.add_column(heading, justify="right")
    for figure in figures:
        target = targets[figure.name]
        verdict = "[green]met[/]" if target.met(figure.ratio) else "[red]MISSED[/]"
        drawn.add_row(figure.name, f"{figure.ratio:.2f}", str(target), verdict, figure.first, figure.second)
    return drawn


def notes(figures: Sequence[Figure], targets: Mapping[str, Target]) -> Iterator[str]:
    """Yield the meaning of each row's ratio, and its note."""
    for figure in figures:
        yield f"{figure.name}: {targets[figure.name].what}"
        yield from (f"  {line}" for line in figure.note.splitlines())


def write_json(figures: Sequence[Figure], targets: Mapping[str, Target], path: Path) -> None:
    """Write a list of ``{name, ratio, target}``."""
    rows = [{"name": each.name, "ratio": each.ratio, "target": targets[each.name].bound} for each in figures]
    path.write_text(json.dumps(rows, indent=2) + "\n")


def write_plot(figures: Sequence[Figure], targets: Mapping[str, Target], path: Path) -> None:
    """Plot each row relative to its target on a logarithmic axis; right of 1 the target is met."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = [figure.name for figure in figures]
    shares = [_share(figure, targets[figure.name]) for figure in figures]
    colours = ["tab:green" if share >= 1 else "tab:red" for share in shares]
    drawn, axes = plt.subplots(figsize=(9, 1 + 0.4 * len(names)), layout="constrained")
    bars = axes.barh(names, [share - 1 for share in shares], left=1, color=colours)
    labels = [f" {figure.ratio:.2f} ({targets[figure.name]}) " for figure in figures]
    axes.bar_label(bars, labels)
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("result relative to target (right of 1 is better); label: ratio (target)")
    drawn.savefig(path)
    plt.close(drawn)


def _share(figure: Figure, target: Target) -> float:
    # Bounded, because a ratio of 0 would give an infinite bar.
    return figure.ratio / target.bound if target.at_least else target.bound / max(figure.ratio, target.bound / _LONGEST)
