"""A Spark standalone master on this machine, for the demo and for tests."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from tenacity import RetryError, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from statecore.cluster.master_page import MasterPage, read_master_page
from statecore.cluster.processes import Daemon
from statecore.cluster.spark_home import spark_environment, spark_home
from statecore.errors import ClusterError

_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_STOP_TIMEOUT_S = 10.0


class StandaloneMaster:
    """Starts and stops one master on free ports; it outlives this process unless it is stopped.

    ``stop`` needs the directory alone, so that another process can end what this one began.

    Args:
        directory: Where its pid file and its log are.
        host: Address it listens on.

    """

    def __init__(self, directory: Path | str, *, host: str = "127.0.0.1") -> None:
        self._directory = Path(directory).absolute()
        self._host = host
        self._daemon = Daemon(self._directory / "master.pid", marker=_MASTER_CLASS)
        self._port = 0
        self._web_port = 0

    @property
    def master_url(self) -> str:
        """Address for drivers and workers; known after ``start``."""
        return f"spark://{self._host}:{self._port}"

    @property
    def web_url(self) -> str:
        """Address of its web UI; known after ``start``."""
        return f"http://{self._host}:{self._web_port}"

    @property
    def log_path(self) -> Path:
        """Where its output goes."""
        return self._directory / "master.log"

    def start(self) -> None:
        """Start the master on two free ports; returns before it is ready.

        Raises:
            ClusterError: A master of this directory runs already.

        """
        if self._daemon.is_alive():
            raise ClusterError(
                f"a master of {self._directory} runs already; expected none; stop it first or choose another directory"
            )
        self._port, self._web_port = _free_ports(self._host, 2)
        command = [str(spark_home() / "bin" / "spark-class"), _MASTER_CLASS]
        command += ["--host", self._host, "--port", str(self._port), "--webui-port", str(self._web_port)]
        environment = {
            **spark_environment(),
            "SPARK_LOCAL_IP": self._host,
            "SPARK_DAEMON_MEMORY": "256m",
            # Nobody submits by REST here, and its port is the same for every master.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        self._daemon.start(command, environment=environment, log_path=self.log_path)

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return when the master takes workers.

        Raises:
            ClusterError: It does not within the time, or it ended.

        """
        attempts = Retrying(
            retry=retry_if_exception_type(ClusterError), wait=wait_fixed(0.1), stop=stop_after_delay(timeout_s)
        )
        try:
            attempts(self._check_ready)
        except RetryError as error:
            raise ClusterError(
                f"the Spark master {self.master_url} is not ready: {error.last_attempt.exception()}; "
                f"expected it within {timeout_s:g} s; see {self.log_path}"
            ) from error

    def _check_ready(self) -> None:
        page: MasterPage = read_master_page(self.web_url)
        # A port taken since we looked makes Spark try the next one, and the page is somebody else's.
        if page.status != "ALIVE" or page.url != self.master_url:
            raise ClusterError(
                f"{self.web_url} says {page.url} is {page.status}; expected {self.master_url} to be ALIVE; "
                f"see {self.log_path}"
            )

    def stop(self) -> None:
        """End the master and return when it is gone; nothing happens when there is none.

        Raises:
            ClusterError: It does not end.

        """
        self._daemon.terminate()
        if not self._wait_gone():
            self._daemon.kill()
            if not self._wait_gone():
                raise ClusterError(
                    f"the Spark master of {self._directory} does not end; expected it gone after SIGKILL; "
                    "look what the kernel has it wait for"
                )
        self._daemon.pid_file.unlink(missing_ok=True)

    def _wait_gone(self) -> bool:
        attempts = Retrying(retry=retry_if_result(bool), wait=wait_fixed(0.05), stop=stop_after_delay(_STOP_TIMEOUT_S))
        try:
            attempts(self._daemon.members)
        except RetryError:
            return False
        return True

    def __enter__(self) -> Self:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _free_ports(host: str, count: int) -> list[int]:
    """Return ports that were free a moment ago, all different because they are held together."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return [each.getsockname()[1] for each in sockets]
