"""State in RocksDB is read and laid out anew by Spark's own reader and writer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.rocksdb import read_store, recorded_keys
from statecore.queries.providers.rocksdb.sessions import CHECKPOINT_FORMAT
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.logs import CommitLog
from statecore.queries.rows.placement import TARGET, placed
from tests.spark.queries.cells import tree
from tests.spark.queries.damage import DAMAGES
from tests.spark.queries.layouts import rewritten, rows_of
from tests.spark.queries.streams import (
    BY_NAME,
    ROCKSDB,
    ROCKSDB_CHANGELOG,
    ROCKSDB_V2,
    ROCKSDB_V2_CHANGELOG,
    run,
    session,
)
from tests.support.tiers import every_value_once, nightly

CELLS = [
    ("aggregation-complete", ROCKSDB_V2_CHANGELOG),
    ("join-left-outer", ROCKSDB_V2),
    ("transform-with-state-in-pandas", ROCKSDB_CHANGELOG),
    ("transform-with-state-ttl", ROCKSDB),
    # test_each_operator.py rescales each of these as a whole.
    nightly("global-aggregation", ROCKSDB_V2),
    nightly("session-windows", ROCKSDB_CHANGELOG),
    nightly("distinct", ROCKSDB),
    nightly("join-inner-3", ROCKSDB_CHANGELOG),
    nightly("groups-with-state", ROCKSDB_V2),
    nightly("transform-with-state", ROCKSDB_V2),
    nightly("windows-of-distinct", ROCKSDB_V2_CHANGELOG),
]


@pytest.fixture(scope="module")
def checkpoints(spark, tmp_path_factory):
    """Return what makes a checkpoint with two state partitions, once for each kind of query and provider."""
    made: dict[tuple[str, str], Path] = {}

    def checkpoint(name, provider) -> Path:
        if (name, provider.name) not in made:
            stream, place = BY_NAME[name], tmp_path_factory.mktemp("rocksdb")
            made[name, provider.name] = run(spark, stream, place, stream.batches(0, 2), provider, sink="noop")
        return made[name, provider.name]

    return checkpoint


@pytest.mark.parametrize(("name", "provider"), CELLS, ids=str)
def test_every_row_survives_and_lies_where_spark_looks_for_it(spark, tmp_path, checkpoints, name, provider):
    source = checkpoints(name, provider)
    before, misplaced = rows_of(spark, open_checkpoint(str(source)))
    assert before
    assert misplaced == 0
    target = rewritten(spark, source, tmp_path / "three", 3)
    # The order of values within a list is part of this.
    assert rows_of(spark, open_checkpoint(str(target))) == (before, 0)


def test_a_list_is_read_element_by_element(spark, checkpoints):
    rows, _ = rows_of(spark, open_checkpoint(str(checkpoints("transform-with-state-in-pandas", ROCKSDB_CHANGELOG))))
    families = {family for _, _, family, _ in rows}
    assert {"totals", "values", "names"} < families
    assert max(len(values) for (_, _, family, _), values in rows.items() if family == "values") > 1
    assert all(len(values) == 1 for (_, _, family, _), values in rows.items() if family != "values")


def test_rows_follow_the_place_that_they_are_given(spark, tmp_path, checkpoints):
    source = checkpoints("distinct", ROCKSDB)
    target = rewritten(spark, source, tmp_path / "last", 3, lambda rows: rows.withColumn(TARGET, F.lit(2)))
    checkpoint = open_checkpoint(str(target))
    rows = read_store(spark, checkpoint.url, checkpoint.operators[0].stores[0], checkpoint.batch, 1)
    assert {row["partition"] for row in rows.collect()} == {2}


def test_a_failure_of_the_place_is_raised_as_it_is(spark, tmp_path, checkpoints):
    failure = LookupError("no such column")

    def fail(rows):
        raise failure

    with pytest.raises(LookupError) as found:
        rewritten(spark, checkpoints("distinct", ROCKSDB), tmp_path / "failed", 3, fail)
    assert found.value is failure
    assert not (tmp_path / "failed").exists()


@pytest.mark.parametrize("provider", [ROCKSDB, ROCKSDB_V2], ids=str)
def test_an_operator_without_keys_has_the_one_partition_that_spark_knows(spark, tmp_path, provider):
    stream = BY_NAME["global-aggregation"]
    source = run(spark, stream, tmp_path, stream.batches(0, 2), provider, sink="noop")
    target = rewritten(spark, source, tmp_path / "three", 3)
    assert [path.name for path in (target / "state/0").iterdir() if path.name.isdecimal()] == ["0"]
    run(spark, stream, tmp_path, stream.batches(2, 3), provider, sink="noop")
    run(spark, stream, tmp_path, (), provider, checkpoint="three", sink="noop")
    twin, _ = rows_of(spark, open_checkpoint(str(source)))
    assert rows_of(spark, open_checkpoint(str(target))) == (twin, 0)


@pytest.mark.parametrize("provider", [nightly(ROCKSDB), ROCKSDB_V2], ids=str)
def test_a_store_without_rows_has_a_file_in_every_partition(spark, tmp_path, provider):
    stream = BY_NAME["join-left-outer"]
    # The right side takes even values alone.
    odd = [[row for row in rows if row[2] % 2] for rows in stream.batches(0, 2)]
    source = run(spark, stream, tmp_path, odd, provider, sink="noop")
    target = rewritten(spark, source, tmp_path / "five", 5)
    for partition in range(5):
        for store in ("left-keyToNumValues", "right-keyToNumValues"):
            assert len(list((target / f"state/0/{partition}/{store}").glob("*.zip"))) == 1
    run(spark, stream, tmp_path, stream.batches(2, 3), provider, checkpoint="five", sink="noop")


@pytest.mark.parametrize("provider", [ROCKSDB_CHANGELOG, ROCKSDB_V2_CHANGELOG], ids=str)
def test_every_partition_is_a_snapshot_that_the_query_goes_on_from_with_changelogs(
    spark, tmp_path, checkpoints, provider
):
    stream = BY_NAME["aggregation-complete"]
    source = run(spark, stream, tmp_path, stream.batches(0, 2), provider, sink="noop")
    # The writer's session has changelogs on, as that of the query has.
    target = rewritten(session(spark, provider, 2, {}), source, tmp_path / "three", 3)
    assert not list(target.rglob("*.changelog"))
    run(spark, stream, tmp_path, stream.batches(2, 3), provider, sink="noop")
    run(spark, stream, tmp_path, (), provider, checkpoint="three", sink="noop")
    assert list(target.rglob("*.changelog"))
    twin, _ = rows_of(spark, open_checkpoint(str(source)))
    assert rows_of(spark, open_checkpoint(str(target))) == (twin, 0)


@pytest.mark.parametrize("provider", [ROCKSDB, ROCKSDB_V2_CHANGELOG], ids=str)
def test_a_commit_that_says_what_sinks_do_keeps_it(spark, tmp_path, checkpoints, provider):
    source = tmp_path / "named-sinks"
    shutil.copytree(checkpoints("aggregation-complete", provider), source)
    checkpoint = open_checkpoint(str(source))
    sinks = {"out": {"sinkName": "out", "providerName": "noop", "apiVersion": "v2", "isActive": True}}
    newest = source / f"commits/{checkpoint.batch}"
    newest.write_bytes(CommitLog(3, {**checkpoint.commit.body, "sinkMetadataMap": sinks}).encode())
    (newest.parent / f".{newest.name}.crc").unlink()
    before, _ = rows_of(spark, open_checkpoint(str(source)))
    made = open_checkpoint(str(rewritten(spark, source, tmp_path / "three", 3)))
    assert rows_of(spark, made) == (before, 0)
    assert made.commit.version == 3
    assert made.commit.body["sinkMetadataMap"] == sinks
    assert made.checkpoint_format == checkpoint.checkpoint_format


@pytest.mark.parametrize("provider", [ROCKSDB, ROCKSDB_V2_CHANGELOG], ids=str)
def test_reading_changes_neither_the_checkpoint_nor_the_settings_of_the_session(spark, checkpoints, provider):
    source = checkpoints("aggregation-complete", provider)
    files, settings = tree(source), dict(spark.conf.getAll)
    rows_of(spark, open_checkpoint(str(source)))
    assert tree(source) == files
    assert dict(spark.conf.getAll) == settings
    assert CHECKPOINT_FORMAT not in settings


@pytest.mark.parametrize("name", [nightly("aggregation-complete"), nightly("join-left-outer"), "transform-with-state"])
def test_spark_recorded_as_many_keys_as_are_read(spark, tmp_path, checkpoints, name):
    made = rewritten(spark, checkpoints(name, ROCKSDB_V2), tmp_path / "three", 3)
    for path in (checkpoints(name, ROCKSDB_V2), made):
        checkpoint = open_checkpoint(str(path))
        ids = checkpoint.commit.unique_ids
        for operator in checkpoint.operators:
            for index, store in enumerate(operator.stores):
                rows = read_store(spark, checkpoint.url, store, checkpoint.batch, 2)
                keys = rows.groupBy("partition").agg(F.count_distinct("column_family_name", "key_bytes").alias("keys"))
                found = {row["partition"]: row["keys"] for row in keys.collect()}
                assert ids is not None
                named = [partition[index] for partition in ids[operator.number]]
                recorded = recorded_keys(checkpoint.store, store, checkpoint.version, named)
                assert recorded == tuple(found.get(partition, 0) for partition in range(store.partitions))


# ------------------------------------------------------------------------------------------------------------ damage

FILES = {
    "snapshot": (ROCKSDB, "state/0/1/*.zip"),
    "snapshot-2": (ROCKSDB_V2, "state/0/1/*.zip"),
    "table": (ROCKSDB, "state/0/1/SSTs/*.sst"),
    "table-2": (ROCKSDB_V2, "state/0/1/SSTs/*.sst"),
    "changelog": (ROCKSDB_CHANGELOG, "state/0/1/*.changelog"),
    "changelog-2": (ROCKSDB_V2_CHANGELOG, "state/0/1/*.changelog"),
}


@pytest.mark.parametrize(("kind", "damage", "sums"), every_value_once(FILES, DAMAGES, ["with-checksums", "without"]))
def test_damage_is_named_without_a_stack_of_java(spark, tmp_path, checkpoints, kind, damage, sums):
    provider, pattern = FILES[kind]
    source = tmp_path / "damaged"
    shutil.copytree(checkpoints("aggregation-complete", provider), source)
    newest = max(source.glob(pattern), key=lambda path: path.stat().st_mtime_ns)
    if sums == "without":
        # A checkpoint that comes from an object store has none.
        for path in source.rglob("*.crc"):
            path.unlink()
    DAMAGES[damage](newest)
    with pytest.raises(CheckpointDamagedError) as found:
        rows_of(spark, open_checkpoint(str(source)))
    message = str(found.value)
    assert message.startswith("found ")
    assert "\n" not in message
    assert "Exception" not in message
    assert newest.name in message


def test_a_damaged_row_that_spark_reads_over_is_named(spark, tmp_path, checkpoints):
    source = tmp_path / "damaged"
    shutil.copytree(checkpoints("aggregation-complete", ROCKSDB), source)
    for path in source.rglob("*.crc"):
        path.unlink()
    table = max(source.glob("state/0/1/SSTs/*.sst"), key=lambda path: path.stat().st_mtime_ns)
    data = table.read_bytes()
    table.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(CheckpointDamagedError, match=f"{table.name} not whole"):
        rows_of(spark, open_checkpoint(str(source)))
    reader = spark.read.format("statestore").option("_readAllColumnFamilies", "true").load(str(source))
    whole = spark.read.format("statestore").option("_readAllColumnFamilies", "true")
    # If this fails, Spark has begun to look at the state of its iterators.
    assert reader.count() < whole.load(str(checkpoints("aggregation-complete", ROCKSDB))).count()


def test_a_partition_that_is_gone_is_named_though_spark_would_read_on(spark, tmp_path, checkpoints):
    source = tmp_path / "short"
    shutil.copytree(checkpoints("distinct", ROCKSDB), source)
    shutil.rmtree(source / "state/0/1")
    checkpoint = open_checkpoint(str(source))
    with pytest.raises(CheckpointDamagedError, match="found no folder state/0/1"):
        read_store(spark, checkpoint.url, checkpoint.operators[0].stores[0], checkpoint.batch, 1)
    with pytest.raises(CheckpointDamagedError, match="found no folder state/0/1"):
        rewritten(spark, source, tmp_path / "target", 3, lambda rows: placed(rows, 3))
