"""What every demo does: start a stack, feed a job, tell what happens, rescale through Airflow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

from examples.demo import trickle
from examples.demo.feeder import Fed
from stack.airflow_client import AirflowClient, DagRun
from stack.quick_start import QUICK_START
from stack.stack import Stack
from statecore.catalog import Catalog, EpochRecord, RequestRecord

T = TypeVar("T")

STEADY_ROWS = 2_000
STEADY_SECONDS = 1.0
_RESCALE_S = 240.0

SPARK_CONF: Mapping[str, str] = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    # The demo's JVMs live for seconds: startup time counts.
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
}


class DemoError(RuntimeError):
    """The demo cannot continue."""


class FlightFeeder(Protocol):
    """Delivers flights to the job.

    Attributes:
        history: Its deliveries.

    """

    history: list[Fed]

    @property
    def place(self) -> tuple[str, ...]:
        """Where flights go, for ``examples.demo.trickle``."""

    def feed(self, rows: pa.Table) -> object:
        """Deliver rows."""


class JobDemo:
    """A demo of one job on a stack that it starts.

    Args:
        stack: A stack in an empty folder, not started yet.
        console: Console for progress.
        job: Name of the job.
        feeder: Delivers the flights.
        word: What its progress is counted in.

    """

    def __init__(self, stack: Stack, console: Console, job: str, feeder: FlightFeeder, word: str = "epoch") -> None:
        self._stack = stack
        self._console = console
        self._job = job
        self._word = word
        self._output = stack.run_dir / "output"
        self._store = stack.run_dir / "store"
        self._feeder = feeder
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._progress = threading.Thread(target=self._report, daemon=True)

    def close(self) -> None:
        """End the progress line."""
        self._ended.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def go_on(self) -> None:
        """Start the job again after the verdict, with a trickle of flights, and print how to rescale it.

        Raises:
            DemoError: The job does not commit an epoch.

        """
        done = self._rows_done()
        with self._stack.catalog() as catalog:
            job = catalog.jobs.set_desired(self._job, state="running")
        self._stack.start_beside("feeder", "examples.demo.trickle", *self._feeder.place)
        self._wait("the job to continue", lambda: self._rows_done() > done, 120)
        user, password = self._stack.airflow_login
        self._say(
            f"the job keeps running at parallelism {job.parallelism}; {trickle.ROWS:,} flights arrive every "
            f"{trickle.SECONDS:g} s"
        )
        self._console.print(
            f"Open       {self._stack.airflow_url}/statecore/job?name={self._job}\n"
            f"Log in     user {user}, password {password}\n"
            "Then       press Rescale…, enter another parallelism, and watch\n"
            "To end it  make stop"
        )

    def _generation_state(self) -> str | None:
        with self._stack.catalog() as catalog:
            newest = catalog.generations.newest(self._job)
        return None if newest is None else newest.state

    def _feed(self, rows: pa.Table) -> None:
        for start in range(0, rows.num_rows, STEADY_ROWS):
            self._feeder.feed(rows.slice(start, STEADY_ROWS))
            time.sleep(STEADY_SECONDS)

    def _rescale(
        self,
        airflow: AirflowClient,
        conf: Mapping[str, Any],
        size: str,
        on_stopped: Callable[[], None] | None = None,
    ) -> None:
        """Rescale through Airflow, and tell its steps; call ``on_stopped`` once the job has stopped with its savepoint.

        Raises:
            DemoError: The run failed; the message has what Airflow logged.

        """
        after = {} if on_stopped is None else {"stop_with_savepoint": on_stopped}
        self._run_dag(airflow, "rescale", conf, size, after, _RESCALE_S)

    def _run_dag(
        self,
        airflow: AirflowClient,
        dag: str,
        conf: Mapping[str, Any],
        size: str,
        after: Mapping[str, Callable[[], None]],
        timeout_s: float,
    ) -> None:
        """Run a DAG for the job, and tell its steps; call those of ``after`` once the task of that name has succeeded.

        Raises:
            DemoError: The run failed; the message has what Airflow logged.

        """
        airflow.wait_dag(dag)
        airflow.unpause(dag)
        run_id = airflow.trigger(dag, {"job": self._job, **conf})
        self._say(f"triggered DAG {dag}, {size} ({conf['reason']})")
        shown: dict[str, str | None] = {}
        waiting = dict(after)

        def on_change(run: DagRun) -> None:
            states = {task.task_id: task.state for task in run.tasks if task.state not in (None, "skipped")}
            news = ", ".join(f"{task} {state}" for task, state in states.items() if shown.get(task) != state)
            shown.update(states)
            if news or run.finished:
                self._say(f"  {dag} is {run.state}{f': {news}' if news else ''}")
            for task in [task for task in waiting if states.get(task) == "success"]:
                waiting.pop(task)()

        run = airflow.wait(dag, run_id, timeout_s=timeout_s, on_change=on_change)
        if run.state != "success":
            raise DemoError(f"DAG run {run_id} is {run.state}\n{airflow.failure(run)}")

    def _stop_job(self) -> str:
        """Stop the job; return the path of its savepoint in the store.

        Raises:
            DemoError: The job does not stop.

        """
        with self._stack.catalog() as catalog:
            catalog.jobs.set_desired(self._job, state="stopped")
            asked = catalog.requests.send(
                self._job, "stop_with_savepoint", {"name": "final", "reason": "verdict"}, "final"
            )

            def done() -> RequestRecord | None:
                found = catalog.requests.get(asked.id)
                return found if found.state in ("done", "failed") else None

            request = self._wait("the final savepoint", done, 60)
        if request.result is None:
            raise DemoError(f"the job could not stop with a savepoint: {request.error}")
        return str(request.result["savepoint"])

    def _drain(self) -> None:
        self._wait("the backlog to drain", lambda: self._rows_done() >= self._fed(), 180)

    def _rows_done(self) -> int:
        with self._stack.catalog() as catalog:
            epochs = catalog.epochs.of(self._job, limit=1)
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
                epochs = catalog.epochs.of(self._job, limit=1)
                waiting = self._waiting(catalog, epochs[-1]) if epochs else ""
            if epochs:
                newest = epochs[-1]
                self._say(
                    f"  {self._word} {newest.epoch} at parallelism {newest.parallelism}: "
                    f"{newest.rows_total:,} flights done, {waiting}"
                )

    def _waiting(self, catalog: Catalog, newest: EpochRecord) -> str:
        """Say how many flights wait."""
        return f"{self._fed() - newest.rows_total:,} wait"

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}")

    def _spark(self) -> SparkSession:
        """Return a session of this process for the verdict; an open one is taken as it is."""
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
        return spark
