"""Savepoints of a running job, copies of them, and jobs that start elsewhere from them."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statecore import ListStateDescriptor, ValueStateDescriptor
from statecore.catalog import ClaimedSavepoint
from statecore.errors import ConfigurationError, ManifestError, StorageError
from statecore.runtime import read_savepoint, write_savepoint
from statecore.runtime.driver import savepoints, start_savepoint
from statecore.runtime.driver.side_jobs import SideJobs
from statecore.runtime.offline.copies import copy_savepoint
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import fingerprint
from statecore.snapshot.published import unpublished_sinks
from statecore.snapshot.verify import verify
from tests.support.bench import ARTIFACT, JOB, Bench
from tests.support.handmade import manifest
from tests.support.jobs import totals
from tests.support.waiting import wait

OF_TOTALS: Any = {"job": totals.build, "settings": {"input": "", "output": ""}}


def elsewhere(bench: Bench, folder: Path) -> None:
    """Go on with a store of its own, as another cluster would; the output is the same."""
    bench.store = folder
    bench.register()


def test_a_savepoint_does_not_stop_the_job_and_copies_nothing(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2) as generation:
        bench.wait_done()
        before = {entry.path for entry in bench.checkpoints.files.list("state")}
        result = bench.savepoint("now").result
        assert {entry.path for entry in bench.checkpoints.files.list("state")} == before
        bench.feed()
        bench.wait_done()
        assert bench.generation().generation == generation.generation
    assert result == {
        "savepoint": "savepoints/now/manifest.json",
        "url": f"{bench.store}/savepoints/now/manifest.json",
        "lineage": 1,
        "epoch": 0,
    }
    manifest = bench.checkpoints.manifest("savepoints/now/manifest.json")
    assert manifest.artifact is not None and manifest.artifact.name == "totals.py"
    assert bench.checkpoints.read_file(manifest.artifact.file) == ARTIFACT.read_bytes()
    ((name, (position,)),) = [(source.name, source.positions) for source in manifest.sources]
    assert (name, position) == ("records", '{"logOffset":0}')
    assert [record.path for record in bench.catalog.savepoints.of("totals")][-1].endswith(
        "savepoints/now/manifest.json"
    )


def test_a_self_contained_savepoint_needs_nothing_but_its_folder_wherever_that_is(
    spark: Any, bench: Bench, tmp_path: Path
) -> None:
    for _ in range(3):
        bench.feed()
    with bench.running(3):
        bench.wait_done()
        result = bench.savepoint("whole", target=str(tmp_path / "copy")).result
    assert result is not None and result["url"] == str(tmp_path / "copy")
    moved = (tmp_path / "copy").rename(tmp_path / "moved")
    shutil.rmtree(bench.store)

    store, _, manifest = open_savepoint(moved)
    assert verify(store, manifest) == []
    elsewhere(bench, tmp_path / "other-store")
    with bench.running(2, start_from=str(moved)):
        bench.feed()
        bench.wait_done()
    assert (bench.newest().lineage, bench.newest().epoch) == (2, 3)
    # The job has all it needs now, and the savepoint stays its owner's.
    assert verify(store, manifest) == []
    shutil.rmtree(moved)
    with bench.running(4):
        bench.feed()
        bench.wait_done()
    bench.assert_exact(spark)


def test_a_copy_that_has_just_begun_when_the_driver_stops_is_left_to_the_next_one(
    spark: Any, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, finished = threading.Event(), threading.Event()
    cancel, cancelled = spark.sparkContext.cancelJobGroup, threading.Event()

    def cancel_job_group(group: str) -> None:
        cancel(group)
        cancelled.set()

    def copy(spark: Any, source: str, target: str) -> str:
        # What is done before its Spark job begins is nothing that a driver could cancel.
        begun.set()
        cancelled.wait()
        hang = lambda batches: time.sleep(300) or batches  # type: ignore[func-returns-value]  # noqa: E731, TID251
        spark.range(1).mapInArrow(hang, "id bigint").collect()
        finished.set()
        return target

    monkeypatch.setattr(spark.sparkContext, "cancelJobGroup", cancel_job_group)

    monkeypatch.setattr(savepoints, "copy_savepoint", copy)
    request = bench.catalog.requests.send("totals", "savepoint", {"name": "now", "target": "/nowhere"}, "now")
    side_jobs = SideJobs(spark)
    writer = savepoints.SavepointWriter(bench.catalog, "totals", bench.checkpoints, spark, side_jobs)
    writer.write(request, manifest(job="totals"))
    begun.wait()
    assert side_jobs.under_way() == {request.id}
    side_jobs.close()
    assert not finished.is_set(), "nobody broke it off"
    writer.write(request, manifest(job="totals"))
    assert side_jobs.under_way() == set()
    assert bench.catalog.requests.get(request.id).state == "pending"


def test_a_claimed_savepoint_goes_when_the_job_needs_it_no_more_and_a_later_one_in_its_place_stays(
    spark: Any, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        stopped = bench.stop("first")
    source = str(bench.store / str(stopped))
    copied = copy_savepoint(spark, source, str(tmp_path / "copy"))
    elsewhere(bench, tmp_path / "other-store")

    def gone() -> bool:
        return not any(files for _, _, files in os.walk(copied))

    with monkeypatch.context() as patch:
        # As a driver leaves it that dies between its first commit and the drop.
        patch.setattr(start_savepoint, "forget_start", lambda *_: None)
        claims = ClaimedSavepoint(copied, fingerprint(open_savepoint(copied).manifest))
        with bench.running(2, start_from=copied, claims_savepoint=claims):
            bench.feed()
            bench.wait_done()
    assert not gone()
    with bench.running(2):
        wait(gone, "the claimed savepoint to go")
        wait(lambda: bench.catalog.jobs.get(JOB).start_from is None, "the start to be forgotten")
    # Nobody has claimed this one.
    copy_savepoint(spark, source, copied)
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    assert not gone()
    bench.assert_exact(spark)


def test_a_store_with_epochs_is_not_overruled_by_a_savepoint_of_another_job(
    spark: Any, bench: Bench, tmp_path: Path
) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
    descriptor = ValueStateDescriptor("total", "struct<count:bigint,sum:bigint>")
    table = spark.createDataFrame([("k1", 1, 2)], "k string, count bigint, sum bigint")
    made = write_savepoint(tmp_path / "made", {"totals": {descriptor: (table, ["k"])}}, 128, 2, **OF_TOTALS)
    with bench.running(2, start_from=made):
        bench.wait_failed()
    assert "expected an empty store to start from" in str(bench.generation().error)


def test_a_copy_of_a_damaged_savepoint_is_refused_with_the_file_and_leaves_no_savepoint(
    spark: Any, bench: Bench, tmp_path: Path
) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        stopped = bench.stop("first")
    victim = bench.newest().operators[0].subtasks[0].keyed[0].file.path
    data = bytearray((bench.store / victim).read_bytes())
    data[len(data) // 2] ^= 1
    (bench.store / victim).write_bytes(data)
    with pytest.raises(StorageError, match=victim):
        copy_savepoint(spark, str(bench.store / str(stopped)), str(tmp_path / "copy"))
    assert not (tmp_path / "copy" / "manifest.json").exists()


def test_a_copy_names_the_rows_that_were_not_published_when_it_was_made(
    spark: Any, bench: Bench, tmp_path: Path
) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        stopped = bench.stop("first")
    source = str(bench.store / str(stopped))
    assert open_savepoint(copy_savepoint(spark, source, str(tmp_path / "published"))).manifest.outputs == ()
    # As when the driver died before it told its sink.
    shutil.rmtree(bench.store / "_published")
    waiting = open_savepoint(copy_savepoint(spark, source, str(tmp_path / "waiting")))
    assert waiting.manifest.outputs == open_savepoint(source).manifest.outputs != ()
    assert unpublished_sinks(waiting.store, waiting.manifest)


def test_a_copy_into_the_store_that_it_is_of_is_refused(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        stopped = bench.stop("first")
    before = bench.checkpoints.files.list("savepoints")
    for target in (bench.store, bench.store / "savepoints/copy", bench.store / "state"):
        with pytest.raises(ConfigurationError, match="expected a folder outside"):
            copy_savepoint(spark, str(bench.store / str(stopped)), str(target))
    assert bench.checkpoints.files.list("savepoints") == before


def test_a_job_stops_with_a_savepoint_that_is_self_contained(spark: Any, bench: Bench, tmp_path: Path) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        stopped = bench.stop("last", target=str(tmp_path / "copy"))
    assert stopped == "savepoints/last/manifest.json"
    assert [record.path for record in bench.catalog.savepoints.of("totals")] == [str(tmp_path / "copy")]
    shutil.rmtree(bench.store)
    elsewhere(bench, tmp_path / "other-store")
    with bench.running(3, start_from=str(tmp_path / "copy")):
        bench.feed()
        bench.wait_done()
    bench.assert_exact(spark)


def test_tables_become_a_savepoint_that_a_job_starts_from(spark: Any, bench: Bench, tmp_path: Path) -> None:
    sums = spark.createDataFrame([("k1", 3, 7), ("k9", 1, -1)], "k string, count bigint, sum bigint")
    newest = spark.createDataFrame([("k1", [5, 2]), ("k2", []), ("k3", None)], "k string, value array<bigint>")
    waiting = spark.createDataFrame([(10,), (None,), (20,), (30,)], "value bigint")
    made = write_savepoint(
        tmp_path / "made",
        {
            "totals": {
                ValueStateDescriptor("total", "struct<count:bigint,sum:bigint>"): (sums, ["k"]),
                ListStateDescriptor("newest", "bigint"): (newest, ["k"]),
                ListStateDescriptor("waiting", "bigint"): (waiting, ()),
            }
        },
        max_parallelism=128,
        parallelism=4,
        **OF_TOTALS,
    )
    assert [tuple(r) for r in read_savepoint(spark, made, "totals", "waiting").orderBy("value").collect()] == [
        (0, 10), (1, 20), (2, 30),
    ]  # fmt: skip
    bench.feed(numbers=[1, 3])
    with bench.running(3, start_from=made):
        bench.wait_done()
    newest_path = bench.store / CheckpointStore.manifest_path(1, 0)
    found = {r.k: (r["count"], r["sum"]) for r in read_savepoint(spark, newest_path, "totals", "total").collect()}
    assert found == {"k1": (3, 7), "k9": (1, -1), "k7": (1, 1), "k21": (1, 3)}
    lists = {r.k: r.value for r in read_savepoint(spark, newest_path, "totals", "newest").collect()}
    assert lists == {"k1": [5, 2], "k7": [1], "k21": [3]}
    waiting = Counter(r.value for r in read_savepoint(spark, newest_path, "totals", "waiting").collect())
    assert waiting == Counter([10, 20, 30])


@pytest.mark.parametrize(
    ("schema", "rows", "keys", "message"),
    [
        ("k string, value int", [("a", 1)], ["k"], r"values of type int for state 'total'.*; expected bigint"),
        (
            "k string, value bigint",
            [("a", 1), ("a", 2)],
            ["k"],
            r"the key \{'k': 'a'\} 2 times.*; expected each key once",
        ),
        ("k string, v bigint", [("a", 1)], ["k"], r"found the columns \['k', 'v'\].*; expected \['value'\] among them"),
        ("k string, value bigint", [("a", 1)], ["key"], r"expected \['key'\] among them"),
        ("k string, value bigint", [("a", 1)], [], r"a value state without key columns.*; expected a list state or"),
    ],
)
def test_tables_that_do_not_fit_are_refused_and_nothing_is_written(
    spark: Any, tmp_path: Path, schema: str, rows: list[Any], keys: list[str], message: str
) -> None:
    table = spark.createDataFrame(rows, schema)
    descriptor = ValueStateDescriptor("total", "bigint")
    with pytest.raises(ConfigurationError, match=message):
        write_savepoint(tmp_path / "made", {"totals": {descriptor: (table, keys)}}, 128, 2, **OF_TOTALS)
    assert not (tmp_path / "made").exists()


def test_a_folder_with_a_savepoint_is_not_written_over(spark: Any, tmp_path: Path) -> None:
    table = spark.createDataFrame([("a", 1)], "k string, value bigint")
    operators: Any = {"totals": {ValueStateDescriptor("total", "bigint"): (table, ["k"])}}
    write_savepoint(tmp_path / "made", operators, 128, 2, **OF_TOTALS)
    with pytest.raises(ManifestError, match=r"found a savepoint in .*made; expected a folder without one"):
        write_savepoint(tmp_path / "made", operators, 128, 2, **OF_TOTALS)
