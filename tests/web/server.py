"""Airflow's API server alone, a real one, with the DAGs read in and three users: enough for its pages and its API."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from stack.airflow_client import AirflowClient
from stack.processes import Processes, StackError, tail
from statecore.cluster.ports import free_ports
from tests.support.paths import REPO

USERS = {"admin": "admin", "operator": "user", "viewer": "viewer"}
"""Roles by name."""
_NAME = "api-server"
_START_S = 120.0


class ApiServer:
    """Starts it below ``home``, ready when entered, ended when left.

    Args:
        home: Its folder.
        catalog_url: SQLAlchemy URL of the catalog that its connection names; the drivers' logs are beside ``home``.

    """

    def __init__(self, home: Path, catalog_url: str) -> None:
        self._home = home
        self._processes = Processes(home)
        self._log = home / "api-server.log"
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.passwords = {user: secrets.token_urlsafe(9) for user in USERS}
        self._environment = self._settings(port, catalog_url)

    def client(self, user: str = "admin") -> AirflowClient:
        """Return a client of its API."""
        return AirflowClient(self.url, user, self.passwords[user])

    def __enter__(self) -> Self:
        passwords = self._home / "simple_auth_manager_passwords.json.generated"
        passwords.write_text(json.dumps(self.passwords))
        self._airflow("db", "migrate")
        self._airflow("dags", "reserialize")
        command = [sys.executable, "-m", "airflow", "api-server"]
        self._processes.start(_NAME, command, environment=self._environment, log=self._log)
        try:
            self._wait_ready()
        except BaseException:
            self._processes.end_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processes.end_all()

    def _airflow(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + _START_S
        while True:
            self._processes.check(_NAME, self._log)
            try:
                if httpx.get(f"{self.url}/api/v2/version").is_success:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline:
                raise StackError(f"the API server does not answer after {_START_S:g} s; {tail(self._log)}")
            time.sleep(0.3)

    def _settings(self, port: int, catalog_url: str) -> dict[str, str]:
        connection = {"conn_type": "generic", "extra": {"url": catalog_url}}
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
            "AIRFLOW_HOME": str(self._home),
            "AIRFLOW_CONN_STATECORE_CATALOG": json.dumps(connection),
            "AIRFLOW__CORE__DAGS_FOLDER": str(REPO / "dags"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{role}" for user, role in USERS.items()),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._home / 'airflow.db'}",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__STATECORE__LOGS_FOLDER": str(self._home.parent),
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self._home / "logs"),
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }
