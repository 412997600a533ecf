"""The meter of a source is picked from the query's plan and sees the same files as Spark's own source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from statecore.errors import SourceError
from statecore.runtime.backlog import detection as source_meters_module
from statecore.runtime.backlog.detection import source_meters
from statecore.runtime.backlog.meters import UNKNOWN, Pending, ProgressMeter, RateMeter
from statecore.runtime.epoch.dataflow import read_sources
from statecore.runtime.job import Source

FILES = 12


def test_files_wait_as_sparks_source_lists_and_logs_them(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_meters_module, "_FILES_A_CALL", 5)
    folder, output, checkpoint = tmp_path / "in 100%", tmp_path / "out", tmp_path / "checkpoint"
    (folder / "sub").mkdir(parents=True)
    for n in range(FILES):
        (folder / f"é {n}+1.json").write_text('{"n": 1}\n')
    for unseen in ("sub/deeper.json", "notes.txt", "_being written.json", ".hidden.json"):
        (folder / unseen).write_text("x")
    reader = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).option("pathGlobFilter", "*.json")
    df = reader.json(str(tmp_path / "in*"))
    query = df.writeStream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query.start(str(output), format="parquet").awaitTermination()
    assert (checkpoint / "sources" / "0" / "9.compact").exists()

    for read in (0, 4, 10, FILES):
        (meter,) = source_meters(df, ["in"], checkpoint, lambda: None).values()
        if read:
            meter.committed(f'{{"logOffset":{read - 1}}}')
        meter.measure()
        assert meter.pending() == Pending(bytes=(FILES - read) * 9, files=FILES - read, files_read=read)

    # In a folder that a query has written, only files of committed batches count.
    written = {file.name: file.stat().st_size for file in output.glob("*.parquet")}
    (output / "stray.parquet").write_bytes(b"x" * 100)
    of_a_sink = spark.readStream.schema("n bigint").parquet(str(output))
    (meter,) = source_meters(of_a_sink, ["in"], tmp_path / "none", lambda: None).values()
    meter.measure()
    assert meter.pending() == Pending(bytes=sum(written.values()), files=len(written), files_read=0)


def test_every_source_of_a_query_has_its_own_meter_and_one_without_files_yet_has_none_waiting(
    spark: Any, tmp_path: Path
) -> None:
    static = spark.range(3)
    sources = [
        Source("none yet", lambda s: s.readStream.schema("id bigint").csv(str(tmp_path / "*.csv"))),
        Source(
            "rate", lambda s: s.readStream.format("rate").load().select(F.col("value").alias("id")).join(static, "id")
        ),
        Source("warming up", lambda s: s.readStream.format("rate").option("rampUpTime", "9s").load()),
        Source("batches", lambda s: s.readStream.format("rate-micro-batch").option("rowsPerBatch", 7).load()),
    ]
    progress = {"sources": [{}, {}, {}, {"latestOffset": {"offset": 7, "timestamp": 9}, "endOffset": {"offset": 0}}]}
    meters = source_meters(
        read_sources(spark, sources, None), [source.name for source in sources], tmp_path, lambda: progress
    )
    assert list(meters) == ["none yet", "rate", "warming up", "batches"]
    meters["none yet"].measure()
    assert meters["none yet"].pending() == Pending(bytes=0, files=0, files_read=0)
    (tmp_path / "sources" / "1").mkdir(parents=True)
    (tmp_path / "sources" / "1" / "0").write_text("v1\n0")
    assert isinstance(meters["rate"], RateMeter)
    meters["rate"].measure()
    assert (meters["rate"].pending().records or 0) > 1_700_000_000
    for name in ("warming up", "batches"):
        assert isinstance(meters[name], ProgressMeter)
        meters[name].measure()
        assert meters[name].pending() == UNKNOWN


def test_a_folder_that_is_gone_is_no_empty_one(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    df = spark.readStream.schema("n bigint").json(str(folder))
    (meter,) = source_meters(df, ["in"], tmp_path / "none", lambda: None).values()
    meter.measure()
    folder.rename(tmp_path / "away")
    with pytest.raises(SourceError, match=rf"found no \S*{folder}; expected the input of the source there"):
        meter.measure()
    (tmp_path / "away").rename(folder)
    meter.measure()
    assert meter.pending() == Pending(bytes=0, files=0, files_read=0)


def test_many_folders_are_listed_without_a_job_which_would_wait_for_the_cores_of_an_epoch(
    spark: Any, tmp_path: Path
) -> None:
    for n in range(40):
        (tmp_path / "in" / f"hour={n}").mkdir(parents=True)
        (tmp_path / "in" / f"hour={n}" / "rows.json").write_text('{"n": 1}\n')
    df = spark.readStream.schema("n bigint").json(str(tmp_path / "in"))
    (meter,) = source_meters(df, ["in"], tmp_path / "none", lambda: None).values()
    context = spark.sparkContext
    context.setJobGroup("listing", "a listing")
    try:
        meter.measure()
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert meter.pending() == Pending(bytes=40 * 9, files=40, files_read=0)
    assert not context.statusTracker().getJobIdsForGroup("listing")
