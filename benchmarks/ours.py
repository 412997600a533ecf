"""Our side: the real runtime, with a driver in a thread of this process."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import MappingProxyType

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from benchmarks.cluster import MAX_PARALLELISM, PARALLELISM, until
from benchmarks.inputs import key_column
from benchmarks.jobs.running_sum import TOTAL, UID
from statecore.catalog import Catalog, EpochRecord, GenerationRecord
from statecore.runtime import write_savepoint
from statecore.runtime.driver.generation import run_generation
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.verify import verify_presence

RUNNING_SUM = Path(__file__).parent / "jobs" / "running_sum.py"
RUNNING_SUM_BATCH = Path(__file__).parent / "jobs" / "running_sum_batch.py"
SESSION_SUM = Path(__file__).parent / "jobs" / "session_sum.py"
INTERVAL_JOIN = Path(__file__).parent / "jobs" / "interval_join.py"
CHAINED_SUM = Path(__file__).parent / "jobs" / "chained_sum.py"


class OurJob:
    """A job with its own catalog, store and sink.

    Args:
        spark: Session of the application that runs it.
        folder: New folder for all its files.
        source: Folder of the input.
        artifact: Job file.
        start_from: Savepoint to start from.
        settings: Settings of the job, beside the folders.

    """

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        source: Path,
        *,
        artifact: Path = RUNNING_SUM,
        start_from: str | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        folder.mkdir(parents=True)
        self.name = folder.name
        self.folder = folder
        self.store = CheckpointStore.at(str(folder / "store"))
        self._spark = spark
        self._catalog_url = f"sqlite:///{folder / 'catalog.db'}"
        self.catalog = Catalog(self._catalog_url)
        self.catalog.create_schema()
        self.catalog.jobs.register(
            self.name,
            artifact=str(artifact),
            store=self.store.files.url,
            master_url=str(spark.sparkContext.master),
            settings={"input": str(source), "output": str(folder / "output"), **settings},
            parallelism=PARALLELISM,
            max_parallelism=MAX_PARALLELISM,
        )
        if start_from is not None:
            self.catalog.jobs.set_desired(self.name, start_from=start_from)

    @contextmanager
    def running(self, parallelism: int | None = None, *, start_from: str | None = None) -> Iterator[StreamingQuery]:
        """Run a generation; stop it after the block unless it has ended.

        Raises:
            Exception: The driver's failure.

        """
        if start_from is not None:
            self.catalog.jobs.set_desired(self.name, start_from=start_from)
        self.catalog.jobs.set_desired(self.name, state="running", parallelism=parallelism)
        generation = self.catalog.generations.claim(self.name, log_path="").generation
        failures: list[BaseException] = []
        driver = threading.Thread(target=self._drive, args=(generation, failures))
        driver.start()
        try:
            until(lambda: failures or self._query() is not None, f"driver of {self.name}")
            query = self._query()
            if query is not None:
                yield query
        finally:
            # A driver that has recorded its end takes no request any more, even while its thread still runs.
            if not self._generation().ended:
                self.stop()
            driver.join()
        if failures:
            raise failures[0]

    def stop(self) -> str:
        """Stop with a savepoint, wait for the driver to end, and return the savepoint's path in the store."""
        self.catalog.jobs.set_desired(self.name, state="stopped")
        name = f"stop-{uuid.uuid4().hex}"
        asked = self.catalog.requests.send(self.name, "stop_with_savepoint", {"name": name}, name)
        until(lambda: self._generation().ended, f"end of job {self.name}")
        answer = self.catalog.requests.get(asked.id)
        if answer.result is None:
            raise RuntimeError(f"found no savepoint of job {self.name}: {answer.error}; expected one; see the logs")
        return str(answer.result["savepoint"])

    def wait_heartbeat(self) -> None:
        """Wait for the driver's next heartbeat."""
        before = self._generation().heartbeat_ms
        until(lambda: self._generation().heartbeat_ms > before, f"heartbeat of {self.name}")

    def rescale_live(self, parallelism: int) -> None:
        """Rescale the running job.

        Raises:
            RuntimeError: It did not succeed.

        """
        asked = self.catalog.requests.send(self.name, "rescale", {"parallelism": parallelism}, uuid.uuid4().hex)
        until(lambda: self.catalog.requests.get(asked.id).state in ("done", "failed"), "answer to the request")
        answer = self.catalog.requests.get(asked.id)
        if answer.error is not None:
            raise RuntimeError(f"found no live rescale: {answer.error}; expected one; see the logs")

    def rescale(self, savepoint: str, parallelism: int) -> str:
        """Rescale a savepoint by reference, as a rescale run does; return the new savepoint's path in the store."""
        manifest = self.store.manifest(savepoint)
        verify_presence(self.store, manifest)
        rescaled = rescale_by_reference(manifest, parallelism)
        now_ms = int(time.time() * 1000)
        return self.store.write_savepoint(rescaled, f"rescaled-{uuid.uuid4().hex}", reason="bench", now_ms=now_ms)

    def epochs(self) -> list[EpochRecord]:
        """Return the figures of all epochs."""
        return self.catalog.epochs.of(self.name)

    def wait_epochs(self, count: int) -> None:
        """Wait until ``count`` epochs are committed and published since the job's start."""
        until(lambda: self.epochs_done() >= count, f"{count} epochs of {self.name}")

    def epochs_done(self) -> int:
        """Return the number of epochs committed and published since the job's start."""
        newest = self.catalog.epochs.of(self.name, limit=1)
        return newest[0].epoch + 1 if newest else 0

    def close(self) -> None:
        """Remove the job's files."""
        self.catalog.close()
        shutil.rmtree(self.folder)

    def _generation(self) -> GenerationRecord:
        newest = self.catalog.generations.newest(self.name)
        assert newest is not None
        return newest

    def _query(self) -> StreamingQuery | None:
        return next((query for query in self._spark.streams.active if query.name == self.name), None)

    def _drive(self, generation: int, failures: list[BaseException]) -> None:
        # A SQLite connection belongs to the thread that opened it.
        catalog = Catalog(self._catalog_url)
        try:
            run_generation(catalog, self.name, generation)
        except BaseException as error:
            failures.append(error)
        finally:
            catalog.close()


def phases_ms(epochs: list[EpochRecord]) -> dict[str, float]:
    """Return the median of each phase."""
    names = ("read", "load", "transfer", "process", "write", "run", "commit", "publish")
    return {name: median(epoch.phases[name] for epoch in epochs) for name in names}


def phases(epochs: list[EpochRecord]) -> str:
    """Format the median of each phase."""
    return ", ".join(f"{name} {ms:,.0f}" for name, ms in phases_ms(epochs).items()) + " ms"


def written_savepoint(spark: SparkSession, folder: Path, keys: int) -> str:
    """Write a savepoint of the running sum with ``keys`` keys; return its URL."""
    ids = spark.range(keys)
    rows = ids.select(key_column(F.col("id")).alias("k"), (F.col("id") % 1000).alias("value"))
    settings = dict.fromkeys(("input", "output"), str(folder))
    return write_savepoint(
        folder, {UID: {TOTAL: (rows, ["k"])}}, MAX_PARALLELISM, PARALLELISM, job=RUNNING_SUM, settings=settings
    )
