"""ParquetSink.read: whole committed epochs, on real Spark, from any store."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import ConfigurationError, MissingFileError, SinkError
from statecore.runtime import ParquetSink
from tests.support.epochs import Epochs


@pytest.fixture(params=["local", "s3"])
def sink(request: pytest.FixtureRequest, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ParquetSink:
    if request.param == "local":
        return ParquetSink(tmp_path / "seen")
    url = request.getfixturevalue("s3_url")
    for name in (name for name in os.environ if name.startswith("AWS_")):
        # Spark, and with it the environment of its workers, may be older than the S3 server.
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    return ParquetSink(url)


@pytest.fixture
def local(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "seen")


def read(sink: ParquetSink, spark: Any, lineage: int | None = None) -> Counter[tuple[Any, ...]]:
    return Counter(map(tuple, sink.read(spark, lineage=lineage).collect()))


def test_a_reader_sees_what_was_published_and_where(spark: Any, epochs: Epochs, sink: ParquetSink) -> None:
    epochs.run(sink, [(1, "a"), (1, "a")], 1, 5)
    epochs.run(sink, [(2, None)], 1, 6)
    epochs.run(sink, [(3, "c")], 2, 6)
    first = Counter({(1, "a", 1, 5): 2, (2, None, 1, 6): 1})
    second = Counter([(3, "c", 2, 6)])
    assert read(sink, spark) == first + second
    assert read(sink, spark, lineage=1) == first
    assert read(sink, spark, lineage=2) == second
    assert sink.read(spark).dtypes == [("n", "int"), ("k", "string"), ("lineage", "int"), ("epoch", "bigint")]


def test_an_epoch_that_is_staged_or_published_in_part_is_not_seen(
    spark: Any, epochs: Epochs, sink: ParquetSink
) -> None:
    epochs.run(sink, [(1, "a")])
    outputs = epochs.staged(sink, [(2, "b")], epoch=6) + epochs.staged(sink, [(3, "c")], epoch=6)
    assert read(sink, spark) == Counter([(1, "a", 1, 5)])
    sink.staging(epochs.store.files).move(outputs[0].file.path, "lineage=1/epoch=6/seen-00000-t2.parquet")
    assert read(sink, spark) == Counter([(1, "a", 1, 5)])
    epochs.publish(sink, epochs.committed(outputs, epoch=6))
    assert read(sink, spark) == Counter([(1, "a", 1, 5), (2, "b", 1, 6), (3, "c", 1, 6)])


def test_spark_alone_reads_the_same_when_it_is_told_nothing(spark: Any, epochs: Epochs, local: ParquetSink) -> None:
    epochs.run(local, [(1, "a")])
    epochs.staged(local, [(2, "b")], epoch=6)
    assert Counter(map(tuple, spark.read.parquet(local.path).collect())) == read(local, spark)


def test_a_folder_without_published_epochs_is_an_error_that_says_so(
    spark: Any, epochs: Epochs, sink: ParquetSink
) -> None:
    epochs.staged(sink, [(1, "a")])
    with pytest.raises(
        MissingFileError, match=r"found no published epoch in .*; expected .*; correct the path, or wait"
    ):
        sink.read(spark)


def test_a_lineage_without_rows_is_an_error_that_names_the_newest(
    spark: Any, epochs: Epochs, local: ParquetSink
) -> None:
    epochs.run(local, [(1, "a")])
    with pytest.raises(MissingFileError, match=r"found no rows of lineage 2 in .*; expected .*lineage 1.*; correct"):
        local.read(spark, lineage=2)


def test_rows_of_before_a_change_of_columns_fit_the_newest_ones(spark: Any, epochs: Epochs, local: ParquetSink) -> None:
    epochs.run(local, [(1, "a")])
    schema = "more array<string> not null, n bigint not null"
    epochs.run(local, [(["x"], 2)], epoch=6, schema=schema)
    assert Counter(map(repr, local.read(spark).collect())) == Counter(
        ["Row(more=None, n=1, lineage=1, epoch=5)", "Row(more=['x'], n=2, lineage=1, epoch=6)"]
    )


def test_rows_that_do_not_fit_the_newest_ones_are_an_error_with_their_file(
    spark: Any, epochs: Epochs, local: ParquetSink
) -> None:
    epochs.run(local, [(1, "a")])
    epochs.run(local, [(2, 2)], epoch=6, schema="n int, k int")
    with pytest.raises(Exception, match=rf"{SinkError.__name__}: found rows in \S+epoch=5/seen\S+ that do not fit"):
        local.read(spark).collect()


@pytest.mark.parametrize("column", ["lineage", "epoch"])
def test_a_column_that_says_where_a_row_is_cannot_be_another_one(
    spark: Any, epochs: Epochs, local: ParquetSink, column: str
) -> None:
    epochs.run(local, [(1,)], schema=f"{column} int")
    with pytest.raises(ConfigurationError, match=rf"found the columns \['{column}'\] .*; expected .*; rename"):
        local.read(spark)


def test_a_flipped_byte_in_a_published_file_is_an_error_with_its_path(
    spark: Any, epochs: Epochs, local: ParquetSink
) -> None:
    epochs.run(local, [(n, f"{n:05d}") for n in range(1000)])
    (file,) = Path(local.path).glob("lineage=1/epoch=5/*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(Exception, match=f"CorruptFileError: found an unreadable file {file}"):
        local.read(spark).collect()
