"""Draws all shapes as small panels: what arrives, and the parallelism that each policy gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.policies.arrivals import HOUR
from benchmarks.policies.shapes import Shape
from benchmarks.policies.simulations import OURS, PEERS, Outcomes
from statecore.simulator import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 5
_ARRIVALS, _LATE = "0.86", "tab:red"
_LINES = {"aws": "tab:green", "ds2": "tab:purple", "flink": "tab:orange", OURS: "tab:blue"}
_LATE_HEIGHT = 0.04


def write_picture(shapes: Mapping[str, Shape], outcomes: Outcomes, path: Path) -> None:
    """Write a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    rows = -(-len(outcomes) // _COLUMNS)
    drawn, grid = plt.subplots(
        rows, _COLUMNS, figsize=(3.4 * _COLUMNS, 2.3 * rows + 0.8), layout="constrained", squeeze=False
    )
    for axes, (name, policies) in zip(grid.flat, outcomes.items(), strict=False):
        _draw(axes, shapes[name], policies)
    for axes in grid.flat[len(outcomes) :]:
        axes.set_axis_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("parallelism", fontsize=8)
    drawn.supxlabel("hours", fontsize=8)
    drawn.legend(
        handles=[
            *(Line2D([], [], color=_LINES[each], linewidth=_width(each), label=each) for each in (OURS, *PEERS)),
            Patch(color=_ARRIVALS, label="rows/s that arrive (scaled to the panel)"),
            Patch(color=_LATE, label=f"rows of {OURS} wait for longer than the SLO"),
        ],
        loc="outside upper center",
        ncols=6,
        frameon=False,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, dpi=100)
    plt.close(drawn)


def _draw(axes: Axes, shape: Shape, policies: dict[str, Outcome]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_title(f"{shape.name}\n{shape.what}", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.set_xlim(0, shape.trace.end_s / HOUR)
    arrivals = axes.twinx()
    arrivals.fill_between(_hours(shape.trace.times_s), [*shape.trace.rates, 0], step="post", color=_ARRIVALS)
    arrivals.set_ylim(0, 1.15 * max(shape.trace.rates))
    arrivals.set_yticks([])
    axes.set_zorder(arrivals.get_zorder() + 1)
    axes.patch.set_visible(False)
    for name in _LINES:
        if name in policies:
            samples = policies[name].samples
            axes.step(
                _hours(each.t_s for each in samples),
                [each.parallelism for each in samples],
                where="post",
                color=_LINES[name],
                linewidth=_width(name),
            )
    axes.set_ylim(0, 1.15 * axes.dataLim.ymax)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    if OURS in policies:
        samples = policies[OURS].samples
        axes.fill_between(
            _hours(each.t_s for each in samples),
            0,
            _LATE_HEIGHT,
            where=[each.lag_s > shape.world.slo_s for each in samples],
            step="post",
            color=_LATE,
            transform=axes.get_xaxis_transform(),
        )


def _width(name: str) -> float:
    return 1.8 if name == OURS else 0.9


def _hours(times_s: Iterable[float]) -> list[float]:
    return [at_s / HOUR for at_s in times_s]
