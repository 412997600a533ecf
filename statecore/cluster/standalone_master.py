"""A Spark standalone master on this machine, for the demo and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from tenacity import RetryError, Retrying, retry_if_exception_type, retry_if_result, stop_after_delay, wait_fixed

from statecore.cluster.master_page import MasterPage, read_master_page
from statecore.cluster.ports import free_ports
from statecore.cluster.processes import Daemon
from statecore.cluster.spark_home import spark_environment, spark_home
from statecore.errors import ClusterError

_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_STOP_TIMEOUT_S = 10.0


class StandaloneMaster:
    """Starts and stops one master on free ports; the master outlives this process.

    ``stop`` needs only the directory, so another process can stop the master.

    Args:
        directory: Directory of the pid file and the log.
        host: Address that the master listens on.

    """

    def __init__(self, directory: Path | str, *, host: str = "127.0.0.1") -> None:
        self._directory = Path(directory).absolute()
        self._host = host
        self._daemon = Daemon(self._directory / "master.pid", marker=_MASTER_CLASS)
        self._port = 0
        self._web_port = 0

    @property
    def master_url(self) -> str:
        """Address for drivers and workers; valid after ``start``."""
        return f"spark://{self._host}:{self._port}"

    @property
    def web_url(self) -> str:
        """Address of the web UI; valid after ``start``."""
        return f"http://{self._host}:{self._web_port}"

    @property
    def log_path(self) -> Path:
        """File with the master's output."""
        return self._directory / "master.log"

    def start(self) -> None:
        """Start the master on two free ports, without waiting; ClusterError if this directory's master already runs."""
        if self._daemon.is_alive():
            raise ClusterError(
                f"found a running master of {self._directory}; expected none; stop it first or choose another directory"
            )
        self._port, self._web_port = free_ports(2, self._host)
        command = [str(spark_home() / "bin" / "spark-class"), _MASTER_CLASS]
        command += ["--host", self._host, "--port", str(self._port), "--webui-port", str(self._web_port)]
        environment = {
            **spark_environment(),
            "SPARK_LOCAL_IP": self._host,
            "SPARK_DAEMON_MEMORY": "256m",
            # The REST port is the same for every master and would collide; nothing here uses it.
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        self._daemon.start(command, environment=environment, log_path=self.log_path)

    def wait_ready(self, timeout_s: float = 180.0) -> None:
        """Wait until the master accepts workers; ClusterError when it does not within ``timeout_s``."""
        attempts = Retrying(
            retry=retry_if_exception_type(ClusterError), wait=wait_fixed(0.1), stop=stop_after_delay(timeout_s)
        )
        try:
            attempts(self._check_ready)
        except RetryError as error:
            raise ClusterError(
                f"found the Spark master {self.master_url} not ready: {error.last_attempt.exception()}; "
                f"expected it ready within {timeout_s:g} s; see {self.log_path}"
            ) from error

    def _check_ready(self) -> None:
        page: MasterPage = read_master_page(self.web_url)
        # If the port was taken meanwhile, Spark uses the next one and this page belongs to another program.
        if page.status != "ALIVE" or page.url != self.master_url:
            raise ClusterError(
                f"found {page.url} {page.status} at {self.web_url}; expected {self.master_url} to be ALIVE; "
                f"see {self.log_path}"
            )

    def stop(self) -> None:
        """Stop the master and wait until it is gone; ClusterError when one of its processes survives SIGKILL."""
        self._daemon.terminate()
        if not self._wait_gone():
            self._daemon.kill()
            if not self._wait_gone():
                raise ClusterError(
                    f"found the Spark master of {self._directory} alive; expected it gone after SIGKILL; "
                    "check what it waits for in the kernel (ps -o pid,stat,wchan)"
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

    def __exit__(self, *_: object) -> None:
        self.stop()
