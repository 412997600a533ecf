"""A job with every kind of sink, killed while it publishes."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from statecore.runtime import ParquetSink
from statecore.runtime.faults import FaultPoint
from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, Bench
from tests.support.jobs import three_sinks
from tests.support.postgres import PASSWORD, Database
from tests.support.supervision import supervised
from tests.support.waiting import wait


def test_all_sinks_have_every_row_once_though_the_driver_is_killed_before_and_while_it_publishes(
    spark: Any, bench: Bench, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = tmp_path / "hits"
    hits.mkdir()
    place = {"PGHOST": "127.0.0.1", "PGPORT": str(database.server.port), "PGDATABASE": database.name}
    faults = {"STATECORE_FAULTS": f"{FaultPoint.MANIFEST_WRITTEN}@1", "STATECORE_FAULT_DIR": str(hits)}
    user = {"PGUSER": "tester", "PGPASSWORD": PASSWORD, CATALOG_VARIABLE: bench.catalog_url}
    for name, value in {**place, **faults, **user}.items():
        monkeypatch.setenv(name, value)
    bench.register(artifact=Path(three_sinks.__file__))
    for _ in range(5):
        bench.feed()

    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=2)
    with supervised(bench, tmp_path / "logs"):
        wait(lambda: bench.rows_done() >= len(bench.fed), "all records, over both kills")
    assert bench.generation().generation == 3, "one generation more than there were kills"

    expected = numbered(bench.fed)
    published = ParquetSink(bench.output / "files").read(spark)
    assert Counter(map(tuple, published.select("k", "n", "seen").collect())) == expected
    assert Counter(database("SELECT k, n, seen FROM numbered")) == expected
    kept = spark.read.parquet(str(bench.output / "function"))
    assert Counter(map(tuple, kept.select("k", "n", "seen").collect())) == expected
    # The sink that was killed after the call and before its marker is called again.
    assert (bench.output / "calls").read_text().split() == ["1-0", "1-1", "1-2", "1-3", "1-3", "1-4"]
    assert database("SELECT job, sink, lineage, epoch FROM statecore_published") == [(JOB, "table", 1, 4)]
    assert bench.checkpoints.files.list("_staged") == []
    assert list((bench.output / "files" / "_staged").iterdir()) == []


def numbered(fed: list[tuple[str, int]]) -> Counter[tuple[str, int, int]]:
    seen: dict[str, int] = defaultdict(int)
    rows: Counter[Any] = Counter()
    for k, n in fed:
        seen[k] += 1
        rows[k, n, seen[k]] += 1
    return rows
