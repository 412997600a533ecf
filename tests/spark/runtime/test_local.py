"""``statecore.run``: the job that is registered later, in this process, on this process's session."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import statecore
from statecore import KeyedProcessFunction, ValueStateDescriptor
from statecore.catalog import Catalog
from statecore.errors import ConfigurationError, FunctionError, StateMigrationError
from statecore.runtime import Job, ParquetSink, read_savepoint
from tests.support.bench import JOB, Bench
from tests.support.jobs import idle, reminders, totals
from tests.support.waiting import wait


@pytest.fixture
def local(bench: Bench, spark: Any) -> Bench:
    """A bench whose checkpoints are those of ``statecore.run`` in its folder."""
    bench.registered_store = bench.store  # type: ignore[attr-defined]
    bench.store = bench.input.parent / "runs" / "jobs" / JOB
    return bench


def run(local: Bench, build: Any = totals.build, **settings: str) -> Any:
    given = {"input": str(local.input), "output": str(local.output), **settings}
    return statecore.run(build, settings=given, folder=local.input.parent / "runs", name=JOB)


def test_a_run_ends_when_nothing_is_available_and_the_next_one_continues(local: Bench, spark: Any) -> None:
    local.feed(120)
    local.feed(80)
    first = run(local)
    assert (first.job, first.epochs, first.rows) == (JOB, 2, 200)
    assert first.outputs == {name: str(local.output / name) for name in ("seen", "batches")}
    local.assert_exact(spark)

    again = run(local)
    assert (again.epochs, again.rows) == (0, 0)

    local.feed(50)
    third = run(local)
    assert (third.epochs, third.rows) == (1, 50)
    local.assert_exact(spark)
    # The first savepoint still holds what was there then.
    counts = read_savepoint(spark, first.savepoint, "totals", "newest").collect()
    assert max(n for row in counts for n in row.value) == 199


def test_a_savepoint_is_tried_apart_from_its_job(local: Bench, spark: Any) -> None:
    local.feed(120)
    first = run(local)
    local.feed(80)
    store = local.store
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    given = {"input": str(local.input), "output": str(local.input.parent / "tried")}
    tried = partial(statecore.run, totals.build, settings=given, folder=local.input.parent / "trial", name="trial")
    ended = tried(from_savepoint=first.savepoint)
    # It has the savepoint's records, and has read only what came later.
    assert (ended.epochs, ended.rows) == (1, 80)
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
    with pytest.raises(ConfigurationError, match=r"found epoch \d of job 'trial' .*; leave from_savepoint out"):
        tried(from_savepoint=first.savepoint)
    assert tried().rows == 0
    # The job itself goes on as if nobody had tried, and both have the same state.
    second = run(local)
    assert second.rows == 80
    local.assert_exact(spark)
    of_trial, of_job = (
        sorted(map(str, read_savepoint(spark, str(each.savepoint), "totals", "total").collect()))
        for each in (ended, second)
    )
    assert of_trial == of_job and of_job
    elsewhere = partial(tried, folder=local.input.parent / "elsewhere")
    nothing = elsewhere(from_savepoint=second.savepoint)
    assert (nothing.epochs, nothing.rows) == (0, 0)


def test_a_run_may_find_records_of_only_one_of_two_transformed_sources(local: Bench) -> None:
    for folder, numbers in (("busy", range(20)), ("quiet", range(10)), ("busy", range(20, 35))):
        (local.input.parent / folder).mkdir(exist_ok=True)
        at = pa.array([n * 1_000_000 for n in numbers], pa.timestamp("us", "UTC"))
        keys = pa.array(["k"] * len(numbers))
        local.feed_table(pa.table({"k": keys, "n": pa.array(numbers, pa.int64()), "at": at}), folder=folder)
        if folder == "quiet" or numbers.start:
            assert run(local, idle.build).rows == (30 if folder == "quiet" else 15)


def test_nothing_available_leaves_no_savepoint(local: Bench) -> None:
    ended = run(local)
    assert (ended.epochs, ended.rows, ended.savepoint) == (0, 0, None)


def test_the_same_job_file_is_registered_and_goes_on_from_the_savepoint(local: Bench, spark: Any) -> None:
    local.feed(150)
    ended = run(local)
    local.store = local.registered_store  # type: ignore[attr-defined]
    with local.running(3, start_from=ended.savepoint):
        local.feed(70)
        local.wait_done()
    local.assert_exact(spark)


def test_a_failure_names_line_record_and_error_and_the_next_run_goes_on(local: Bench, spark: Any) -> None:
    local.feed(60)
    run(local)
    local.feed_table(pa.table({"k": ["k1"], "n": pa.array([-1], pa.int64())}))
    with pytest.raises(FunctionError) as raised:
        run(local)
    message = str(raised.value)
    assert message.startswith("totals.py:")
    assert "in process_element: uid 'totals', subtask" in message
    assert message.rstrip().endswith("ValueError: a number below zero,") and len(message) < 400
    assert raised.value.__suppress_context__ or raised.value.__context__ is None

    sorted(local.input.iterdir())[-1].unlink()
    local.feed(30)
    assert run(local).rows == 30
    local.assert_exact(spark)


def test_a_run_that_is_interrupted_is_continued_by_the_next_one(local: Bench, spark: Any) -> None:
    for _ in range(8):
        local.feed(40)

    ended = threading.Event()

    def interrupt() -> None:
        wait(lambda: local.checkpoints.newest(), "an epoch")
        # Afterwards it would end the tests.
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        try:
            run(local)
        finally:
            ended.set()
    thread.join()
    assert not spark.streams.active
    assert 0 < local.rows_done() < 320

    ended = run(local)
    assert 0 < ended.rows < 320
    local.assert_exact(spark)


def count(kind: str, output: str) -> Any:
    """Return a ``build`` defined in no job file, as in a notebook, whose state has a type."""

    class Count(KeyedProcessFunction):
        def open(self, ctx: Any) -> None:
            self.count = ctx.get_state(ValueStateDescriptor("count", kind))

        def process_element(self, value: Any, ctx: Any) -> Any:
            self.count.update((self.count.value() or 0) + 1)
            yield value.k, self.count.value()

    def build(job: Job) -> None:
        def read(spark: Any) -> Any:
            return spark.readStream.schema("k string, n bigint").parquet(job.settings["input"])

        counted = (
            job.source("records", read=read).key_by("k").process(Count(), output="k string, count bigint", uid="c")
        )
        counted.sink("counts", ParquetSink(output))

    return build


def test_changed_state_is_converted_or_refused_as_in_production(local: Bench, spark: Any) -> None:
    local.feed(40)
    run(local, count("int", str(local.output)))
    local.feed(40)
    ended = run(local, count("bigint", str(local.output)))
    found = read_savepoint(spark, ended.savepoint, "c", "count")
    assert found.schema["value"].dataType.simpleString() == "bigint"
    assert {row.value for row in found.collect()} == {2}
    local.feed(40)
    with pytest.raises((StateMigrationError, FunctionError), match="bigint becomes string"):
        run(local, count("string", str(local.output)))


def test_timers_that_are_due_fire_before_a_run_ends(local: Bench) -> None:
    local.feed_table(pa.table({"k": ["a", "a"], "n": pa.array([2_000, 2_100], pa.int64())}))
    run(local, reminders.build)
    seen = local.published("seen", ("what", "k", "at"))
    fired = {row for row in seen if row[0] != "record"}
    # 2,000 s plus ten is behind the watermark of 2,100 s; 2,100 s plus ten is not.
    assert fired == {("event_time", "a", 2_010_000)}


def test_the_session_keeps_its_settings_and_goes_on(local: Bench, spark: Any) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        local.feed(10)
        run(local)
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert spark.range(3).count() == 3
        assert not spark.streams.active
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_the_catalog_in_the_folder_knows_the_runs(local: Bench) -> None:
    local.feed(10)
    run(local)
    with Catalog(f"sqlite:///{local.input.parent / 'runs' / 'catalog.db'}") as catalog:
        (generation,) = catalog.generations.of(JOB)
        assert generation.state == "stopped"
        assert [each.epoch for each in catalog.savepoints.of(JOB)] == [0]
        assert catalog.jobs.get(JOB).settings["input"] == str(local.input)
