"""The promise itself: a job goes on at another parallelism with all of its state, and nothing counts twice."""

from __future__ import annotations

import re
from typing import Any

from statecore.runtime import rewrite_savepoint
from tests.support.bench import JOB, Bench
from tests.support.waiting import wait


def test_state_and_outputs_survive_3_to_5_to_1_subtasks(spark: Any, bench: Bench) -> None:
    for parallelism in (3, 5, 1):
        with bench.running(parallelism):
            # More than ten epochs in all: the source's own log is compacted on the way.
            for _ in range(4):
                bench.feed()
            bench.wait_done()
        assert bench.newest().parallelism == parallelism
        bench.assert_exact(spark)
    assert bench.newest().lineage == 1
    assert bench.newest().epoch == 11


def test_each_new_subtask_names_only_key_groups_of_its_own_range(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        bench.stop("two")
    with bench.running(5):
        bench.feed()
        bench.wait_done()
    owned = [
        {group for item in subtask.keyed for group in range(item.key_groups[0], item.key_groups[1] + 1)}
        for subtask in bench.newest().operators[0].subtasks
    ]
    assert sum(len(groups) for groups in owned) == len(set().union(*owned)) == 128


def test_a_savepoint_without_new_rows_changes_nothing(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(3):
        bench.wait_done()
        first = bench.stop("first")
    with bench.running(4):
        second = bench.stop("second")
    assert first is not None
    assert second is not None
    bench.assert_exact(spark, first)
    bench.assert_exact(spark, second)


def test_a_savepoint_of_the_newest_epoch_keeps_the_lineage(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        savepoint = bench.stop("s")
    with bench.running(3, start_from=savepoint):
        bench.feed()
        bench.wait_done()
    assert (bench.newest().lineage, bench.newest().epoch) == (1, 1)
    # The request was honoured; a restart goes on from the newest epoch, although the catalog still names it.
    with bench.running(3):
        bench.feed()
        bench.wait_done()
    assert (bench.newest().lineage, bench.newest().epoch) == (1, 2)
    bench.assert_exact(spark)


def test_a_roll_back_to_an_older_savepoint_opens_a_new_lineage_once(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        savepoint = bench.stop("old")
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    with bench.running(2, start_from=savepoint, roll_back=True) as third:
        bench.feed()
        bench.wait_done()
        wait(lambda: bench.catalog.jobs.get(JOB).start_from is None, "the start to be forgotten")
    # A lineage has the number of the generation that opened it.
    assert (bench.newest().lineage, bench.newest().epoch) == (third.generation, 2)
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    assert (bench.newest().lineage, bench.newest().epoch) == (third.generation, 3)


def test_a_rescale_whose_savepoint_was_overtaken_goes_on_from_the_newest_epoch(spark: Any, bench: Bench) -> None:
    bench.feed()
    with bench.running(2):
        bench.wait_done()
        savepoint = bench.stop("overtaken")
    with bench.running(2):
        bench.feed()
        bench.wait_done()
    with bench.running(3, start_from=savepoint):
        bench.feed()
        bench.wait_done()
    assert (bench.newest().lineage, bench.newest().epoch, bench.newest().parallelism) == (1, 2, 3)
    bench.assert_exact(spark)


def test_a_file_source_resumes_at_any_distance_from_its_log_compactions(spark: Any, bench: Bench) -> None:
    # Spark compacts after ids 9, 19, 29, …; a resume between two of them must not change that.
    for files in (23, 29, 5):
        for _ in range(files):
            bench.feed(4)
        with bench.running(1):
            bench.wait_done()
    assert bench.newest().epoch == 56
    bench.assert_exact(spark)


def test_a_rewritten_savepoint_holds_the_same_state_at_another_parallelism_and_max_parallelism(
    spark: Any, bench: Bench
) -> None:
    for _ in range(3):
        bench.feed()
    with bench.running(3):
        bench.wait_done()
        savepoint = bench.stop("before")
    rewritten = rewrite_savepoint(spark, bench.store / str(savepoint), name="after", parallelism=4, max_parallelism=256)
    manifest = bench.checkpoints.manifest(rewritten)
    assert (manifest.parallelism, manifest.max_parallelism) == (4, 256)
    bench.assert_exact(spark, rewritten)
    kept = rewrite_savepoint(spark, bench.store / str(savepoint), name="same", parallelism=5)
    with bench.running(5, start_from=kept):
        bench.feed()
        bench.wait_done()
    bench.assert_exact(spark)
    assert bench.catalog.jobs.get(JOB).max_parallelism == 128


def test_a_job_takes_up_a_savepoint_rewritten_for_another_max_parallelism_and_stays_with_it(
    spark: Any, bench: Bench
) -> None:
    for _ in range(3):
        bench.feed()
    with bench.running(3):
        bench.wait_done()
        savepoint = bench.stop("narrow")
    wide = rewrite_savepoint(spark, bench.store / str(savepoint), name="wide", parallelism=4, max_parallelism=256)

    # With the max parallelism that it is registered with, the job is not started at all.
    with bench.running(4, start_from=wide):
        bench.wait_failed()
    assert re.search(
        r"MaxParallelismError: found state of max parallelism 256; expected 128, .*; start from it",
        str(bench.generation().error),
    )
    assert (bench.newest().lineage, bench.newest().epoch) == (1, 2)

    first: dict[str, Any] = {"start_from": wide, "max_parallelism": 256}
    for parallelism, wishes in ((5, first), (2, {})):
        with bench.running(parallelism, **wishes):
            bench.feed()
            bench.wait_done()
        assert (bench.newest().lineage, bench.newest().parallelism, bench.newest().max_parallelism) == (
            1, parallelism, 256,
        )  # fmt: skip
        bench.assert_exact(spark)
    assert bench.newest().epoch == 4
    owned = [item.key_groups[1] for subtask in bench.newest().operators[0].subtasks for item in subtask.keyed]
    assert max(owned) == 255
