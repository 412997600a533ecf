"""An input file that is deleted before its epoch has read it fails the epoch, and is not forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statecore.runtime import read_savepoint
from tests.support.bench import Bench
from tests.support.jobs import two_sources
from tests.support.waiting import wait

FILES = 4


@pytest.fixture
def gone(bench: Bench) -> Iterator[Path]:
    """The second of four files, moved away after Spark has chosen it and before its epoch; a driver failed on it."""
    hold = bench.input.parent / "hold"
    hold.touch()
    bench.register(artifact=Path(two_sources.__file__))
    for n in range(FILES):
        at = pa.array([n], pa.timestamp("s", "UTC"))
        bench.feed_table(pa.table({"k": ["k"], "n": pa.array([n], pa.int64()), "at": at}))
    aside = bench.input.parent / "aside.parquet"
    with bench.running(2):
        wait((bench.input.parent / "held").exists, "the first epoch to be held up")
        # Spark has listed all four, and reads the next three without another listing.
        (bench.input / "00001.parquet").rename(aside)
        hold.unlink()
        bench.wait_failed()
    yield aside
    aside.unlink(missing_ok=True)


def numbers(bench: Bench, spark: Any) -> list[int]:
    newest = bench.newest()
    path = str(bench.store / bench.checkpoints.manifest_path(newest.lineage, newest.epoch))
    (row,) = read_savepoint(spark, path, "counts", "every").collect()
    return sorted(row.value)


def test_the_epoch_fails_and_names_the_file(bench: Bench, gone: Path) -> None:
    assert bench.newest().epoch == 0
    error = bench.generation().error
    assert error is not None
    assert "found 1 input files of epoch 1, gone from source 'files'" in error
    assert str(bench.input / "00001.parquet") in error
    assert "ignoreMissingFiles" in error


def test_the_next_driver_refuses_until_the_file_is_back(bench: Bench, gone: Path, spark: Any) -> None:
    with bench.running(2):
        bench.wait_failed()
    assert "of an earlier epoch, gone from source 'files'" in str(bench.generation().error)
    gone.rename(bench.input / "00001.parquet")
    with bench.running(2):
        wait(lambda: numbers(bench, spark) == [0, 1, 2, 3], "all files")


def test_what_a_superseded_driver_did_not_find_stops_no_later_one(bench: Bench, gone: Path, spark: Any) -> None:
    record = bench.store / "missing-input.json"
    written = record.read_bytes()
    gone.rename(bench.input / "00001.parquet")
    with bench.running(2):
        wait(lambda: numbers(bench, spark) == [0, 1, 2, 3], "all files")
    # A driver that this one replaced writes late, when the file has been read and removed.
    (bench.input / "00001.parquet").unlink()
    record.write_bytes(written)
    with bench.running(2):
        assert bench.generation().state == "running"
    assert not record.exists()


def test_a_job_that_ignores_missing_files_goes_on_without_it(
    bench: Bench, gone: Path, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    bench.register(artifact=Path(two_sources.__file__), conf={"spark.sql.files.ignoreMissingFiles": "true"})
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with bench.running(2):
            wait(lambda: numbers(bench, spark) == [0, 2, 3], "the other files")
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert "an earlier epoch goes on without 1 input files of source files" in caplog.text
    assert not (bench.store / "missing-input.json").exists()
