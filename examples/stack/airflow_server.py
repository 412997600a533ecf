"""A whole Airflow on this machine: ``airflow standalone`` with a home, ports and secrets of its own."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from examples.stack.airflow_client import AirflowClient
from examples.stack.processes import Processes, StackError, free_ports, tail
from statecore.catalog.job_names import JOBS_VARIABLE

REPO = Path(__file__).resolve().parents[2]
USER = "admin"
_NAME = "airflow"


class AirflowServer:
    """Starts and stops one Airflow below ``home``.

    Args:
        home: Its folder; what an earlier one left there is used again.
        processes: Where its process is recorded.
        connections: Airflow connections by id, in Airflow's JSON form.
        jobs_file: Where the supervisor writes the names of the jobs.

    """

    def __init__(
        self, home: Path, processes: Processes, connections: Mapping[str, Mapping[str, object]], jobs_file: Path
    ) -> None:
        self._home = home.absolute()
        self._processes = processes
        self._connections = connections
        self._jobs_file = jobs_file
        self._access = self._home / "access.json"

    @property
    def log(self) -> Path:
        """Output of all its processes."""
        return self._home / "standalone.log"

    @property
    def url(self) -> str:
        """Address of its web view and API; known once started."""
        return str(json.loads(self._access.read_text())["url"])

    @property
    def password(self) -> str:
        """Password of the user ``admin``; drawn anew at every start."""
        return str(json.loads(self._access.read_text())["password"])

    def client(self) -> AirflowClient:
        """Return a client logged in as ``admin``."""
        return AirflowClient(self.url, USER, self.password)

    def start(self) -> None:
        """Start it; returns at once."""
        self._home.mkdir(parents=True, exist_ok=True)
        api_port, worker_log_port, trigger_log_port = free_ports(3)
        url, password = f"http://127.0.0.1:{api_port}", secrets.token_urlsafe(12)
        _write_private(self._access, {"url": url, "password": password})
        _write_private(self._home / "simple_auth_manager_passwords.json.generated", {USER: password})
        binaries = Path(sys.executable).parent
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
            "PATH": os.pathsep.join([str(binaries), os.environ.get("PATH", "")]),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH")])),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            JOBS_VARIABLE: str(self._jobs_file),
            **self._settings(url, api_port, worker_log_port, trigger_log_port),
            **{
                f"AIRFLOW_CONN_{conn_id.upper()}": json.dumps(connection)
                for conn_id, connection in self._connections.items()
            },
        }
        command = [str(binaries / "airflow"), "standalone"]
        self._processes.start(_NAME, command, environment=environment, log=self.log)

    def wait_ready(self, timeout_s: float = 180.0) -> None:
        """Return when all its components work.

        Raises:
            StackError: They do not in time, or it has ended; the message holds the end of the log.

        """
        with self.client() as client:
            try:
                client.wait_healthy(timeout_s, check=lambda: self._processes.check(_NAME, self.log))
            except StackError as error:
                raise StackError(f"{error}; {tail(self.log)}") from error

    def stop(self) -> None:
        """Stop it as Ctrl-C does."""
        self._processes.interrupt(_NAME, timeout_s=20)

    def _settings(self, url: str, api_port: int, worker_log_port: int, trigger_log_port: int) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPO / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._home / 'airflow.db'}",
            "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
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
            # A task whose worker has died is tried again well before the lease of its run expires, after 300 s.
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "120",
            "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
            "AIRFLOW__DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "1",
            # Small files that do not change: parsing them again would only take a core from the job.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "300",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }


def _write_private(path: Path, content: Mapping[str, str]) -> None:
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(json.dumps(content))
