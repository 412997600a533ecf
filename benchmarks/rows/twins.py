"""The same stream on both sides, with the same keys in state."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import peers
from benchmarks.cluster import PARALLELISM, until
from benchmarks.harness import Bench
from benchmarks.inputs import Input
from benchmarks.ours import OurJob

ROWS = 10_000
MOST = 2 * PARALLELISM


class OurTwin:
    """Our job with every key in state.

    Attributes:
        job: The job.

    """

    def __init__(self, bench: Bench, folder: Path, keys: int) -> None:
        self._bench, self._keys = bench, keys
        self._input = Input(folder / "our-input")
        self._input.feed_each_key(keys)
        self.job = OurJob(bench.spark, folder / "ours", self._input.folder)
        self._run = ExitStack()
        self._parallelism = PARALLELISM
        self._start()

    def stop(self) -> str:
        """Stop with a savepoint; return its path in the store."""
        savepoint = self.job.stop()
        self._run.close()
        return savepoint

    def rescale_s(self) -> float:
        """Rescale to the other parallelism; the restart loads state from its files.

        Returns:
            Seconds from the request to the first epoch published at the new parallelism.

        """
        started = time.monotonic()
        self._parallelism = MOST if self._parallelism == PARALLELISM else PARALLELISM
        rescaled = self.job.rescale(self.stop(), self._parallelism)
        stopped = time.monotonic()
        self._bench.forget_state()
        forgotten = time.monotonic() - stopped
        self._start(rescaled)
        return time.monotonic() - started - forgotten

    def _start(self, savepoint: str | None = None) -> None:
        before = self.job.epochs_done()
        if before:
            self._input.feed(ROWS, self._keys)
        self._run.enter_context(self.job.running(self._parallelism, start_from=savepoint))
        self.job.wait_epochs(before + 1)


class SparkTwin:
    """Spark's aggregation with every key in its RocksDB state store."""

    def __init__(self, bench: Bench, folder: Path, keys: int) -> None:
        self._spark = peers.peer_session(bench.spark)
        self._keys = keys
        self._folder = folder / "spark"
        self._input = Input(folder / "spark-input")
        self._input.feed_each_key(keys)
        self._run = ExitStack()
        self._published = 0
        self._parallelism = PARALLELISM
        self._start()

    @property
    def state_bytes(self) -> int:
        """Bytes of state files on disk."""
        return sum(file.stat().st_size for file in (self._folder / "checkpoint/state").rglob("*") if file.is_file())

    def stop(self) -> None:
        """Stop the query."""
        self._run.close()

    def repartition(self) -> None:
        """Repartition the state for the other parallelism; the query must be stopped."""
        self._parallelism = MOST if self._parallelism == PARALLELISM else PARALLELISM
        manager = self._spark._streamingCheckpointManager
        manager.repartition(f"{self._folder}/checkpoint", self._parallelism)

    def rescale_s(self) -> float:
        """Rescale to the other parallelism.

        Returns:
            Seconds from the request to the first epoch published at the new parallelism.

        """
        started = time.monotonic()
        self.stop()
        self.repartition()
        self._start()
        return time.monotonic() - started

    def _start(self) -> None:
        before = self._published
        if before:
            self._input.feed(ROWS, self._keys)
        run = peers.running(
            self._spark, peers.grouped_sum, self._input.folder, self._folder, published=self._count_published
        )
        query = self._run.enter_context(run)
        until(lambda: self._published > before or not query.isActive, "epoch of Spark")
        failure = query.exception()
        if failure is not None:
            raise failure

    def _count_published(self) -> None:
        self._published += 1
