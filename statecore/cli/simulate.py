"""``policy simulate``: plays a policy on a trace of arrivals."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from statecore.cli.options import AsJson
from statecore.cli.output import console, facts, print_json, progress, table
from statecore.errors import ConfigurationError
from statecore.extras import require
from statecore.simulator import PLAYERS, Outcome, Trace, World, parse_trace, parse_world, player, simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def simulate_policy(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE.csv", help="Arrivals: the header t_s,rows_per_s; the last line ends them.")
    ],
    world: Annotated[
        Path | None, typer.Option(help="A JSON object with what epochs and rescales cost; without it, the defaults.")
    ] = None,
    policy: Annotated[str, typer.Option(help=f"One of {', '.join(PLAYERS)}.")] = "statecore",
    plot: Annotated[
        Path | None, typer.Option(help="Draw arrivals, parallelism and lag into this file, PNG or SVG.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a policy against a simulated job; no job, catalog or cluster is touched."""
    arrivals = parse_trace(_read(trace), str(trace))
    surroundings = World() if world is None else parse_world(_read(world), str(world))
    playing = player(policy, surroundings)
    if plot is not None:
        require("matplotlib", extra="plots")
        if not plot.parent.is_dir():
            raise ConfigurationError(f"found no folder {plot.parent} for --plot; expected one; make it")
    with progress(f"simulating {policy}") as report:
        end_s = round(arrivals.end_s)
        outcome = simulate(arrivals, surroundings, playing, progress=lambda at_s: report(round(at_s), end_s))
    if plot is not None:
        _draw(arrivals, outcome, plot)
    if as_json:
        print_json(outcome.to_json())
        return
    _show(policy, outcome, surroundings)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"could not read {path}: {error}; expected a text file; check path and permissions"
        ) from error


def _show(policy: str, outcome: Outcome, world: World) -> None:
    made = facts()
    made.add_row("policy", policy)
    made.add_row(f"older than {world.slo_s:g} s", f"{outcome.slo_minutes:,.1f} minutes")
    made.add_row("largest lag", f"{outcome.largest_lag_s:,.0f} s")
    made.add_row("core-hours", f"{outcome.core_hours:,.1f}")
    made.add_row("rescales", str(outcome.rescales))
    made.add_row("parallelism at the end", str(outcome.end_parallelism))
    console().print(made)
    happened = [(each.t_s, f"{each.from_} -> {each.to}", each.reason) for each in outcome.decisions]
    happened += [(at_s, "", f"diagnosis: {name}") for at_s, name in outcome.diagnoses]
    told = table("time", "rescale", "why")
    for at_s, size, why in sorted(happened):
        told.add_row(str(timedelta(seconds=round(at_s))), size, escape(why))
    console().print(told)


def _draw(trace: Trace, outcome: Outcome, path: Path) -> None:
    """Draw arrivals, parallelism and lag over time."""
    # Imported on demand: it takes a second to load.
    from matplotlib.figure import Figure

    hours = [each.t_s / 3600 for each in outcome.samples]
    figure = Figure(figsize=(10, 6), layout="constrained")
    rows, sizes, lags = figure.subplots(3, 1, sharex=True)
    times = [(trace.began_s + at_s) / 3600 for at_s in trace.times_s]
    rows.fill_between(times, [*trace.rates, trace.rates[-1]], step="post", color="#9aa5b1")
    _label(rows, "rows/s that arrive")
    sizes.step(hours, [each.parallelism for each in outcome.samples], where="post", color="#0b69a3")
    _label(sizes, "parallelism")
    lags.plot(hours, [each.lag_s for each in outcome.samples], color="#ba2525")
    _label(lags, "oldest waiting row, s")
    lags.set_xlabel("hours")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"could not draw {path}: {error}; expected a file .png or .svg; name one") from error


def _label(axes: Axes, name: str) -> None:
    axes.set_ylabel(name)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
