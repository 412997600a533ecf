"""The demo, step by step: steady flow, outage, backlog, rescale out, drain, rescale back, verdict."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from examples.demo.job_demo import SPARK_CONF, STEADY_ROWS, STEADY_SECONDS, FlightFeeder, JobDemo
from examples.demo.table import epoch_table, step_table
from examples.demo.verdict import Difference, Verdict, judge
from examples.flight_delays import ALERTS, REJECTS
from stack.airflow_client import AirflowClient
from stack.stack import Stack
from statecore.runtime import read_savepoint
from statecore.snapshot.checkpoints import CheckpointStore

T = TypeVar("T")

JOB = "flight_delays"
ARTIFACT = Path(__file__).resolve().parent.parent / "flight_delays.py"

STEADY_DELIVERIES = 20
TAIL_DELIVERIES = 8
OUTAGE_SECONDS = 5.0
ROWS_PER_EPOCH = 6_000
OUT = {"parallelism": 4, "workers": 2, "method": "by_reference", "reason": "drain the backlog"}
BACK = {"parallelism": 2, "workers": 1, "method": "live", "reason": "the backlog is drained"}


class Demo(JobDemo, ABC):
    """One run of the demo on a stack that it starts; how flights come in and outputs go out is up to the class.

    Args:
        stack: A stack in an empty folder, not started yet.
        console: Console for progress.
        feeder: Delivers the flights.

    """

    def __init__(self, stack: Stack, console: Console, feeder: FlightFeeder) -> None:
        super().__init__(stack, console, JOB, feeder)

    def run(
        self,
        flights: pa.Table,
        *,
        steady_deliveries: int = STEADY_DELIVERIES,
        tail_deliveries: int = TAIL_DELIVERIES,
        rows_per_epoch: int = ROWS_PER_EPOCH,
        sabotage: bool = False,
        disturbances: Sequence[Callable[[], None]] = (),
    ) -> bool:
        """Run the demo and return whether the verdict is exact.

        Args:
            flights: Flights to feed, in order.
            steady_deliveries: Deliveries before the outage.
            tail_deliveries: Deliveries after the rescale back.
            rows_per_epoch: Rows of an epoch while the backlog drains.
            sabotage: Whether to delete a state file between stop and restart.
            disturbances: Called one after the other on the larger cluster. A part of the backlog is delivered right
                before each call, so that even a fast job is still busy.

        Raises:
            DemoError: A step failed; the message gives the reason.

        """
        steady = STEADY_ROWS * steady_deliveries
        tail = STEADY_ROWS * tail_deliveries
        backlog = flights.num_rows - steady - tail
        self._say(f"{flights.num_rows:,} flights of 2013; starting catalog, Spark, supervisor and Airflow")
        self._stack.start(airflow=False)
        self._start_job(rows_per_epoch)
        # The job starts while Airflow does.
        self._stack.start_airflow()
        self._wait("the job's driver", lambda: self._generation_state() == "running", 120)
        self._progress.start()
        self._say(f"steady: {STEADY_ROWS:,} flights every {STEADY_SECONDS:g} s at parallelism 2, 1 worker")
        self._feed(flights.slice(0, steady))
        self._wait("the first epoch", lambda: self._rows_done() > 0, 120)
        self._say(f"outage: nothing arrives for {OUTAGE_SECONDS:g} s")
        time.sleep(OUTAGE_SECONDS)
        waiting, part = flights.slice(steady, backlog), math.ceil(backlog / (1 + len(disturbances)))
        first, *others = (waiting.slice(start, part) for start in range(0, backlog, part))
        self._say(f"storage is back: {first.num_rows:,} flights wait")
        self._feed_backlog(first, rows_per_epoch)

        def on_larger() -> None:
            for rows, disturb in zip(others, disturbances, strict=True):
                self._feed_backlog(rows, rows_per_epoch)
                disturb()

        with self._stack.airflow() as airflow:
            self._scale(airflow, on_larger, self._sabotage if sabotage else None)
        self._feed(flights.slice(steady + backlog))
        self._drain()
        savepoint = self._store / self._stop_job()
        self._ended.set()
        return self._judge(savepoint)

    @abstractmethod
    def _conf(self) -> Mapping[str, str]:
        """Return what Spark is configured with, beside ``SPARK_CONF``."""

    @abstractmethod
    def _settings(self, rows_per_epoch: int) -> Mapping[str, str]:
        """Return the job's settings."""

    @abstractmethod
    def _feed_backlog(self, rows: pa.Table, rows_per_epoch: int) -> None:
        """Deliver more rows than an epoch takes."""

    @abstractmethod
    def _fed_flights(self, spark: SparkSession) -> DataFrame:
        """Return all flights that were delivered."""

    @abstractmethod
    def _published(self, spark: SparkSession, sink: str, schema: str) -> DataFrame:
        """Return the rows that a sink has published."""

    def _further(self) -> tuple[Difference, ...]:
        """Compare what only this kind of outputs has."""
        return ()

    def _scale(
        self, airflow: AirflowClient, on_larger: Callable[[], None], on_stopped: Callable[[], None] | None
    ) -> None:
        """Take the job to the larger cluster, let the backlog drain, and take the job back."""
        self._rescale(airflow, OUT, words(OUT), on_stopped)
        on_larger()
        self._drain()
        self._say("drained; scaling back")
        self._rescale(airflow, BACK, words(BACK))

    def _start_job(self, rows_per_epoch: int) -> None:
        with self._stack.catalog() as catalog:
            catalog.jobs.register(
                JOB,
                artifact=str(ARTIFACT),
                store=str(self._store),
                master_url=self._stack.master_url,
                cluster=self._stack.cluster,
                conf={**SPARK_CONF, **self._conf()},
                settings=dict(self._settings(rows_per_epoch)),
                parallelism=2,
                max_parallelism=128,
            )
            catalog.jobs.set_desired(JOB, state="running")

    def _sabotage(self) -> None:
        store = CheckpointStore.at(str(self._store))
        newest = store.newest()
        assert newest is not None
        path = Path(store.describe(newest.operators[0].subtasks[0].keyed[0].file.path))
        path.unlink()
        self._console.print(f"SABOTAGE: deleted {path}")

    def _judge(self, savepoint: Path) -> bool:
        with self._stack.catalog() as catalog:
            epochs, runs = catalog.epochs.of(JOB), catalog.runs.of(JOB)
        self._console.print(epoch_table(epochs, self._feeder.history))
        self._console.print(step_table(runs))
        self._say("computing the truth with a plain Spark batch query")
        found = SparkSession.getActiveSession()
        spark = self._spark()
        try:
            verdict = judge(
                self._fed_flights(spark),
                totals=read_savepoint(spark, savepoint, JOB, "totals"),
                last_delays=read_savepoint(spark, savepoint, JOB, "last_delays").withColumnRenamed("value", "delays"),
                alerts=self._published(spark, "alerts", ALERTS),
                published_rejects=self._published(
                    spark, "rejects", ", ".join(f"{f.name} {f.type.ddl()}" for f in REJECTS.fields)
                ),
                buffered_rejects=read_savepoint(spark, savepoint, JOB, "rejects"),
            )
            verdict = Verdict((*verdict.differences, *self._further()))
            verdict.print(self._console)
        finally:
            # A session of the caller stays open.
            if found is None:
                spark.stop()
        self._say("exact: nothing lost, nothing twice" if verdict.exact else "[bold red]NOT exact[/]")
        return verdict.exact


def words(conf: Mapping[str, Any]) -> str:
    """Say what a rescale is asked for."""
    return f"{conf['method']}: parallelism {conf['parallelism']}, workers {conf['workers']}"
