"""The driver of a job that is a query of Spark's own: batches are whole, and each output is there once."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from statecore.catalog import Catalog, JobRecord
from statecore.catalog.records import RequestKind
from statecore.errors import CheckpointDamagedError, NotProvenError, QueryDefinitionError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.operations.kinds import kind_of
from statecore.queries.job.current_checkpoint import newest_batch
from statecore.queries.job.driver.generation import run_query
from statecore.queries.job.dropping import surplus_checkpoints
from statecore.queries.job.heads import Heads
from statecore.queries.job.start import begin_from
from statecore.queries.proving.query_trial import try_query
from statecore.queries.proving.wholeness import check_whole
from statecore.queries.reading.checkpoint import newest_batches, open_checkpoint
from statecore.queries.rescale import rescale
from statecore.snapshot.job_files import keep_job_file
from statecore.storage import open_store
from tests.support.waiting import wait

QUERY = """
import json
import pathlib
import time

from pyspark.sql import functions as F


def build(spark, settings):
    rows = spark.readStream.schema("k long, v long").option("maxFilesPerTrigger", 1).json(settings["in"])
    totals = rows.groupBy("k").agg(F.sum("v").alias("v"))

    def write(batch, number):
        out = pathlib.Path(settings["out"])
        (out / "beginning").write_text(str(number))
        # A reader must never find it empty.
        (out / "beginning").rename(out / "begun")
        hold = out / "hold"
        while hold.exists():
            time.sleep(0.05)
        if (out / "fail").exists():
            raise ValueError("the warehouse is closed")
        (out / "made").write_text(json.dumps(sorted(map(list, batch.collect()))))
        # A second output of the same batch fails.
        (out / f"{number}.json").hardlink_to(out / "made")
        (out / "made").unlink()

    writer = totals.writeStream.outputMode("update").foreachBatch(write)
    return writer.trigger(**json.loads(settings["trigger"]))
"""
NO_WRITER = QUERY.replace('return writer.trigger(**json.loads(settings["trigger"]))', "return totals")
TABLE = """
import json


def build(spark, settings):
    rows = spark.readStream.schema("k long, v long").json(settings["in"])
    keys = rows.dropDuplicates(["k"]).writeStream.outputMode("append").option("path", settings["out"] + "/table")
    return keys.trigger(**json.loads(settings["trigger"])), "keys_seen"
"""
QUICK = json.dumps({"processingTime": "0 seconds"})


class Place:
    """A registered job with its input and output."""

    def __init__(self, root: Path, catalog: Catalog) -> None:
        self.root = root
        self.catalog = catalog
        self.out, self.input = root / "out", root / "in"
        self.out.mkdir()
        self.input.mkdir()

    @property
    def checkpoint(self) -> Path:
        return self.root / "checkpoint"

    @property
    def job(self) -> JobRecord:
        return self.catalog.jobs.get("totals")

    def register(self, trigger: str = QUICK, query: str = QUERY, checkpoint: Path | None = None, n: int = 2) -> None:
        store = str(self.root / "store")
        self.catalog.jobs.register(
            "totals",
            artifact="/q/totals.py",
            artifact_sha256=keep_job_file(open_store(store), "/q/totals.py", query.encode()),
            store=store,
            master_url="local[2]",
            settings={"in": str(self.input), "out": str(self.out), "trigger": trigger},
            parallelism=n,
            max_parallelism=MAX_KEY_GROUPS,
            checkpoint=str(checkpoint or self.checkpoint),
        )

    def feed(self, *numbers: int) -> None:
        """Write one file for each number, of three rows; a batch reads one file."""
        for number in numbers:
            rows = [{"k": number % 2, "v": number}, {"k": 2, "v": 1}, {"k": number, "v": 0}]
            made = self.root / "made.json"
            made.write_text("\n".join(map(json.dumps, rows)))
            # Spark reads files in the order of their times, which might be the same.
            os.utime(made, (number, number))
            made.rename(self.input / f"{number:03}.json")

    def batches(self) -> dict[int, list[list[int]]]:
        return {int(each.stem): json.loads(each.read_text()) for each in self.out.glob("[0-9]*.json")}

    def totals(self) -> dict[int, int]:
        found = self.batches()
        return {key: total for number in sorted(found) for key, total in found[number]}

    def begin(self) -> Running:
        self.catalog.jobs.set_desired("totals", state="running")
        claimed = self.catalog.generations.claim("totals", log_path="x.log")
        return Running(self, claimed.generation)


class Running:
    """A driver in a thread of this process."""

    def __init__(self, place: Place, generation: int) -> None:
        self.place, self.generation = place, generation
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            run_query(self.place.catalog, "totals", self.generation)
        except BaseException as error:
            self.error = error

    def done(self, count: int) -> None:
        """Wait until so many batches are committed."""
        wait(lambda: self._committed() >= count or not self._thread.is_alive(), "batches")
        assert self._thread.is_alive(), self.error

    def _committed(self) -> int:
        newest = newest_batch(self.place.job)
        return 0 if newest is None else newest + 1

    def ask(self, kind: RequestKind, name: str) -> int:
        request = self.place.catalog.requests.send("totals", kind, {"name": name, "reason": "test"}, f"{kind}/{name}")
        return request.id

    def answer(self, request: int) -> dict[str, object]:
        found = wait(lambda: self._finished(request), "the answer")
        assert found is not None
        return found

    def _finished(self, request: int) -> dict[str, object] | None:
        found = self.place.catalog.requests.get(request)
        assert found.state != "failed", found.error
        return found.result

    def stop(self, name: str = "end") -> dict[str, object]:
        self.place.catalog.jobs.set_desired("totals", state="stopped")
        made = self.answer(self.ask("stop_with_savepoint", name))
        self.ended()
        return made

    def ended(self) -> None:
        wait(lambda: not self._thread.is_alive(), "the driver to end")


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Iterator[Place]:
    kept = spark.conf.get("spark.sql.shuffle.partitions")
    with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.create_schema()
        yield Place(tmp_path, catalog)
    assert kept is not None
    spark.conf.set("spark.sql.shuffle.partitions", kept)
    # Of a test that failed: a query ends after a batch that is held, so never.
    (tmp_path / "out/hold").unlink(missing_ok=True)
    for query in spark.streams.active:
        query.stop()


def expected(*numbers: int) -> dict[int, int]:
    totals: Counter[int] = Counter()
    for number in numbers:
        totals.update({number % 2: number})
        totals.update({2: 1})
        totals.update({number: 0})
    return dict(totals)


def test_a_stop_ends_the_query_after_the_batch_in_flight_and_a_start_goes_on_after_it(place: Place) -> None:
    place.register()
    place.feed(10, 11)
    first = place.begin()
    first.done(2)
    (place.out / "hold").touch()
    place.feed(12)
    wait(lambda: (place.out / "begun").read_text() == "2", "a batch that is held")
    request = first.ask("stop_with_savepoint", "noon")
    wait(lambda: place.catalog.requests.get(request).state == "taken", "the driver to take the request")
    place.feed(13)
    (place.out / "hold").unlink()
    made = first.answer(request)
    first.ended()
    assert first.error is None
    # The batch in flight was committed, and none was logged after it.
    assert newest_batches(open_store(str(place.checkpoint))) == (2, 2)
    savepoint = open_checkpoint(str(made["url"]))
    assert (savepoint.batch, savepoint.pending, made["epoch"]) == (2, None, 2)
    assert made["url"] == f"{place.root}/store/savepoints/noon"
    newest = place.catalog.generations.newest("totals")
    assert newest is not None
    assert (newest.state, newest.epoch) == ("stopped", 2)
    second = place.begin()
    second.done(4)
    second.stop()
    assert place.totals() == expected(10, 11, 12, 13)
    assert sorted(place.batches()) == [0, 1, 2, 3]
    recorded = place.catalog.epochs.of("totals")
    assert [(each.lineage, each.epoch, each.rows, each.rows_total) for each in recorded] == [
        (1, 0, 3, 3), (1, 1, 3, 6), (1, 2, 3, 9), (1, 3, 3, 12),
    ]  # fmt: skip
    assert recorded[-1].state_rows == len(expected(10, 11, 12, 13))
    assert recorded[-1].parallelism == 2


def test_a_savepoint_of_a_running_query_is_a_checkpoint_that_can_be_rescaled(spark: SparkSession, place: Place) -> None:
    place.register()
    place.feed(*range(10, 14))
    driver = place.begin()
    driver.done(2)
    made = driver.answer(driver.ask("savepoint", "on-the-way"))
    place.feed(14)
    driver.done(5)
    driver.stop()
    copy = open_checkpoint(str(made["url"]))
    assert copy.batch == made["epoch"]
    assert check_whole(copy.url, spark=spark).rows == len(expected(*range(10, 11 + copy.batch)))
    result = rescale(str(made["url"]), str(place.root / "three"), 3, spark=spark)
    assert result.proof.batch == made["epoch"]
    # A job that goes on from it counts its batches in the next lineage.
    place.register(checkpoint=place.root / "three", n=3)
    Heads(place.job.store).append(str(place.root / "three"), "a test", 1, is_base=True)
    for number in range(copy.batch + 1, 5):
        (place.out / f"{number}.json").unlink()
    again = place.begin()
    # The file source had listed later files already, which are one batch now.
    wait(lambda: place.totals() == expected(*range(10, 15)), "the totals")
    again.stop("again")
    assert {(each.lineage, each.parallelism) for each in place.catalog.epochs.of("totals")} == {(1, 2), (2, 3)}


def test_a_query_file_that_spark_refuses_on_the_checkpoint_is_found_while_the_query_runs(
    spark: SparkSession, place: Place
) -> None:
    place.register()
    place.feed(*range(10, 20))
    driver = place.begin()
    driver.done(2)

    def tried(old: str, new: str) -> int:
        made = place.root / "new.py"
        made.write_text(QUERY.replace(old, new))
        return try_query(str(place.checkpoint), made, place.job.settings, spark=spark)

    assert tried('.alias("v")', '.alias("total")') >= 1
    with pytest.raises(NotProvenError, match=r"does not restart .* schema"):
        tried('F.sum("v")', 'F.avg("v")')
    with pytest.raises(NotProvenError, match="does not restart"):
        tried("totals = rows.", 'totals = rows.dropDuplicates(["v"]).')
    # Nothing of it reached the query's sink, or its checkpoint.
    driver.done(10)
    driver.stop()
    assert place.totals() == expected(*range(10, 20))


def test_a_job_goes_on_from_a_savepoint_and_leaves_later_batches_behind(spark: SparkSession, place: Place) -> None:
    place.register()
    place.feed(10, 11)
    first = place.begin()
    first.done(2)
    made = first.stop("noon")
    place.feed(12)
    second = place.begin()
    second.done(3)
    second.stop("evening")
    # The sink would refuse batch 2 a second time.
    (place.out / "2.json").unlink()
    begun = begin_from(place.job, str(made["url"]), "again", roll_back=True)
    Heads(place.job.store).append(begun.url, "a test", 2, is_base=True)
    third = place.begin()
    third.done(3)
    third.stop("night")
    assert place.totals() == expected(10, 11, 12)
    recorded = [(each.lineage, each.epoch) for each in place.catalog.epochs.of("totals")]
    assert recorded == [(1, 0), (1, 1), (1, 2), (2, 2)]
    # A savepoint reads as one, in a process of its own; nobody needs the first checkpoint, which is not the store's.
    savepoints = kind_of(place.job).savepoints
    assert savepoints.check(savepoints.address("savepoints/noon")).startswith("5 rows of state at batch 1")
    damaged = Path(begun.url, "state/0/1/2.delta")
    damaged.write_bytes(damaged.read_bytes()[:-3])
    with pytest.raises(CheckpointDamagedError, match=r"state/0/1/2\.delta"):
        check_whole(begun.url, spark=spark)
    assert list(surplus_checkpoints(place.catalog, "totals", 0)) == []
    Heads(place.job.store).append(str(place.checkpoint), "a test", 3, is_base=True)
    place.catalog.jobs.set_desired("totals", checkpoint=str(place.checkpoint))
    savepoints.remove_surplus(place.catalog, 3_600_000)
    assert Path(begun.url).exists()
    savepoints.remove_surplus(place.catalog, 0)
    assert not Path(begun.url).exists()


def test_a_query_that_ends_by_itself_says_so(place: Place) -> None:
    place.register(trigger=json.dumps({"availableNow": True}))
    place.feed(10, 11)
    driver = place.begin()
    driver.ended()
    assert driver.error is None
    newest = place.catalog.generations.newest("totals")
    assert newest is not None
    assert newest.ended_by_itself and newest.trigger_ms is None
    assert place.totals() == expected(10, 11)


def test_a_query_with_a_table_writes_to_it(spark: SparkSession, place: Place) -> None:
    place.register(query=TABLE, trigger=json.dumps({"availableNow": True}))
    place.feed(10, 11)
    driver = place.begin()
    driver.ended()
    try:
        assert driver.error is None
        assert sorted(row.k for row in spark.table("keys_seen").collect()) == [0, 1, 2, 10, 11]
    finally:
        spark.sql("DROP TABLE IF EXISTS keys_seen")


def test_an_idle_query_stops(place: Place) -> None:
    place.register(trigger=json.dumps({"processingTime": "1 hour"}))
    place.feed(10)
    driver = place.begin()
    driver.done(1)
    assert driver.stop()["epoch"] == 0
    again = place.begin()
    # Without a word of it, a verification would wait for a batch.
    wait(lambda: 2 in {each.generation for each in place.catalog.epochs.backlogs("totals")}, "word of an idle query")
    # Its trigger does not look for an hour; the folder is looked into meanwhile.
    newest = place.catalog.generations.newest("totals")
    assert newest is not None and newest.trigger_ms == 3_600_000
    place.feed(11, 12)
    wait(
        lambda: [each.files for each in place.catalog.epochs.backlogs("totals")[-1].sources] == [2],
        "the files that wait",
    )
    assert again.stop("again")["epoch"] == 0


def test_another_user_of_the_checkpoint_is_noticed_by_the_batch_that_both_begin(place: Place) -> None:
    place.register()
    place.feed(10)
    driver = place.begin()
    driver.done(1)
    shutil.copy(place.checkpoint / "offsets/0", place.checkpoint / "offsets/1")
    place.feed(11)
    driver.ended()
    newest = place.catalog.generations.newest("totals")
    assert newest is not None and newest.error is not None
    assert f"found another query that writes to {place.checkpoint}; expected job 'totals' alone" in newest.error
    assert place.totals() == expected(10)


def test_a_newer_generation_ends_the_query(place: Place) -> None:
    place.register()
    place.feed(10)
    driver = place.begin()
    driver.done(1)
    place.catalog.generations.import_stopped("totals", 7, parallelism=2, lineage=None, epoch=None)
    driver.ended()
    assert "newer generation" in str(driver.error)


class TestRollback:
    def changed(self, spark: SparkSession, place: Place) -> Path:
        """Run three batches with two partitions, and have a run give the job a checkpoint with three."""
        place.register()
        place.feed(10, 11, 12)
        driver = place.begin()
        driver.done(3)
        made, new = driver.stop("before"), place.root / "three"
        rescale(str(made["url"]), str(new), 3, spark=spark)
        place.catalog.jobs.set_desired("totals", state="running")
        place.catalog.leases.acquire("totals", "run", 600_000)
        Heads(place.job.store).append(str(new), "run", 1)
        place.catalog.jobs.set_desired("totals", parallelism=3, checkpoint=str(new))
        return new

    def test_a_checkpoint_that_was_not_begun_is_left_for_the_old_one(self, spark: SparkSession, place: Place) -> None:
        new = self.changed(spark, place)
        place.catalog.leases.roll_back("totals", "run", 600_000, "a test")
        place.feed(13)
        driver = place.begin()
        driver.done(4)
        driver.stop()
        assert place.job.checkpoint == str(place.checkpoint) != str(new)
        assert place.totals() == expected(10, 11, 12, 13)

    def test_batches_that_were_begun_are_kept_and_the_old_number_of_partitions_returns(
        self, spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # spark-submit tells a driver so; the copy back is made on the driver's machine all the same.
        monkeypatch.setenv("MASTER", "spark://nowhere.invalid:7077")
        new = self.changed(spark, place)
        place.feed(13, 14)
        driver = place.begin()
        driver.done(5)
        # A batch is in the sink before its figures are in the catalog.
        wait(lambda: place.catalog.epochs.of("totals", limit=1)[0].parallelism == 3, "the figures of a batch")
        place.catalog.leases.roll_back("totals", "run", 600_000, "a test")
        driver.ended()
        # Whoever asks meanwhile is told of the newest state.
        assert newest_batch(place.job) == 4
        place.feed(15)
        back = place.begin()
        back.done(6)
        back.stop()
        assert (open_checkpoint(str(place.job.checkpoint)).partitions, place.job.parallelism) == (2, 2)
        assert place.job.checkpoint not in (str(place.checkpoint), str(new))
        # A batch that is written twice fails.
        assert place.totals() == expected(*range(10, 16))
        assert sorted(place.batches()) == list(range(6))

    def test_a_copy_back_that_fails_says_why_and_nothing_begins(self, spark: SparkSession, place: Place) -> None:
        new = self.changed(spark, place)
        place.feed(13)
        driver = place.begin()
        driver.done(4)
        place.catalog.leases.roll_back("totals", "run", 600_000, "a test")
        driver.ended()
        (new / "state/0/1/4.delta").unlink()
        place.feed(14)
        place.begin().ended()
        newest = place.catalog.generations.newest("totals")
        assert newest is not None
        assert "cannot be copied to 2 state partitions: " in str(newest.error)
        assert "state/0/1" in str(newest.error)
        assert sorted(place.batches()) == list(range(4))


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda place: (place.out / "fail").touch(), "ValueError: the warehouse is closed"),
        (lambda place: place.register(trigger=json.dumps({"continuous": "1 second"})), "continuous processing"),
        (lambda place: place.register(trigger=json.dumps({"realTime": "5 minutes"})), "real-time mode"),
        (lambda place: place.register(query="def build(spark, settings):\n    return 7"), "found 7 returned by build"),
        (lambda place: place.register(query=NO_WRITER), "found a DataFrame"),
    ],
    ids=["sink", "continuous", "real-time", "no query", "no writer"],
)
def test_what_fails_is_told_by_the_catalog(place: Place, spoil: Callable[[Place], object], error: str) -> None:
    place.register()
    spoil(place)
    place.feed(10)
    driver = place.begin()
    driver.ended()
    newest = place.catalog.generations.newest("totals")
    assert newest is not None
    assert newest.state == "failed"
    assert error in str(newest.error)
    if "warehouse" not in error:
        assert isinstance(driver.error, QueryDefinitionError)
        assert str(driver.error).count(";") >= 2
