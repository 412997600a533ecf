"""The demo of a query of Spark's own: a backlog, a rescale of its checkpoint through Airflow, verdict."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from examples.demo.feeder import Feeder
from examples.demo.job_demo import SPARK_CONF, STEADY_ROWS, STEADY_SECONDS, JobDemo
from examples.demo.table import step_table
from examples.demo.verdict import Verdict, compare
from examples.flight_windows import FLIGHTS, TOTALS, by_day_and_route
from stack.stack import Stack
from statecore.catalog import JobRecord
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.snapshot.job_files import keep_job_file
from statecore.storage import open_store

JOB = "flight_windows"
QUERY = Path(__file__).resolve().parent.parent / "flight_windows.py"

STEADY_DELIVERIES = 8
ROWS_PER_BACKLOG_FILE = 4_000
BEFORE = 2
OUT = {"parallelism": 6, "workers": 2, "reason": "drain the backlog"}


class QueryDemo(JobDemo):
    """One run of the demo of a query of Spark's own, on a stack that it starts.

    Args:
        stack: A stack in an empty folder, not started yet.
        console: Console for progress.

    """

    def __init__(self, stack: Stack, console: Console) -> None:
        self._input = stack.run_dir / "input"
        self._files = Feeder(self._input)
        super().__init__(stack, console, JOB, self._files, word="batch")

    def run(self, flights: pa.Table, *, sabotage: bool = False) -> bool:
        """Run the demo and return whether the verdict is exact.

        Args:
            flights: Flights to feed, in order.
            sabotage: Whether to delete a state file between stop and restart.

        Raises:
            DemoError: A step failed; the message gives the reason.

        """
        steady = STEADY_ROWS * STEADY_DELIVERIES
        self._say(f"{flights.num_rows:,} flights of 2013; starting catalog, Spark, supervisor and Airflow")
        self._stack.start(airflow=False)
        self._start_query()
        # The query starts while Airflow does.
        self._stack.start_airflow()
        self._wait("the query's driver", lambda: self._generation_state() == "running", 120)
        self._progress.start()
        self._say(f"steady: {STEADY_ROWS:,} flights every {STEADY_SECONDS:g} s, {BEFORE} state partitions, 1 worker")
        self._feed(flights.slice(0, steady))
        self._wait("the first batch", lambda: self._rows_done() > 0, 120)
        waiting = flights.slice(steady)
        self._files.feed_backlog(waiting, ROWS_PER_BACKLOG_FILE)
        self._say(f"a backlog: {waiting.num_rows:,} flights wait")
        with self._stack.airflow() as airflow:
            size = f"{BEFORE} to {OUT['parallelism']} state partitions, {OUT['workers']} workers"
            self._rescale(airflow, OUT, size, self._sabotage if sabotage else None)
        self._drain()
        self._stop_job()
        self.close()
        return self._judge()

    def _start_query(self) -> None:
        settings = {"input": str(self._input), "output": str(self._output), "max_files_per_batch": "1"}
        with self._stack.catalog() as catalog:
            catalog.jobs.register(
                JOB,
                artifact=str(QUERY),
                artifact_sha256=keep_job_file(open_store(str(self._store)), str(QUERY), QUERY.read_bytes()),
                store=str(self._store),
                master_url=self._stack.master_url,
                cluster=self._stack.cluster,
                conf=dict(SPARK_CONF),
                settings=settings,
                parallelism=BEFORE,
                max_parallelism=MAX_KEY_GROUPS,
                checkpoint=str(self._stack.run_dir / "checkpoint"),
            )
            catalog.jobs.set_desired(JOB, state="running")

    def _sabotage(self) -> None:
        with self._stack.catalog() as catalog:
            newest = catalog.savepoints.of(JOB, limit=1)[0]
        checkpoint = open_checkpoint(newest.path)
        path = Path(newest.path, f"state/0/1/{checkpoint.version}.delta")
        path.unlink()
        self._console.print(f"SABOTAGE: deleted {path}")

    def _judge(self) -> bool:
        with self._stack.catalog() as catalog:
            job, runs = catalog.jobs.get(JOB), catalog.runs.of(JOB)
        self._console.print(step_table(runs))
        self._say("computing the truth: the same groupBy as a batch query")
        spark = self._spark()
        try:
            truth = by_day_and_route(spark.read.schema(FLIGHTS).parquet(f"{self._input}/*"))
            verdict = Verdict((compare(self._newest(spark), truth, "flights by day and route"),))
            verdict.print(self._console)
        finally:
            spark.stop()
        self._say(_told(job))
        self._say("exact: nothing lost, nothing twice" if verdict.exact else "[bold red]NOT exact[/]")
        return verdict.exact

    def _newest(self, spark: SparkSession) -> DataFrame:
        """Return the row of each day and route that the newest batch wrote."""
        written = spark.read.schema(f"{TOTALS}, batch int").parquet(str(self._output))
        keys, values = ("day", "origin", "dest"), ("flights", "landed", "delay_minutes")
        newest = written.groupBy(*keys).agg(F.max_by(F.struct(*values), "batch").alias("row"))
        return newest.select(*keys, *(f"row.{name}" for name in values))


def _told(job: JobRecord) -> str:
    assert job.checkpoint is not None
    found = open_checkpoint(job.checkpoint)
    return f"{found.partitions} state partitions after batch {found.batch}, in {job.checkpoint}"
