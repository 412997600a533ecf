"""What is damaged, or changes meanwhile, is refused: PATH stays bit by bit as it is, and no TARGET appears."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import statecore.queries.rescale as rescaling
from statecore.errors import CheckpointDamagedError, CheckpointError, CheckpointRefusedError, NotProvenError
from statecore.queries.providers.state_rows import state_rows
from statecore.queries.proving.verify import verify
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.rescale import rescale
from statecore.queries.rows.placement import placed
from tests.spark.queries.cells import tree
from tests.spark.queries.damage import DAMAGES, truncate
from tests.spark.queries.streams import BY_NAME, HDFS, PROVIDERS, ROCKSDB, Provider, run
from tests.support.shell import assert_refused
from tests.support.shell import run as shell
from tests.support.tiers import every_value_once

Made = Callable[[str, Provider], Path]


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a query's checkpoint after two batches with input; it is made once, for tests that leave it as it is."""
    places: dict[tuple[str, str], Path] = {}

    def make(name: str, provider: Provider) -> Path:
        if (name, provider.name) not in places:
            place = tmp_path_factory.mktemp("made")
            stream = BY_NAME[name]
            places[name, provider.name] = run(spark, stream, place, stream.batches(0, 2), provider, sink="noop")
        return places[name, provider.name]

    return make


def _state_file(path: Path, version: int) -> Path:
    return next(each for each in path.glob(f"state/0/1/{version}[._]*") if each.suffix != ".crc")


def assert_nothing_made(
    spark: SparkSession, path: Path, target: Path, error: type[CheckpointError], *parts: str
) -> CheckpointError:
    """Rescale a checkpoint in vain."""
    before = tree(path)
    with pytest.raises(error) as caught:
        rescale(str(path), str(target), 3, spark=spark)
    assert tree(path) == before
    assert not target.exists()
    assert str(caught.value).count(";") >= 2, caught.value
    assert ".attempt-" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)
    return caught.value


@pytest.mark.parametrize(("provider", "damage"), every_value_once(PROVIDERS, DAMAGES))
def test_a_damaged_state_file_is_noticed(
    spark: SparkSession, made: Made, tmp_path: Path, provider: Provider, damage: str
) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(made("aggregation-update", provider), path)
    DAMAGES[damage](_state_file(path, 2))
    assert_nothing_made(spark, path, tmp_path / "target", CheckpointDamagedError)


@pytest.mark.parametrize("provider", [HDFS, ROCKSDB], ids=str)
def test_a_missing_partition_is_noticed(spark: SparkSession, made: Made, tmp_path: Path, provider: Provider) -> None:
    path = tmp_path / "checkpoint"
    shutil.copytree(made("aggregation-update", provider), path)
    shutil.rmtree(path / "state/0/1")
    assert_nothing_made(spark, path, tmp_path / "target", CheckpointDamagedError, "state/0/1")


@pytest.mark.parametrize("damage", ["flipped", "removed"])
def test_a_damaged_log_of_a_source_is_noticed_in_a_checkpoint_and_in_a_copy(
    spark: SparkSession, made: Made, tmp_path: Path, damage: str
) -> None:
    path, target = tmp_path / "checkpoint", tmp_path / "target"
    shutil.copytree(made("aggregation-update", HDFS), path)
    rescale(str(path), str(target), 3, spark=spark)
    DAMAGES[damage](target / "sources/0/1")
    with pytest.raises(CheckpointDamagedError, match="sources/0"):
        verify(str(path), str(target), spark=spark)
    DAMAGES[damage](path / "sources/0/1")
    assert_nothing_made(spark, path, tmp_path / "another", CheckpointDamagedError, "sources/0")


@pytest.mark.parametrize("provider", PROVIDERS, ids=str)
def test_an_older_file_under_a_stale_checksum_is_noticed(
    spark: SparkSession, made: Made, tmp_path: Path, provider: Provider
) -> None:
    """The file is whole, and so is all state that it leads to."""
    path = tmp_path / "checkpoint"
    shutil.copytree(made("aggregation-update", provider), path)
    older, newest = (_state_file(path, version) for version in (1, 2))
    shutil.copyfile(older, newest)
    assert_nothing_made(spark, path, tmp_path / "target", CheckpointDamagedError, newest.name)


def test_another_partitions_files_with_their_checksums_are_refused(
    spark: SparkSession, made: Made, tmp_path: Path
) -> None:
    """Each of their rows lies where Spark does not look for it."""
    path = tmp_path / "checkpoint"
    shutil.copytree(made("aggregation-update", HDFS), path)
    shutil.rmtree(path / "state/0/1")
    shutil.copytree(path / "state/0/0", path / "state/0/1")
    assert_nothing_made(spark, path, tmp_path / "target", CheckpointRefusedError, "operator 0")


@pytest.mark.parametrize("log", ["offsets/1", "commits/1", "metadata", "state/0/_metadata/metadata"])
def test_a_damaged_log_ends_the_command_with_1(made: Made, tmp_path: Path, log: str) -> None:
    path, target = tmp_path / "checkpoint", tmp_path / "target"
    shutil.copytree(made("aggregation-update", HDFS), path)
    truncate(path / log)
    before = tree(path)
    assert_refused(shell("checkpoint", "rescale", path, target, "--partitions", 3), log)
    assert tree(path) == before
    assert not target.exists()


def test_a_query_that_commits_meanwhile_is_noticed(spark: SparkSession, made: Made, tmp_path: Path) -> None:
    path, target = tmp_path / "checkpoint", tmp_path / "target"
    shutil.copytree(made("aggregation-update", HDFS), path)

    def commit(_: int, __: int) -> None:
        for log in ("offsets", "commits"):
            shutil.copyfile(path / log / "1", path / log / "2")

    with pytest.raises(CheckpointRefusedError, match="stop the query"):
        rescale(str(path), str(target), 3, spark=spark, report=commit)
    assert not target.exists()


def _moved(rows: DataFrame, row: Column) -> DataFrame:
    return rows.withColumn("target", F.when(row, (F.col("target") + 1) % 3).otherwise(F.col("target")))


def _changed(rows: DataFrame, row: Column) -> DataFrame:
    value = F.col("value_bytes")
    other = F.concat(F.substring(value, 1, 8), F.lit(b"\x07"), F.expr("substring(value_bytes, 10)"))
    return rows.withColumn("value_bytes", F.when(row, other).otherwise(value))


def _lost(rows: DataFrame, row: Column) -> DataFrame:
    return rows.where(~row)


def _reordered(rows: DataFrame, row: Column) -> DataFrame:
    return rows.withColumn("order_in_source", -F.col("order_in_source"))


def _some_key(spark: SparkSession, path: Path) -> bytes:
    checkpoint = open_checkpoint(str(path))
    operator = checkpoint.operators[0]
    row = state_rows(spark, checkpoint, operator, operator.stores[0]).first()
    assert row is not None
    return bytes(row["key_bytes"])


@pytest.mark.parametrize(("wrong", "provider"), every_value_once([_moved, _changed, _lost], [HDFS, ROCKSDB]))
def test_one_wrong_row_is_noticed(
    spark: SparkSession,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: Provider,
    wrong: Callable[[DataFrame, Column], DataFrame],
) -> None:
    path = made("aggregation-update", provider)
    _sabotage(monkeypatch, wrong, F.col("key_bytes") == F.lit(_some_key(spark, path)))
    assert_nothing_made(spark, path, tmp_path / "target", NotProvenError, "operator 0", "default")


@pytest.mark.parametrize(("wrong", "provider"), every_value_once([_moved, _changed, _lost], [HDFS, ROCKSDB]))
def test_one_wrong_row_of_a_finished_copy_is_noticed_by_verify(
    spark: SparkSession,
    made: Made,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    provider: Provider,
    wrong: Callable[[DataFrame, Column], DataFrame],
) -> None:
    path, target = made("aggregation-update", provider), tmp_path / "target"
    _sabotage(monkeypatch, wrong, F.col("key_bytes") == F.lit(_some_key(spark, path)))
    monkeypatch.setattr(rescaling, "check_same_state", lambda before, after: None)
    rescale(str(path), str(target), 3, spark=spark)
    before = tree(path), tree(target)
    with pytest.raises(NotProvenError, match="operator 0, store default"):
        verify(str(path), str(target), spark=spark)
    assert (tree(path), tree(target)) == before


def test_a_list_in_another_order_is_noticed(
    spark: SparkSession, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _sabotage(monkeypatch, _reordered, F.lit(True))
    path = made("transform-with-state-in-pandas", ROCKSDB)
    assert_nothing_made(spark, path, tmp_path / "target", NotProvenError, "column family values", "order")


def _sabotage(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[DataFrame, Column], DataFrame], row: Column) -> None:
    right = placed
    monkeypatch.setattr(rescaling, "placed", lambda rows, partitions: wrong(right(rows, partitions), row))
