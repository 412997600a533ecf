"""Rows per second of both sides of a row, over the same epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from types import MappingProxyType

from benchmarks import peers
from benchmarks.epochs import seconds_of
from benchmarks.harness import Bench
from benchmarks.inputs import RECORDS, Input
from benchmarks.ours import OurJob, phases

EPOCHS = 4
WARM_UP = 1
ROWS = 500_000
FEWER_ROWS = 250_000
"""Rows of an epoch where a side takes a minute or more for ``ROWS``."""
KEYS = 200_000
_PEER_TIMEOUT_S = 1500


class Sides:
    """Runs each side over the same epochs; the first is a warm-up and does not count.

    Args:
        bench: The environment.
        folder: Folder of the row.
        source: The input.
        rows: Rows of an epoch, of one file or of two.

    Attributes:
        note: Where our side spent its time in the last round.

    """

    def __init__(self, bench: Bench, folder: Path, source: Input, rows: int = ROWS) -> None:
        self._bench, self._folder, self._source, self._rows = bench, folder, source, rows
        self._runs = 0
        self.note = ""

    def ours(self, artifact: Path, settings: Mapping[str, str] = MappingProxyType({})) -> float:
        """Return our rows per second."""
        folder = self._next("ours")
        job = OurJob(self._bench.spark, folder, self._source.folder, artifact=artifact, settings=settings)
        with job.running() as query:
            seconds = seconds_of(query, self._source.files)
        self.note = f"last round, {phases(job.epochs()[WARM_UP:])}"
        # First, because a worker may still write files.
        self._bench.forget_state()
        job.close()
        return self._rate(seconds)

    def peer(self, operator: peers.Operator, *, schema: str = RECORDS, output_mode: str = "update") -> float:
        """Return the rows per second of a Spark query."""
        spark = peers.peer_session(self._bench.spark)
        folder = self._next("peer")
        with peers.running(
            spark, operator, self._source.folder, folder, schema=schema, output_mode=output_mode
        ) as query:
            return self._rate(seconds_of(query, self._source.files, timeout_s=_PEER_TIMEOUT_S))

    def _next(self, side: str) -> Path:
        self._runs += 1
        return self._folder / f"{side}-{self._runs}"

    def _rate(self, seconds: list[float]) -> float:
        measured = seconds[WARM_UP:]
        return self._rows * len(measured) / sum(measured)


def rate(rates: Sequence[float]) -> str:
    """Format the median of rows per second."""
    return f"{median(rates):,.0f} rows/s"
