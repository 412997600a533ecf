"""Everything a rescale needs, all of it real, and one job in it that is fed, watched and judged.

Airflow and the catalog are in databases of their own on one PostgreSQL server, the job's state and savepoints in S3.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from stack.airflow_client import AirflowClient, DagRun
from stack.quick_start import QUICK_START
from stack.stack import Stack
from statecore.catalog import Catalog, ClusterRecord, DecisionRecord
from statecore.supervisor import CATALOG_VARIABLE
from tests.e2e import job
from tests.support.published import published_files
from tests.support.shell import run

T = TypeVar("T")

JOB = "orders"
SMALL, LARGE = {"parallelism": 2, "workers": 1}, {"parallelism": 4, "workers": 2}
CORES_PER_WORKER = 2
BACKLOG = 20
"""Files that wait when the job begins: what two subtasks need more than a minute for."""
LEASE_S = 45
ROWS_PER_FILE = 1_200
"""So many that the fixed part of an epoch matters little: a policy would else ask for larger epochs."""
KEYS = 40
DAGS = ("rescale", "catch_up", "autoscale")
SPARK_CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_START,
    "spark.executor.extraJavaOptions": QUICK_START,
}


class World:
    """The stack and its job; entered when all of it runs, left when nothing of it does.

    Attributes:
        folder: For all that it makes.
        stack: The processes.
        catalog: An open catalog.
        airflow: A client of Airflow's API.
        fed: All records so far.

    Args:
        folder: For all that it makes; empty.
        catalog_url: SQLAlchemy URL of an empty database.
        airflow_database_url: Another.
        store: URL of the job's store, in S3.

    """

    catalog: Catalog
    airflow: AirflowClient

    def __init__(self, folder: Path, *, catalog_url: str, airflow_database_url: str, store: str) -> None:
        self.folder = folder
        self.fed: list[tuple[str, int]] = []
        self._store = store
        self._files = 0
        self._shown: dict[str, dict[str, str | None]] = {}
        self._began = time.monotonic()
        self._input, self._output = folder / "input", folder / "output"
        self._faults = folder / "faults"
        for made in (self._input, self._faults, folder / "staged"):
            made.mkdir(parents=True)
        self.stack = Stack(
            folder / "stack",
            cores_per_worker=CORES_PER_WORKER,
            catalog_url=catalog_url,
            airflow_database_url=airflow_database_url,
            airflow_environment={
                "AIRFLOW__STATECORE__LEASE_SECONDS": str(LEASE_S),
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(LEASE_S - 15),
                # What a triggerer waited for that was killed, the next one takes up when it is taken for dead.
                "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
                "STATECORE_STEP_FAULTS": str(self._faults),
            },
        )

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stack.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.airflow.close()
            self.catalog.close()
        finally:
            self.stack.stop()
            self.say("all is ended")

    @property
    def url(self) -> str:
        """Address of Airflow."""
        return self.stack.airflow_url

    @property
    def passwords(self) -> dict[str, str]:
        """Of Airflow's users."""
        return dict([self.stack.airflow_login])

    # Records in, records out.

    def feed(self, files: int = 1) -> None:
        """Put files there, an epoch each."""
        for _ in range(files):
            first = len(self.fed)
            records = [(f"k{n * 7 % KEYS}", n) for n in range(first, first + ROWS_PER_FILE)]
            table = pa.table({"k": [k for k, _ in records], "n": pa.array([n for _, n in records], pa.int64())})
            staged = self.folder / "staged" / f"{self._files:05d}.parquet"
            pq.write_table(table, staged)
            # The file source goes by modification time, which must grow from file to file.
            stamp = time.time_ns() // 1_000_000_000 - 10_000 + self._files
            os.utime(staged, (stamp, stamp))
            staged.rename(self._input / staged.name)
            self._files += 1
            self.fed += records
        self.say(f"fed {files} files: {self.waiting():,} rows wait")

    def waiting(self) -> int:
        """Return how many rows no epoch has taken yet."""
        epochs = self.catalog.epochs.of(JOB, limit=1)
        return len(self.fed) - (epochs[-1].rows_total if epochs else 0)

    def settle(self) -> None:
        """Wait until all that was fed is counted and published, and compare it with the truth."""
        self.wait(lambda: self.waiting() == 0, lambda: f"{self.waiting():,} rows to be taken", 180)
        self.wait(lambda: self._published().total() >= len(self.fed), lambda: "the newest epoch to be published")
        assert self._published() == self._truth()

    def _truth(self) -> Counter[tuple[Any, ...]]:
        """Return what an undisturbed run would have published."""
        totals: dict[str, tuple[int, int]] = {}
        rows: Counter[tuple[Any, ...]] = Counter()
        for k, n in self.fed:
            count, total = totals.get(k, (0, 0))
            totals[k] = count + 1, total + n
            rows[k, n, count + 1, total + n] += 1
        return rows

    def _published(self) -> Counter[tuple[Any, ...]]:
        rows: Counter[tuple[Any, ...]] = Counter()
        for file in published_files(self._output):
            rows.update(zip(*pq.ParquetFile(file).read().to_pydict().values(), strict=True))
        return rows

    # The job, as it is.

    def size(self) -> dict[str, int]:
        """Return what is wanted of the job."""
        return {"parallelism": self.catalog.jobs.get(JOB).parallelism, "workers": self._cluster().desired_workers}

    def check(self, size: Mapping[str, int] = SMALL) -> None:
        """Check that the job goes on at a size, that nobody changes it, and that nothing was lost or doubled."""
        assert self.size() == size
        assert self.catalog.leases.find(JOB) is None
        workers = size["workers"]
        self.wait(lambda: self._cluster().ready_workers == workers, lambda: f"{workers} workers to be ready", 180)
        self.feed()
        self.settle()
        newest = self.catalog.generations.newest(JOB)
        assert newest is not None and newest.state == "running"
        assert self.catalog.epochs.of(JOB, limit=1)[-1].parallelism == size["parallelism"]

    def _cluster(self) -> ClusterRecord:
        return self.catalog.clusters.get(self.stack.cluster)

    # What is done with it.

    def command(self, *arguments: str) -> None:
        """Run a command of `statecore`, which has to succeed."""
        self.say(f"statecore {' '.join(arguments)}")
        done = run(*arguments, **{CATALOG_VARIABLE: self.stack.catalog_url})
        assert done.returncode == 0, done.stderr

    def arm(self, fault: str, kind: str = "fail") -> None:
        """Have the next step that passes a point fail, or its process killed."""
        (self._faults / f"{fault}.hit").unlink(missing_ok=True)
        (self._faults / fault).write_text(kind)

    def was_hit(self, fault: str) -> bool:
        """Return whether a step has passed an armed point."""
        return (self._faults / f"{fault}.hit").exists()

    def trigger(self, dag: str, run: str, **conf: Any) -> str:
        """Start a run of a DAG as its form does."""
        self.say(f"triggering {dag}: {run} {conf}")
        return self.airflow.trigger(dag, {"job": JOB, **conf}, run_id=run)

    def end_of(self, dag: str, run: str, timeout_s: float = 600) -> DagRun:
        """Wait for the end of a run, whatever it is."""
        return self.airflow.wait(dag, run, timeout_s, on_change=self._say_tasks)

    def succeed(self, dag: str, run: str, timeout_s: float = 600) -> DagRun:
        """Wait for the end of a run, which has to be a good one."""
        ended = self.end_of(dag, run, timeout_s)
        assert ended.state == "success", self.airflow.failure(ended)
        return ended

    def task_state(self, dag: str, run: str, task_id: str) -> str | None:
        """Return the state of a task."""
        tasks = self.airflow.run(dag, run).tasks
        return next((task.state for task in tasks if task.task_id == task_id), None)

    def approve(self, run: str, option: str = "Approve") -> None:
        """Answer a rescale that asks, and see that it holds nothing until then."""
        log = self.stack.run_dir / "airflow" / "scheduler.log"
        # Airflow takes a task for dead that is answered before it has seen the asking process end. No person is so
        # quick.
        seen = f"TaskInstance Finished: dag_id=rescale, task_id=approval, run_id={run},"
        self.wait(lambda: seen in log.read_text(errors="replace"), lambda: f"{run} to ask")
        assert self.task_state("rescale", run, "approval") == "awaiting_input"
        assert self.catalog.leases.find(JOB) is None
        self.say(f"answering {run}: {option}")
        self.airflow.answer("rescale", run, "approval", option)

    def decisions(self) -> list[DecisionRecord]:
        """Return what the job's policy has decided, oldest first."""
        return self.catalog.policies.decisions(JOB)[::-1]

    def wait(self, condition: Callable[[], T], what: Callable[[], str], timeout_s: float = 90) -> T:
        """Wait for something, and say now and then for what."""
        began = said = time.monotonic()
        while not (found := condition()):
            now = time.monotonic()
            assert now - began < timeout_s, f"waited {timeout_s:.0f} s for {what()}; see the logs in {self.folder}"
            if now - said >= 10:
                said = now
                self.say(f"  waiting for {what()}, for {now - began:.0f} s")
            time.sleep(0.3)
        return found

    def say(self, text: str) -> None:
        """Print what happens, with the seconds since the beginning."""
        print(f"[{time.monotonic() - self._began:6.1f} s] {text}", flush=True)

    def _start(self) -> None:
        self.say("starting catalog, Spark, supervisor")
        self.stack.start(airflow=False)
        self.catalog = self.stack.catalog()
        self._register()
        self.feed(BACKLOG)
        self.say("starting Airflow, while the job begins")
        self.stack.start_airflow()
        self.airflow = self.stack.airflow()
        for dag in DAGS:
            self.airflow.wait_dag(dag)
            self.airflow.unpause(dag)

    def _say_tasks(self, run: DagRun) -> None:
        shown = self._shown.setdefault(run.run_id, {})
        states = {task.task_id: task.state for task in run.tasks if task.state not in (None, "skipped")}
        news = ", ".join(f"{task} {state}" for task, state in states.items() if shown.get(task) != state)
        shown.update(states)
        if news:
            self.say(f"  {run.run_id} is {run.state}: {news}")

    def _register(self) -> None:
        self.catalog.jobs.register(
            JOB,
            artifact=job.__file__,
            store=self._store,
            master_url=self.stack.master_url,
            cluster=self.stack.cluster,
            conf=SPARK_CONF,
            settings={"input": str(self._input), "output": str(self._output)},
            parallelism=SMALL["parallelism"],
            max_parallelism=16,
        )
        self.catalog.jobs.set_desired(JOB, state="running")
