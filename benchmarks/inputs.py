"""Input of both sides: folders of Parquet files, one file per epoch."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column
from pyspark.sql import functions as F

RECORDS = "k string, n bigint"
EVENTS = f"{RECORDS}, ts timestamp"
"""Columns of records, and of records with an event time."""

EPOCH_S = 600
"""Event time that a file of events covers."""
SESSION_GAP_S, MAX_LATENESS_S, JOIN_WITHIN_S = 300, 60, 120

_SPLITS = 4
"""Row groups per file, so that both cores read it."""
_FIRST_S = 1_700_000_000
"""Event time at which the first file of events begins."""


class Input:
    """A folder that a file source reads, one file per epoch.

    Args:
        folder: The folder to create.
        seed: Another one gives other records.

    """

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder = folder
        self._seed = seed
        self.files = 0
        folder.mkdir(parents=True)

    def feed(self, rows: int, keys: int, *, files: int = 1) -> None:
        """Add files of ``rows`` records with random keys, the same in every run."""
        for _ in range(files):
            drawn = self._random().integers(0, keys, rows)
            self._add(drawn)

    def feed_each_key(self, keys: int) -> None:
        """Add one file with each key once, in random order."""
        self._add(self._random().permutation(keys))

    def feed_events(self, rows: int, keys: int, *, files: int = 1) -> None:
        """Add files of ``rows`` records with random keys and event times; none is later than ``MAX_LATENESS_S``."""
        for _ in range(files):
            random = self._random()
            drawn = random.integers(0, keys, rows)
            # In order, but for half the lateness that is allowed to either side.
            came_s = np.sort(random.uniform(0, EPOCH_S, rows)) + random.uniform(-0.5, 0.5, rows) * MAX_LATENESS_S
            times_us = ((_FIRST_S + self.files * EPOCH_S + came_s) * 1e6).astype(np.int64)
            self._add(drawn, ts=pa.array(times_us, pa.timestamp("us", "UTC")))

    def _random(self) -> np.random.Generator:
        return np.random.default_rng((self._seed, self.files))

    def _add(self, drawn: np.ndarray, **more: pa.Array) -> None:
        table = pa.table({"k": key_names(pa.array(drawn)), "n": pa.array(drawn % 1000, pa.int64()), **more})
        staged = self.folder.parent / f"{self.folder.name}-{self.files}.staged"
        pq.write_table(table, staged, row_group_size=max(1, len(drawn) // _SPLITS))
        # The file source orders files by modification time.
        stamp = time.time_ns() // 1_000_000_000 - 10_000 + self.files
        os.utime(staged, (stamp, stamp))
        staged.rename(self.folder / f"{self.files:05d}.parquet")
        self.files += 1


def key_names(numbers: pa.Array) -> pa.Array:
    """Return a string key of fixed length for each number."""
    digits = pc.utf8_lpad(pc.cast(numbers, pa.string()), 8, "0")
    return pc.binary_join_element_wise("customer-", digits, "")


def key_column(number: Column) -> Column:
    """Return the same keys as a Spark column."""
    return F.concat(F.lit("customer-"), F.lpad(number.cast("string"), 8, "0"))
