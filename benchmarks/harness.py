"""What all rows have in common: a target, a ratio, rounds in which both sides take turns."""

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

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Target:
    """What a row measures and what it has to reach.

    Attributes:
        name: Of the row.
        what: What the ratio is of.
        bound: The ratio to reach, or not to exceed.
        at_least: Whether it is to be reached.

    """

    name: str
    what: str
    bound: float
    at_least: bool

    def met(self, ratio: float) -> bool:
        """Tell whether a ratio is good enough."""
        return ratio >= self.bound if self.at_least else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """What a row came to.

    Attributes:
        name: Of the row.
        ratio: The figure.
        first, second: What was divided by what, for people.
        note: Where the time goes, or what else to know.

    """

    name: str
    ratio: float
    first: str
    second: str
    note: str = ""


class Bench:
    """What a row needs to run.

    Args:
        spark: Session of the application that all rows share.
        folder: For everything the rows write, on the file system of the cluster.
        say: Tells people how far it is.
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
        """Tell whether one of these rows is to be measured."""
        return self._wanted is None or any(row in self._wanted for row in rows)

    @contextmanager
    def workspace(self, name: str) -> Iterator[Path]:
        """Give a folder that is removed after the block."""
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
        """End the Python workers, and with them all state in their memory; Spark starts new ones when it needs them."""
        for worker in self.python_workers():
            with suppress(psutil.NoSuchProcess):
                worker.kill()

    def rounds(
        self, sides: Mapping[str, Callable[[], float]], *, unit: str, rounds: int = ROUNDS, warm_up: int = 1
    ) -> dict[str, list[float]]:
        """Measure sides in turns, so that a slow moment of the machine meets all of them.

        Args:
            sides: Name and measurement of each.
            unit: Of what they return.
            rounds: How many of them count.
            warm_up: How many before them do not.

        Returns:
            Per side its figures, in the order of the rounds.

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
    """Return the median over rounds of what one side has for each that the other has."""
    return statistics.median(one / other for one, other in zip(first, second, strict=True))


def _written(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def in_seconds(figures: Sequence[float]) -> str:
    """Write the median of seconds."""
    return f"{statistics.median(figures):.2f} s"
