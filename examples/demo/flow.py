"""The demo, step by step: steady flow, outage, backlog, rescale out, drain, rescale back, verdict."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from examples.demo import trickle
from examples.demo.feeder import Feeder
from examples.demo.table import epoch_table, step_table
from examples.demo.verdict import judge
from examples.flight_delays import ALERTS, FLIGHTS, REJECTS
from examples.quick_start import QUICK_START
from examples.stack.airflow_client import AirflowClient, DagRun
from examples.stack.stack import Stack
from statecore.catalog import RequestRecord
from statecore.runtime import read_savepoint
from statecore.snapshot.checkpoints import CheckpointStore

T = TypeVar("T")

JOB = "flight_delays"
ARTIFACT = Path(__file__).resolve().parent.parent / "flight_delays.py"

STEADY_ROWS = 2_000
STEADY_SECONDS = 1.0
STEADY_DELIVERIES = 20
TAIL_DELIVERIES = 8
OUTAGE_SECONDS = 5.0
ROWS_PER_BACKLOG_FILE = 6_000
OUT = {"parallelism": 4, "workers": 2, "method": "by_reference", "reason": "drain the backlog"}
BACK = {"parallelism": 2, "workers": 1, "method": "live", "reason": "the backlog is drained"}


class DemoError(RuntimeError):
    """The demo cannot continue."""


class Demo:
    """One run of the demo on a stack that it starts.

    Args:
        stack: A stack in an empty folder, not started yet.
        console: Console for progress.

    """

    def __init__(self, stack: Stack, console: Console) -> None:
        self._stack = stack
        self._console = console
        self._input = stack.run_dir / "input"
        self._output = stack.run_dir / "output"
        self._store = stack.run_dir / "store"
        self._feeder = Feeder(self._input)
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._progress = threading.Thread(target=self._report, daemon=True)

    def run(
        self,
        flights: pa.Table,
        *,
        steady_deliveries: int = STEADY_DELIVERIES,
        tail_deliveries: int = TAIL_DELIVERIES,
        rows_per_backlog_file: int = ROWS_PER_BACKLOG_FILE,
        sabotage: bool = False,
        disturbances: Sequence[Callable[[], None]] = (),
    ) -> bool:
        """Run the demo and return whether the verdict is exact.

        Args:
            flights: Flights to feed, in order.
            steady_deliveries: Deliveries before the outage.
            tail_deliveries: Deliveries after the rescale back.
            rows_per_backlog_file: Rows of an epoch while the backlog drains.
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
        self._start_job()
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
        self._feeder.feed_backlog(first, rows_per_backlog_file)
        self._say(f"storage is back: {first.num_rows:,} flights wait")
        with self._stack.airflow() as airflow:
            self._rescale(airflow, OUT, sabotage=sabotage)
            for rows, disturb in zip(others, disturbances, strict=True):
                self._feeder.feed_backlog(rows, rows_per_backlog_file)
                disturb()
            self._drain()
            self._say("drained; scaling back")
            self._rescale(airflow, BACK)
        self._feed(flights.slice(steady + backlog))
        self._drain()
        savepoint = self._stop_job()
        self._ended.set()
        return self._judge(savepoint)

    def go_on(self) -> None:
        """Start the job again after the verdict, with a trickle of flights, and print how to rescale it.

        Raises:
            DemoError: The job does not commit an epoch.

        """
        done = self._rows_done()
        with self._stack.catalog() as catalog:
            catalog.set_desired(JOB, state="running")
        self._stack.start_beside("feeder", "examples.demo.trickle", str(self._input))
        self._wait("the job to continue", lambda: self._rows_done() > done, 120)
        user, password = self._stack.airflow_login
        self._say(
            f"the job keeps running at parallelism 2, 1 worker; {trickle.ROWS:,} flights arrive every "
            f"{trickle.SECONDS:g} s"
        )
        self._console.print(
            f"Open       {self._stack.airflow_url}/statecore/job?name={JOB}\n"
            f"Log in     user {user}, password {password}\n"
            "Then       press Rescale…, enter parallelism 4 and 2 workers, and watch\n"
            "To end it  make stop"
        )

    def close(self) -> None:
        """End the progress line."""
        self._ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start_job(self) -> None:
        with self._stack.catalog() as catalog:
            catalog.register_job(
                JOB,
                artifact=str(ARTIFACT),
                store=str(self._store),
                master_url=self._stack.master_url,
                cluster=self._stack.cluster,
                conf={
                    "spark.driver.memory": "1g",
                    "spark.executor.memory": "512m",
                    "spark.ui.enabled": "false",
                    "spark.driver.host": "127.0.0.1",
                    # The demo's JVMs live for seconds: startup time counts.
                    "spark.driver.extraJavaOptions": QUICK_START,
                    "spark.executor.extraJavaOptions": QUICK_START,
                },
                settings={"input": str(self._input), "output": str(self._output), "max_files_per_epoch": "1"},
                parallelism=2,
                max_parallelism=128,
            )
            catalog.set_desired(JOB, state="running")

    def _generation_state(self) -> str | None:
        with self._stack.catalog() as catalog:
            newest = catalog.newest_generation(JOB)
        return None if newest is None else newest.state

    def _feed(self, rows: pa.Table) -> None:
        for start in range(0, rows.num_rows, STEADY_ROWS):
            self._feeder.feed(rows.slice(start, STEADY_ROWS))
            time.sleep(STEADY_SECONDS)

    def _rescale(self, airflow: AirflowClient, conf: Mapping[str, Any], *, sabotage: bool = False) -> None:
        airflow.wait_dag("rescale")
        airflow.unpause("rescale")
        run_id = airflow.trigger("rescale", {"job": JOB, **conf})
        self._say(
            f"triggered DAG rescale, {conf['method']}: parallelism {conf['parallelism']}, workers {conf['workers']} "
            f"({conf['reason']})"
        )
        shown: dict[str, str | None] = {}
        to_sabotage = sabotage

        def on_change(run: DagRun) -> None:
            nonlocal to_sabotage
            # `rollback` always runs, but acts only after a failed step.
            hidden = () if run.failed_tasks else ("rollback",)
            states = {
                task.task_id: task.state
                for task in run.tasks
                if task.state not in (None, "skipped") and task.task_id not in hidden
            }
            news = ", ".join(f"{task} {state}" for task, state in states.items() if shown.get(task) != state)
            shown.update(states)
            if news or run.finished:
                self._say(f"  rescale is {run.state}{f': {news}' if news else ''}")
            if to_sabotage and states.get("stop_with_savepoint") == "success":
                to_sabotage = False
                self._sabotage()

        run = airflow.wait("rescale", run_id, timeout_s=240, on_change=on_change)
        if run.state != "success":
            raise DemoError(f"DAG run {run_id} is {run.state}\n{airflow.failure(run)}")

    def _sabotage(self) -> None:
        store = CheckpointStore.at(str(self._store))
        newest = store.newest()
        assert newest is not None
        path = Path(store.describe(newest.operators[0].subtasks[0].keyed[0].file.path))
        path.unlink()
        self._console.print(f"SABOTAGE: deleted {path}")

    def _drain(self) -> None:
        self._wait("the backlog to drain", lambda: self._rows_done() >= self._fed(), 180)

    def _stop_job(self) -> Path:
        with self._stack.catalog() as catalog:
            catalog.set_desired(JOB, state="stopped")
            asked = catalog.request(JOB, "stop_with_savepoint", {"name": "final", "reason": "verdict"}, "final")

            def done() -> RequestRecord | None:
                found = catalog.get_request(asked.id)
                return found if found.state in ("done", "failed") else None

            request = self._wait("the final savepoint", done, 60)
        if request.result is None:
            raise DemoError(f"the job could not stop with a savepoint: {request.error}")
        return self._store / str(request.result["savepoint"])

    def _judge(self, savepoint: Path) -> bool:
        with self._stack.catalog() as catalog:
            epochs, runs = catalog.epochs(JOB), catalog.rescale_runs(JOB)
        self._console.print(epoch_table(epochs, self._feeder.history))
        self._console.print(step_table(runs))
        self._say("computing the truth with a plain Spark batch query")
        found = SparkSession.getActiveSession()
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("verdict")
            .config("spark.driver.extraJavaOptions", QUICK_START)
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "4")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        try:
            verdict = judge(
                spark.read.schema(FLIGHTS).parquet(f"{self._input}/*"),
                totals=read_savepoint(spark, savepoint, JOB, "totals"),
                last_delays=read_savepoint(spark, savepoint, JOB, "last_delays").withColumnRenamed("value", "delays"),
                alerts=self._published(spark, "alerts", ALERTS),
                published_rejects=self._published(
                    spark, "rejects", ", ".join(f"{f.name} {f.type.ddl()}" for f in REJECTS.fields)
                ),
                buffered_rejects=read_savepoint(spark, savepoint, JOB, "rejects"),
            )
            verdict.print(self._console)
        finally:
            # A session of the caller stays open.
            if found is None:
                spark.stop()
        self._say("exact: nothing lost, nothing twice" if verdict.exact else "[bold red]NOT exact[/]")
        return verdict.exact

    def _published(self, spark: SparkSession, sink: str, schema: str) -> DataFrame:
        folder = self._output / sink
        rows = spark.read.schema(schema).parquet(str(folder)) if folder.is_dir() else spark.createDataFrame([], schema)
        return rows.select(*[F.col(name) for name in rows.columns if name not in ("lineage", "epoch")])

    def _rows_done(self) -> int:
        with self._stack.catalog() as catalog:
            epochs = catalog.epochs(JOB, limit=1)
        return epochs[-1].rows_total if epochs else 0

    def _fed(self) -> int:
        return self._feeder.history[-1].rows_total if self._feeder.history else 0

    def _wait(self, what: str, condition: Callable[[], T | None], timeout_s: float) -> T:
        deadline = time.monotonic() + timeout_s
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise DemoError(f"waited {timeout_s:g} s for {what}; see the logs in {self._stack.logs}")
            time.sleep(0.3)
        return result

    def _report(self) -> None:
        """Print the stream's position every few seconds."""
        while not self._ended.wait(5):
            with self._stack.catalog() as catalog:
                epochs = catalog.epochs(JOB, limit=1)
            if epochs:
                newest = epochs[-1]
                self._say(
                    f"  epoch {newest.epoch} at parallelism {newest.parallelism}: {newest.rows_total:,} flights done, "
                    f"{self._fed() - newest.rows_total:,} wait"
                )

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}")
