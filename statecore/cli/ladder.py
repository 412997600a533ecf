"""Draws the throughput of a job at each size."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from statecore.policy import Ladder

_WIDTH = 40
_ARRIVES, _NEEDED = "┊", "│"


def drawing(found: Ladder) -> Table:
    """Return a bar per size, with marks at the arrivals and at the needed throughput."""
    made = Table.grid(padding=(0, 2))
    made.add_column(justify="right")
    made.add_column(justify="right")
    made.add_column(no_wrap=True)
    made.add_column()
    most = max(*found.rates.values(), found.needed, 1.0)
    for size, rate in found.rates.items():
        notes = [word for word, at in (("now", found.parallelism), ("enough", found.enough)) if at == size]
        made.add_row(str(size), f"{rate:,.0f} rows/s", _bar(rate, found, most), ", ".join(notes))
    made.add_row(
        "", "", Text(f"{_ARRIVES} {found.arriving:,.0f} rows/s arrive   {_NEEDED} {found.needed:,.0f} are needed")
    )
    return made


def _bar(rate: float, found: Ladder, most: float) -> Text:
    filled = round(_WIDTH * rate / most)
    cells = ["█"] * filled + [" "] * (_WIDTH - filled)
    for mark, at in ((_NEEDED, found.needed), (_ARRIVES, found.arriving)):
        cells[min(_WIDTH - 1, round(_WIDTH * at / most))] = mark
    return Text("".join(cells))
