"""A job whose code, state, savepoints and output all lie in S3, over a kill, a lost catalog and a move."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from statecore.catalog import Catalog
from statecore.catalog.rebuild import rebuild_job
from statecore.runtime import read_savepoint
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.savepoints import drop_savepoint
from statecore.snapshot.verify import verify
from statecore.storage import open_store
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import ARTIFACT, JOB, Bench
from tests.support.processes import naming
from tests.support.supervision import supervising
from tests.support.waiting import wait


@contextmanager
def supervised(catalog: Catalog, logs: Path) -> Iterator[None]:
    with supervising(catalog, logs):
        try:
            yield
        finally:
            catalog.jobs.set_desired(JOB, state="stopped")
            newest = catalog.generations.newest(JOB)
            if newest is not None and not newest.ended:
                name = f"end-{newest.generation}"
                catalog.requests.send(JOB, "stop_with_savepoint", {"name": name}, name)
                wait(lambda: catalog.generations.newest(JOB).ended, "the driver to stop")  # type: ignore[union-attr]


def newest_of(url: str) -> Manifest | None:
    return CheckpointStore.at(url).newest()


def wait_done(bench: Bench, url: str) -> Manifest:
    wait(lambda: (found := newest_of(url)) is not None and found.rows_total >= len(bench.fed), "the records")
    found = newest_of(url)
    assert found is not None and found.rows_total == len(bench.fed)
    return found


def published(url: str) -> Counter[Any]:
    store = open_store(url)
    rows: Counter[Any] = Counter()
    for entry in store.list("seen"):
        if entry.path.startswith("seen/lineage="):
            rows.update((row["k"], row["n"]) for row in pq.read_table(store.open_input(entry.path)).to_pylist())
    return rows


def test_a_job_lives_in_s3_alone(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    folder, _, _ = s3_url.rpartition("/")
    open_store(folder).write("code/totals.py", ARTIFACT.read_bytes())
    conf = bench.catalog.jobs.get(JOB).conf
    definition: dict[str, Any] = {
        "artifact": f"{folder}/code/totals.py",
        "master_url": "local[2]",
        "conf": conf,
        "settings": {"input": str(bench.input), "output": f"{folder}/output", "api_token": "secret"},
        "parallelism": 2,
        "max_parallelism": 128,
    }
    bench.catalog.jobs.register(JOB, store=s3_url, **definition)
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    bench.catalog.jobs.set_desired(JOB, state="running")
    bench.feed()
    with supervised(bench.catalog, tmp_path / "logs"):
        wait_done(bench, s3_url)
        (driver,) = naming(psutil.Process().children(recursive=True), "SparkSubmit", "--generation 1")
        driver.kill()
        bench.feed()
        wait_done(bench, s3_url)
        arguments = {"name": "copied", "target": f"{folder}/elsewhere/copied", "reason": "a move"}
        asked = bench.catalog.requests.send(JOB, "savepoint", arguments, "copied")
        wait(lambda: bench.catalog.requests.get(asked.id).state in ("done", "failed"), "the copy")
        assert bench.catalog.requests.get(asked.id).error is None
    assert bench.generation().generation == 2

    # The catalog is lost with the machine that it was on; what is in the bucket is enough.
    url = f"sqlite:///{tmp_path / 'rebuilt.db'}"
    monkeypatch.setenv(CATALOG_VARIABLE, url)
    with Catalog(url) as catalog:
        catalog.create_schema()
        found = rebuild_job(catalog, s3_url)
        assert (found.lineage, found.epoch, found.withheld) == (1, 1, ("api_token",))
        assert [record.reason for record in catalog.savepoints.of(JOB)].count("a move") == 1
        assert catalog.generations.newest(JOB).generation == 2  # type: ignore[union-attr]
        assert "api_token" not in catalog.jobs.get(JOB).settings
        bench.feed()
        catalog.jobs.set_desired(JOB, state="running", parallelism=3)
        with supervised(catalog, tmp_path / "logs"):
            newest = wait_done(bench, s3_url)
        assert (newest.generation, newest.parallelism, newest.lineage, newest.epoch) == (3, 3, 1, 2)
    assert published(f"{folder}/output") == Counter(bench.fed)

    store, path, manifest = open_savepoint(f"{folder}/elsewhere/copied")
    assert verify(store, manifest) == []
    assert drop_savepoint(store, path) > 0
    assert open_store(f"{folder}/elsewhere").list("copied") == []


def test_tables_of_a_savepoint_are_read_from_s3(
    spark: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    for name in (name for name in os.environ if name.startswith("AWS_")):
        # Spark, and with it the environment of its workers, may be older than the S3 server.
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        stopped = bench.stop("first")
    store = bench.checkpoints
    copy = CheckpointStore.at(s3_url)
    for ref in store.manifest(str(stopped)).files():
        copy.files.write(ref.path, store.read_file(ref))
    copy.files.write(str(stopped), store.files.read(str(stopped)))

    there = read_savepoint(spark, f"{s3_url}/{stopped}", "totals", "total").collect()
    here = read_savepoint(spark, bench.store / str(stopped), "totals", "total").collect()
    assert Counter(there) == Counter(here) != Counter()
