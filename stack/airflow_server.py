"""A complete Airflow on this machine: one process per part, with separate home, ports and secrets."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from stack.airflow_client import AirflowClient
from stack.processes import Processes, StackError, tail
from statecore.catalog.job_names import JOBS_VARIABLE
from statecore.cluster.ports import free_ports

REPO = Path(__file__).resolve().parents[1]
USER = "admin"
PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
"""The parts of Airflow; each is a command of ``airflow``."""
_MIGRATION = "db-migrate"
# Each part imports this when it starts. The scheduler forks a process per task, and the DAG processor one per file;
# the forks then already have these modules.
_LOCAL_SETTINGS = """\
import statecore.operations.autoscaling.evaluation
import statecore.snapshot.plan
import statecore.snapshot.savepoints

__all__ = []
"""


class AirflowServer:
    """Starts and stops one Airflow below ``home``.

    Args:
        home: Its folder; files of an earlier run are reused.
        processes: The record of its processes.
        connections: Airflow connections by id, in Airflow's JSON form.
        jobs_file: File to which the supervisor writes the names of the jobs.
        database_url: SQLAlchemy URL of its database; None for SQLite below ``home``.
        environment: Further variables for its processes.

    """

    def __init__(
        self,
        home: Path,
        processes: Processes,
        connections: Mapping[str, Mapping[str, object]],
        jobs_file: Path,
        *,
        database_url: str | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._home = home.absolute()
        self._processes = processes
        self._connections = connections
        self._jobs_file = jobs_file
        self._database_url = database_url or f"sqlite:///{self._home / 'airflow.db'}"
        self._further = environment
        self._access = self._home / "access.json"
        self._settings_file = self._home / "settings.json"

    def log(self, part: str) -> Path:
        """Return the path of a part's output."""
        return self._home / f"{part}.log"

    @property
    def url(self) -> str:
        """Address of its web view and API; known once started."""
        return str(json.loads(self._access.read_text())["url"])

    @property
    def password(self) -> str:
        """Password of the user ``admin``; every start generates a new one."""
        return str(json.loads(self._access.read_text())["password"])

    def client(self) -> AirflowClient:
        """Return a client logged in as ``admin``."""
        return AirflowClient(self.url, USER, self.password)

    def start(self) -> None:
        """Start the migration of its database and return at once; ``wait_ready`` starts the parts."""
        config = self._home / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / "airflow_local_settings.py").write_text(_LOCAL_SETTINGS)
        api_port, worker_log_port, trigger_log_port = free_ports(3)
        url, password = f"http://127.0.0.1:{api_port}", secrets.token_urlsafe(12)
        _write_private(self._access, {"url": url, "password": password})
        _write_private(self._home / "simple_auth_manager_passwords.json.generated", {USER: password})
        # Saved, because a restarted part needs the secrets of the others.
        _write_private(self._settings_file, self._settings(url, api_port, worker_log_port, trigger_log_port))
        self._start(_MIGRATION, "db", "migrate")

    def start_part(self, part: str) -> None:
        """Start one of ``PARTS``, for the first time or again after a kill."""
        self._start(part, part)

    def wait_ready(self, timeout_s: float = 180.0) -> None:
        """Return when all its parts are healthy.

        Raises:
            StackError: They are not healthy in time, or one has ended; the message holds the end of its log.

        """
        deadline = time.monotonic() + timeout_s
        self._processes.wait_done(_MIGRATION, self.log(_MIGRATION), timeout_s)
        for part in PARTS:
            self.start_part(part)
        with self.client() as client:
            try:
                client.wait_healthy(deadline - time.monotonic(), check=self._check)
            except StackError as error:
                raise StackError("; ".join([str(error), *(tail(self.log(part), 10) for part in PARTS)])) from error

    def stop(self) -> None:
        """Stop the scheduler, which would start tasks; the other parts need no orderly shutdown."""
        self._processes.terminate("scheduler")

    def _check(self) -> None:
        for part in PARTS:
            self._processes.check(part, self.log(part))

    def _start(self, name: str, *arguments: str) -> None:
        binaries = Path(sys.executable).parent
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
            "PATH": os.pathsep.join([str(binaries), os.environ.get("PATH", "")]),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            JOBS_VARIABLE: str(self._jobs_file),
            **json.loads(self._settings_file.read_text()),
        }
        command = [sys.executable, "-m", "airflow", *arguments]
        self._processes.start(name, command, environment=environment, log=self.log(name))

    def _settings(self, url: str, api_port: int, worker_log_port: int, trigger_log_port: int) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": self._database_url,
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(api_port),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self._home / "logs"),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
            "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            # If a worker dies, Airflow retries its task well before the lease of the run expires, after 300 s.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            # The files do not change; parsing them again would take a core from the job.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
            # By default Airflow picks an async driver that is not installed.
            **({} if self._is_sqlite else {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": self._database_url}),
            **{
                f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(connection)
                for conn_id, connection in self._connections.items()
            },
            **self._further,
        }

    @property
    def _is_sqlite(self) -> bool:
        return self._database_url.startswith("sqlite")


def _write_private(path: Path, content: Mapping[str, str]) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(json.dumps(content))
