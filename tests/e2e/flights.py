"""The second job in the world, which a hot key and a slow sink hold back: fed, watched and judged as the first one."""

from __future__ import annotations

from collections import Counter
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from examples.demo.feeder import Feeder, load_flights
from tests.e2e import flights_job
from tests.e2e.world import SPARK_CONF, World
from tests.support.published import published_files

FLIGHTS = "flights"
PARALLELISM = 2
# All flights but one in so many get it: three subtasks are hardly quicker than two then, also by the figures of a busy
# machine.
HOT_CARRIER, HOT_OF = "UA", 4
# Of different sizes, so that the cost of a row shows; so many rows that the fixed part of an epoch matters little.
ROWS_OF_FILES = (300, 1_200, 600, 900)
ENOUGH_WAITING = 3_000


class Flights:
    """The job, on the cluster of the world but without one of its own.

    Args:
        world: Whose cluster it runs on; no other job may use its cores.
        store: URL of the job's store.

    """

    def __init__(self, world: World, store: str) -> None:
        self._world, self._catalog = world, world.catalog
        self._folder = world.folder / FLIGHTS
        self._feeder = Feeder(self._folder / "input")
        self._rows = load_flights().select(["carrier", "arr_delay"])
        self._sizes = cycle(ROWS_OF_FILES)
        self._fed: list[tuple[int, str, int | None]] = []
        self._slow = self._folder / "slow"
        self._catalog.jobs.register(
            FLIGHTS,
            artifact=flights_job.__file__,
            store=store,
            master_url=world.stack.master_url,
            conf=SPARK_CONF,
            settings={
                "input": str(self._folder / "input"),
                "output": str(self._folder / "output"),
                "slow": str(self._slow),
            },
            parallelism=PARALLELISM,
            # With these key groups, the flights as they are spread evenly over two subtasks.
            max_parallelism=64,
        )

    @property
    def finding(self) -> str:
        """What the policy found last."""
        policy = self._catalog.policies.find(FLIGHTS)
        return (policy.finding if policy else None) or "nothing yet"

    def feed(self, *, hot: bool) -> None:
        """Put files there until enough rows wait, as many as a job that is too slow has at any time.

        Args:
            hot: Whether one carrier has most of the flights.

        """
        while self.waiting() < ENOUGH_WAITING:
            first, size = len(self._fed), next(self._sizes)
            rows = [
                (n, HOT_CARRIER if hot and n % HOT_OF else row["carrier"], row["arr_delay"])
                for n, row in enumerate(self._rows.slice(first, size).to_pylist(), first)
            ]
            columns = zip(*rows, strict=True)
            types = {"n": pa.int64(), "carrier": pa.string(), "arr_delay": pa.int32()}
            self._feeder.feed(pa.table({name: pa.array(next(columns), type_) for name, type_ in types.items()}))
            self._fed += rows

    def slow_down_sink(self, slow: bool) -> None:
        """Make one sink slow, or quick again."""
        if slow:
            self._slow.touch()
        else:
            self._slow.unlink()

    def waiting(self) -> int:
        """Return how many rows no epoch has taken yet."""
        epochs = self._catalog.epochs.of(FLIGHTS, limit=1)
        return len(self._fed) - (epochs[-1].rows_total if epochs else 0)

    def settle(self) -> None:
        """Wait until all that was fed is published, and compare it with the truth."""
        self._world.wait(lambda: self.waiting() == 0, lambda: f"{self.waiting():,} flights to be taken")
        self._world.wait(
            lambda: sum(map(Counter.total, self._published())) >= len(self._fed),
            lambda: "the newest epoch to be published",
        )
        assert self._published() == self._truth()

    def _truth(self) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
        """Return what an undisturbed run would have published into each sink."""
        delays: dict[str, tuple[int, int]] = {}
        flown: Counter[tuple[Any, ...]] = Counter()
        not_flown: Counter[tuple[Any, ...]] = Counter()
        for n, carrier, delay in self._fed:
            if delay is None:
                not_flown[n, carrier] += 1
                continue
            flights, minutes = delays.get(carrier, (0, 0))
            delays[carrier] = flights + 1, minutes + delay
            flown[n, carrier, flights + 1, minutes + delay] += 1
        return flown, not_flown

    def _published(self) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
        output = self._folder / "output"
        return _rows_of(output / "flown"), _rows_of(output / "not_flown")


def _rows_of(folder: Path) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    for file in published_files(folder):
        rows.update(zip(*pq.ParquetFile(file).read().to_pydict().values(), strict=True))
    return rows
