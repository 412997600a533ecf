"""Catalog, Spark standalone cluster, supervisor and Airflow, all real, below one folder."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from stack.airflow_client import AirflowClient
from stack.airflow_server import USER, AirflowServer
from stack.processes import MARK, Processes, StackError, tail
from statecore.catalog import Catalog
from statecore.catalog.job_names import JOBS_VARIABLE
from statecore.cluster import StandaloneMaster
from statecore.supervisor import CATALOG_VARIABLE

CLUSTER = "local"
_SUPERVISOR = "supervisor"


class Stack:
    """All services that a job needs, started and stopped together.

    ::

        <run_dir>/catalog.db     the catalog
        <run_dir>/jobs.json      names of the jobs, for Airflow's forms
        <run_dir>/airflow/       Airflow's home; a log of each of its parts
        <run_dir>/spark/         master and workers: pid files, folders of the workers
        <run_dir>/logs/          supervisor, workers, drivers
        <run_dir>/processes.json the started processes

    Args:
        run_dir: Folder of the stack; one stack per folder.
        workers: Initial number of workers.
        memory_per_worker: Memory that each worker offers, in Spark's notation.
        cores_per_worker: Cores that each worker offers.
        catalog_url: SQLAlchemy URL of the catalog; None for SQLite in the folder.
        airflow_database_url: SQLAlchemy URL of Airflow's database; None for SQLite below its home.
        airflow_environment: Further variables for Airflow's processes.

    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        workers: int = 1,
        memory_per_worker: str = "1g",
        cores_per_worker: int = 1,
        catalog_url: str | None = None,
        airflow_database_url: str | None = None,
        airflow_environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.run_dir = Path(run_dir).absolute()
        self.catalog_url = catalog_url or f"sqlite:///{self.run_dir / 'catalog.db'}"
        self._workers = workers
        self._memory_per_worker = memory_per_worker
        self._cores_per_worker = cores_per_worker
        self._airflow_database_url = airflow_database_url
        self._airflow_environment = airflow_environment
        self._processes = Processes(self.run_dir)
        self._master = StandaloneMaster(self.run_dir / "spark")

    @property
    def _jobs_file(self) -> Path:
        return self.run_dir / "jobs.json"

    @property
    def logs(self) -> Path:
        """Folder of the logs of supervisor, workers and drivers."""
        return self.run_dir / "logs"

    @property
    def cluster(self) -> str:
        """Name under which the cluster is registered; for ``catalog.jobs.register(cluster=…)``."""
        return CLUSTER

    @property
    def master_url(self) -> str:
        """Address of the Spark master."""
        with self.catalog() as catalog:
            return str(catalog.clusters.get(CLUSTER).settings["master_url"])

    @property
    def airflow_url(self) -> str:
        """Address of Airflow's web view."""
        return self._airflow("").url

    @property
    def airflow_login(self) -> tuple[str, str]:
        """User and password of Airflow."""
        return USER, self._airflow("").password

    def catalog(self) -> Catalog:
        """Open the catalog; the caller closes it."""
        return Catalog(self.catalog_url)

    def airflow(self) -> AirflowClient:
        """Return a client of Airflow's API; the caller closes it."""
        return self._airflow("").client()

    def start(self, *, airflow: bool = True) -> None:
        """Start all parts and return when they are ready; when one fails, the started ones are ended.

        Args:
            airflow: Whether to start Airflow, too.

        Raises:
            StackError: A process of this stack is already running, or a part does not start.

        """
        if self._processes.living():
            raise StackError(
                f"a stack of {self.run_dir} is already running; expected none; stop it first: "
                f"python -m stack stop {self.run_dir}"
            )
        try:
            self._start(airflow)
        except BaseException:
            self.stop()
            raise

    def start_airflow(self) -> None:
        """Start Airflow after ``start(airflow=False)`` and return when it is healthy.

        Raises:
            StackError: Airflow does not start.

        """
        airflow = self._airflow(self.master_url)
        airflow.start()
        airflow.wait_ready()

    def start_supervisor(self) -> None:
        """Start the supervisor, for the first time or again after a kill."""
        self._processes.start(
            _SUPERVISOR,
            [sys.executable, "-m", "statecore", "supervisor", "--logs", str(self.logs)],
            environment={
                **self._environment(),
                # Not on its command line, where every user of the machine can read a password.
                CATALOG_VARIABLE: self.catalog_url,
                JOBS_VARIABLE: str(self._jobs_file),
            },
            log=self.logs / "supervisor.log",
        )

    def start_beside(self, name: str, module: str, *arguments: str) -> None:
        """Start a Python module as an additional part of the stack; ``stop`` ends it."""
        command = [sys.executable, "-m", module, *arguments]
        self._processes.start(name, command, environment=self._environment(), log=self.logs / f"{name}.log")

    def kill_airflow_part(self, part: str, *, children_too: bool = False) -> None:
        """Kill a part of Airflow without warning.

        Args:
            part: One of ``airflow_server.PARTS``.
            children_too: Whether to kill its children as well; otherwise running tasks of a scheduler finish, and no
                others start.

        """
        self._processes.kill(part)
        if children_too:
            self._processes.kill_session(part)

    def start_airflow_part(self, part: str) -> None:
        """Start a part of Airflow again; the children of a killed one are ended first."""
        self._processes.kill_session(part)
        self._airflow("").start_part(part)

    def wait_workers(self, workers: int, timeout_s: float = 180.0) -> None:
        """Return when the cluster has this number of ready workers.

        Raises:
            StackError: The workers are not ready in time, or the supervisor has ended.

        """
        log = self.logs / "supervisor.log"
        deadline = time.monotonic() + timeout_s
        with self.catalog() as catalog:
            while (cluster := catalog.clusters.get(CLUSTER)).ready_workers != workers:
                self._processes.check(_SUPERVISOR, log)
                if time.monotonic() > deadline:
                    raise StackError(
                        f"found {cluster.ready_workers} ready workers after {timeout_s:g} s ({cluster.message}); "
                        f"expected {workers}; {tail(log)}"
                    )
                time.sleep(0.2)

    def stop(self) -> None:
        """End every process of this stack, whichever process started it; do nothing when there is none.

        Raises:
            StackError: A process did not end.

        """
        # First the supervisor: it would restart drivers.
        self._processes.terminate(_SUPERVISOR)
        self._airflow("").stop()
        self._processes.end_all()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, airflow: bool) -> None:
        self.run_dir.mkdir(parents=True, exist_ok=True)
        self._start_master()
        if airflow:
            self._airflow(self._master.master_url).start()
        with self.catalog() as catalog:
            catalog.create_schema()
            settings = {
                "master_url": self._master.master_url,
                "master_web_url": self._master.web_url,
                "run_dir": str(self.run_dir / "spark" / "workers"),
                "log_dir": str(self.logs),
                "memory_per_worker": self._memory_per_worker,
                "cores_per_worker": self._cores_per_worker,
            }
            catalog.clusters.register(CLUSTER, "standalone", settings, self._workers)
            catalog.clusters.report(CLUSTER, ready_workers=0)
        self._master.wait_ready()
        self.start_supervisor()
        self.wait_workers(self._workers)
        if airflow:
            self._airflow("").wait_ready()

    def _start_master(self) -> None:
        """Start the master with the stack's mark: it inherits this process's environment."""
        before = os.environ.get(MARK)
        os.environ[MARK] = str(self.run_dir)
        try:
            self._master.start()
        finally:
            if before is None:
                del os.environ[MARK]
            else:
                os.environ[MARK] = before

    def _airflow(self, master_url: str) -> AirflowServer:
        host, _, port = master_url.rpartition(":")
        spark = {"conn_type": "spark", "host": host, "port": int(port or 0), "extra": {"deploy-mode": "client"}}
        connections: dict[str, dict[str, object]] = {
            "statecore_catalog": {"conn_type": "generic", "extra": {"url": self.catalog_url}},
            "spark_default": spark,
        }
        return AirflowServer(
            self.run_dir / "airflow",
            self._processes,
            connections,
            self._jobs_file,
            database_url=self._airflow_database_url,
            environment={"AIRFLOW__STATECORE__LOGS_FOLDER": str(self.logs), **self._airflow_environment},
        )

    @property
    def environment(self) -> dict[str, str]:
        """Environment for a process started as a part of this stack; ``stop`` ends the process."""
        return self._processes.environment(self._environment())

    @staticmethod
    def _environment() -> dict[str, str]:
        return {**os.environ, "PYSPARK_PYTHON": sys.executable}
