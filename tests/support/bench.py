"""A real job on real Spark, with everything it needs in a temporary folder."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stack.quick_start import QUICK_START
from statecore.catalog import Catalog, GenerationRecord, RequestRecord
from statecore.runtime import read_savepoint
from statecore.runtime.driver.generation import run_generation
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_files import keep_job_file, read_source
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.settings import DriverSettings
from statecore.storage import open_store
from tests.support.published import published_files
from tests.support.waiting import wait

JOB = "totals"
ARTIFACT = Path(__file__).parent / "jobs" / "totals.py"
KEYS = 40


class Bench:
    """A registered job, its input and output, and the truth about them."""

    def __init__(self, folder: Path, *, master: str = "local[2]", parallelism: int = 3) -> None:
        self.input, self.output, self.store = folder / "input", folder / "output", folder / "store"
        self.input.mkdir()
        self.catalog_url = f"sqlite:///{folder / 'catalog.db'}"
        self.catalog = Catalog(self.catalog_url)
        self.catalog.create_schema()
        self.fed: list[tuple[str, int]] = []
        self.files = 0
        self.register(master=master, parallelism=parallelism)

    def register(
        self,
        *,
        master: str = "local[2]",
        parallelism: int = 3,
        artifact: Path | str = ARTIFACT,
        conf: Mapping[str, str] = MappingProxyType({}),
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.catalog.jobs.register(
            JOB,
            artifact=str(artifact),
            artifact_sha256=keep_job_file(open_store(str(self.store)), str(artifact), read_source(str(artifact))),
            store=str(self.store),
            master_url=master,
            conf={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                # Drivers here live for seconds: the time to start counts, not the speed they would reach.
                "spark.driver.extraJavaOptions": QUICK_START,
                "spark.executor.extraJavaOptions": QUICK_START,
                # Some look at all epochs of a run; if it lasts for over a minute, checkpoints are thinned out.
                "statecore.checkpoints.retained": "1000",
                **conf,
            },
            settings={"input": str(self.input), "output": str(self.output), **settings},
            parallelism=parallelism,
            max_parallelism=128,
        )

    def feed(self, rows: int = 200, *, numbers: Any = None) -> None:
        """Make one more file visible, all at once."""
        first = len(self.fed)
        fed = range(first, first + rows) if numbers is None else numbers
        records = [(f"k{n * 7 % KEYS}", n) for n in fed]
        self.feed_table(pa.table({"k": [k for k, _ in records], "n": pa.array([n for _, n in records], pa.int64())}))
        self.fed += records

    def feed_table(self, table: pa.Table, folder: str = "input") -> None:
        """Make a file of other columns visible, all at once, in a folder beside the input or in that."""
        staged = self.input.parent / f"staged-{self.files}"
        pq.write_table(table, staged)
        # The file source goes by modification time, which must grow from file to file.
        stamp = time.time_ns() // 1_000_000_000 - 10_000 + self.files
        os.utime(staged, (stamp, stamp))
        staged.rename(self.input.parent / folder / f"{self.files:05d}.parquet")
        self.files += 1

    @contextmanager
    def running(
        self,
        parallelism: int | None = None,
        *,
        start_from: str | None = None,
        settings: DriverSettings | None = None,
        **wishes: Any,
    ) -> Iterator[GenerationRecord]:
        """Run a driver in this process; stopped with a savepoint when the block ends."""
        if start_from is not None:
            self.catalog.jobs.set_desired(JOB, start_from=start_from, **wishes)
        self.catalog.jobs.set_desired(JOB, state="running", parallelism=parallelism)
        generation = self.catalog.generations.claim(JOB, log_path="")
        thread = threading.Thread(target=self._drive, args=(generation.generation, settings), daemon=True)
        thread.start()
        try:
            wait(lambda: self.generation().state != "launching", "the driver to run")
            yield generation
        finally:
            if not self.generation().ended:
                self.stop(f"end-{generation.generation}")
            thread.join(60)
            assert not thread.is_alive()

    def _drive(self, generation: int, settings: DriverSettings | None) -> None:
        catalog = Catalog(self.catalog_url)
        try:
            run_generation(catalog, JOB, generation, settings=settings)
        except Exception:
            newest = catalog.generations.newest(JOB)
            assert newest is not None and newest.state == "failed"
        finally:
            catalog.close()

    def generation(self) -> GenerationRecord:
        newest = self.catalog.generations.newest(JOB)
        assert newest is not None
        return newest

    def stop(self, name: str, **arguments: str) -> str | None:
        """Stop with a savepoint; returns its path in the store, or None when there is nothing to save."""
        self.catalog.jobs.set_desired(JOB, state="stopped")
        arguments = {"name": name, "reason": "test", **arguments}
        asked = self.catalog.requests.send(JOB, "stop_with_savepoint", arguments, name)
        wait(lambda: self.generation().ended, "the driver to stop")
        result = self.catalog.requests.get(asked.id).result
        return None if result is None else result["savepoint"]

    def savepoint(self, name: str, **arguments: str) -> RequestRecord:
        """Ask the running job for a savepoint, once it has an epoch to keep, and wait for the answer."""
        # Its manifest is there a moment before the epoch is published, and only then does a driver keep it.
        wait(lambda: self.catalog.epochs.of(JOB, limit=1), "an epoch")
        asked = self.catalog.requests.send(JOB, "savepoint", {"name": name, **arguments}, name)
        wait(lambda: self.catalog.requests.get(asked.id).state in ("done", "failed"), "the savepoint")
        return self.catalog.requests.get(asked.id)

    def wait_done(self) -> None:
        """Wait until everything fed is committed."""
        wait(lambda: self.rows_done() >= len(self.fed) or self.generation().state == "failed", "the records")
        assert self.rows_done() == len(self.fed), self.generation().error

    def wait_failed(self) -> None:
        """Wait until the driver gave up."""
        wait(lambda: self.generation().ended, "the driver to fail")
        assert self.generation().state == "failed"

    def rows_done(self) -> int:
        newest = self.checkpoints.newest()
        return 0 if newest is None else newest.rows_total

    @property
    def checkpoints(self) -> CheckpointStore:
        return CheckpointStore.at(str(self.store))

    def newest(self) -> Manifest:
        newest = self.checkpoints.newest()
        assert newest is not None
        return newest

    def assert_exact(self, spark: Any, manifest_path: str | None = None) -> None:
        """Compare state and outputs, as multisets, with what an uninterrupted run would have left."""
        newest = self.newest()
        path = self.store / (manifest_path or self.checkpoints.manifest_path(newest.lineage, newest.epoch))
        totals: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        last: dict[str, list[int]] = defaultdict(list)
        for k, n in self.fed:
            count, total = totals[k]
            totals[k] = (count + 1, total + n)
            if n % 50 == 0:
                del totals[k]
            last[k] = [*last[k], n][-2:]
        found = read_savepoint(spark, path, "totals", "total").collect()
        assert Counter((r.k, r["count"], r["sum"]) for r in found) == Counter((k, *v) for k, v in totals.items())
        found = read_savepoint(spark, path, "totals", "newest").collect()
        assert Counter((r.k, *r.value) for r in found) == Counter((k, *v) for k, v in last.items())
        assert self.published("seen", ("k", "n")) == Counter(self.fed)
        waiting = [(r.value,) for r in read_savepoint(spark, path, "totals", "waiting").collect()]
        tenth = Counter((n,) for _, n in self.fed if n % 10 == 0)
        assert self.published("batches", ("n",)) + Counter(waiting) == tenth

    def published(self, sink: str, columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
        """Return a sink's rows as a reader of the folder sees them."""
        folder = self.output / sink
        rows: Counter[tuple[Any, ...]] = Counter()
        for file in published_files(folder):
            rows.update(tuple(row[c] for c in columns) for row in pq.ParquetFile(file).read().to_pylist())
        return rows


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.catalog.close()
