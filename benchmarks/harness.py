"""The common part of all rows: targets, figures, and rounds in which the sides take turns."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from benchmarks.cluster import python_workers

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Target:
    """A row's ratio and its target.

    Attributes:
        name: Name of the row.
        what: Meaning of the ratio.
        bound: Smallest ratio, or largest.
        at_least: Whether ``bound`` is the smallest ratio.
        must_hold: Whether a miss fails the run: what the row tries is right or wrong, not more or less fast.

    """

    name: str
    what: str
    bound: float
    at_least: bool
    must_hold: bool = False

    def met(self, ratio: float) -> bool:
        """Return whether a ratio meets the target."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """Result of a row.

    Attributes:
        name: Name of the row.
        ratio: The measured ratio.
        first, second: Dividend and divisor, formatted.
        note: Where the time goes, or other remarks.

    """

    name: str
    ratio: float
    first: str
    second: str
    note: str = ""


class Bench:
    """Environment of the rows.

    Args:
        spark: Session of the shared application.
        folder: Folder for all files of the rows, reachable by the cluster.
        say: Prints progress.
        wanted: Names of the rows to measure; None for all.

    """

    def __init__(
        self, spark: SparkSession, folder: Path, say: Callable[[str], None], wanted: Collection[str] | None = None
    ) -> None:
        self.spark = spark
        self.say = say
        self._wanted = wanted
        self._folder = folder

    def wants(self, *rows: str) -> bool:
        """Return whether any of these rows is to be measured."""
        return self._wanted is None or any(row in self._wanted for row in rows)

    @contextmanager
    def workspace(self, name: str) -> Iterator[Path]:
        """Create a folder and remove it after the block."""
        folder = self._folder / "rows" / name
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python workers of the cluster."""
        return python_workers(self._folder)

    def forget_state(self) -> None:
        """Kill the Python workers and so drop all state in memory; Spark starts new workers on demand."""
        for worker in self.python_workers():
            with suppress(psutil.NoSuchProcess):
                worker.kill()

    def rounds(
        self, sides: Mapping[str, Callable[[], float]], *, unit: str, rounds: int = ROUNDS, warm_up: int = 1
    ) -> dict[str, list[float]]:
        """Measure the sides in turns, so that a slow moment of the machine affects all of them.

        Args:
            sides: Name → measurement.
            unit: Unit of the measurements.
            rounds: Number of rounds that count.
            warm_up: Number of rounds before them that do not count.

        Returns:
            Figures of each side, in the order of the rounds.

        """
        taken: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(-warm_up, rounds):
            for name, side in sides.items():
                started = time.monotonic()
                figure = side()
                which = f"round {number + 1} of {rounds}" if number >= 0 else "warm-up"
                self.say(f"{which}: {name} {_written(figure)} {unit} ({time.monotonic() - started:.0f} s)")
                if number >= 0:
                    taken[name].append(figure)
        return taken


def median_ratio(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the median over rounds of the ratio of the first side to the second."""
    return statistics.median(one / other for one, other in zip(first, second, strict=True))


def _written(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def in_seconds(figures: Sequence[float]) -> str:
    """Format the median in seconds."""
    return f"{statistics.median(figures):.2f} s"
