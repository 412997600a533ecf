"""How a driver runs its query: with which settings of Spark's, and when epochs start."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from statecore import ProcessFunction
from statecore.runtime import Job
from statecore.runtime.driver.query_settings import query_settings
from statecore.snapshot.settings import DriverSettings
from tests.support.bench import Bench


class Nothing(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        return


PACKAGE = "org.apache.spark.sql.execution"
USERS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{PACKAGE}.streaming.checkpointing.FileContextBasedCheckpointFileManager"
    ),
    "spark.sql.adaptive.optimizer.excludedRules": f"{PACKAGE}.adaptive.OptimizeSkewedJoin",
    "spark.sql.adaptive.enabled": "true",
}


@pytest.mark.parametrize("before", [dict.fromkeys(USERS), USERS], ids=["none", "a user's"])
def test_a_jobs_query_has_settings_of_its_own_and_other_queries_have_those_as_before(
    spark: Any, bench: Bench, before: dict[str, str | None]
) -> None:
    kept = {key: spark.conf.get(key, None) for key in before}
    for key, value in before.items():
        spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    try:
        for _ in range(2):
            # The second driver goes on from files that this package laid down.
            with bench.running(2):
                bench.feed()
                bench.wait_done()
                (query,) = spark.streams.active
                running = query._jsq.streamingQuery()
                manager = running.offsetLog().fileManager().getClass().getSimpleName()
                assert manager == "FileSystemBasedCheckpointFileManager"
                settings = running.sparkSessionForStream().conf()
                assert settings.get("spark.sql.adaptive.enabled") == "false"
                excluded = settings.get("spark.sql.adaptive.optimizer.excludedRules").split(",")
                assert excluded[-1] == f"{PACKAGE}.adaptive.AQEPropagateEmptyRelation"
                assert excluded[:-1] == list(filter(None, [before["spark.sql.adaptive.optimizer.excludedRules"]]))
            assert {key: spark.conf.get(key, None) for key in before} == before
    finally:
        for key, value in kept.items():
            spark.conf.unset(key) if value is None else spark.conf.set(key, value)
    bench.assert_exact(spark)


def test_adaptive_execution_stays_where_a_function_may_join_tables(spark: Any) -> None:
    for transformed, expected in ((lambda s: s.filter("n > 0"), "false"), (lambda s: s.transform(id), "true")):
        job = Job()
        stream = transformed(job.source("in", read=lambda spark: spark.range(1)))
        stream.process(Nothing(), output="n bigint", uid="out")
        with query_settings(spark, job):
            assert spark.conf.get("spark.sql.adaptive.enabled") == expected


def test_epochs_start_once_an_interval_of_the_trigger(spark: Any, bench: Bench) -> None:
    with bench.running(2, settings=DriverSettings(trigger_interval=timedelta(seconds=5))):
        for _ in range(3):
            # As soon as the file before is committed; by default an epoch would start within half a second.
            bench.feed(20)
            bench.wait_done()
        newest = bench.catalog.generations.newest("totals")
        assert newest is not None and newest.trigger_ms == 5_000
    # Spark starts epochs at whole multiples of the interval, but the first at once. A busy machine delays some.
    _, *started_ms = sorted(each.started_ms for each in bench.catalog.epochs.of("totals"))
    assert len(started_ms) >= 2
    assert min(later - earlier for earlier, later in pairwise(started_ms)) > 2000
