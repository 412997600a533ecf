"""Reports the results as a table, a plot and JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
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
        drawn.add_row(figure.name, written(figure.ratio), str(target), verdict, figure.first, figure.second)
    return drawn


def written(ratio: float) -> str:
    """Format a ratio; a small one with two digits that count."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def notes(figures: Sequence[Figure], targets: Mapping[str, Target]) -> Iterator[str]:
    """Yield the meaning of each row's ratio, and its note."""
    for figure in figures:
        yield f"{figure.name}: {targets[figure.name].what}"
        yield from (f"  {line}" for line in figure.note.splitlines())


class Row(msgspec.Struct, frozen=True):
    """A row of ``.run/bench.json``."""

    name: str
    ratio: float
    target: float


def read_json(path: Path) -> dict[str, float]:
    """Return the ratio of each row that earlier runs have measured.

    Raises:
        ValueError: The file is damaged.

    """
    if not path.exists():
        return {}
    try:
        return {row.name: row.ratio for row in msgspec.json.decode(path.read_bytes(), type=list[Row])}
    except msgspec.DecodeError as error:
        raise ValueError(
            f"found {path}, which is damaged ({error}); expected a list of name, ratio and target; delete it"
        ) from error


def merged(
    earlier: Mapping[str, float], figures: Sequence[Figure], asked: Collection[str], targets: Mapping[str, Target]
) -> dict[str, float]:
    """Return the ratio of each row in the order of the targets: this run's, and the earlier one of a row not asked for.

    A row that was asked for and failed has none.
    """
    ratios = {name: ratio for name, ratio in earlier.items() if name not in asked}
    ratios |= {figure.name: figure.ratio for figure in figures}
    return {name: ratios[name] for name in targets if name in ratios}


def write_json(ratios: Mapping[str, float], targets: Mapping[str, Target], path: Path) -> None:
    """Write a list of ``{name, ratio, target}``."""
    rows = [Row(name, ratio, targets[name].bound) for name, ratio in ratios.items()]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")


def write_plot(ratios: Mapping[str, float], targets: Mapping[str, Target], path: Path) -> None:
    """Plot each row relative to its target on a logarithmic axis; right of 1 the target is met."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    names = list(ratios)
    shares = [_share(ratio, targets[name]) for name, ratio in ratios.items()]
    colours = ["tab:green" if share >= 1 else "tab:red" for share in shares]
    drawn, axes = plt.subplots(figsize=(9, 1 + 0.4 * len(names)), layout="constrained")
    bars = axes.barh(names, [share - 1 for share in shares], left=1, color=colours)
    labels = [f" {written(ratio)} ({targets[name]}) " for name, ratio in ratios.items()]
    axes.bar_label(bars, labels)
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.axvline(1, color="black", linewidth=1)
    axes.invert_yaxis()
    axes.set_xlabel("result relative to target (right of 1 is better); label: ratio (target)")
    drawn.savefig(path)
    plt.close(drawn)


def _share(ratio: float, target: Target) -> float:
    # Bounded, because a ratio of 0 would give an infinite bar.
    return ratio / target.bound if target.at_least else target.bound / max(ratio, target.bound / _LONGEST)
