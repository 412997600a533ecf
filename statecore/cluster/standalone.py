"""Spark standalone workers as processes on this machine.

A surplus worker is drained: it is decommissioned, its executors finish their tasks and exit, and only then the worker
itself is stopped.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from statecore.cluster.base import ClusterSize
from statecore.cluster.master_page import read_master_page
from statecore.cluster.processes import Daemon
from statecore.cluster.spark_home import spark_environment, spark_home
from statecore.errors import ClusterError

_WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
_STOP_TIMEOUT_S = 10.0

# Pause before a dead worker is replaced, so that a wrong setting does not start one in every supervisor step.
_RESTART_PAUSE_S = 5.0


class StandaloneSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a standalone cluster.

    Attributes:
        master_url: Address of the master, ``spark://host:port``.
        master_web_url: Address of the master's web UI, ``http://host:port``.
        run_dir: Directory for pid files and the workers' work directories; belongs to one cluster.
        log_dir: Directory for the workers' output.
        cores_per_worker: Cores that each worker offers.
        memory_per_worker: Memory that each worker offers to executors, in Spark's notation (``1g``).
        host: Address that the workers listen on.
        drain_timeout_s: Longest wait for a surplus worker's executors; set it longer than the longest epoch.

    """

    master_url: Annotated[str, msgspec.Meta(pattern=r"^spark://[^/]+:\d+$")]
    master_web_url: Annotated[str, msgspec.Meta(pattern=r"^http://[^/]+$")]
    run_dir: str
    log_dir: str
    cores_per_worker: Annotated[int, msgspec.Meta(ge=1)] = 1
    memory_per_worker: Annotated[str, msgspec.Meta(pattern=r"^\d+[kmgtKMGT]$")] = "1g"
    host: str = "127.0.0.1"
    drain_timeout_s: Annotated[float, msgspec.Meta(ge=0)] = 120.0


class StandaloneCluster:
    """Starts and stops worker processes; all state is on disk, so any process can continue a resize."""

    is_local = True

    def __init__(self, name: str, settings: StandaloneSettings) -> None:
        self._name = name
        self._settings = settings
        self._run_dir = Path(settings.run_dir).absolute()

    def size(self) -> ClusterSize:
        """Return the number of worker processes, and of workers that the master reports as alive."""
        running = sum(worker.daemon.is_alive() for worker in self._workers())
        return ClusterSize(running=running, ready=read_master_page(self._settings.master_web_url).ready_workers)

    def resize(self, workers: int) -> None:
        """Start missing workers, drain surplus ones, stop drained ones, kill those that do not stop."""
        slots = []
        for worker in self._workers():
            if worker.stopping_file.exists():
                worker.keep_stopping()
            elif worker.draining_file.exists():
                worker.keep_draining(self._settings.drain_timeout_s)
            elif worker.daemon.is_alive() or worker.clean_up():
                slots.append(worker)
        for surplus in slots[workers:]:
            surplus.drain()
        for _ in range(workers - len(slots)):
            self._start_worker()

    def stop(self) -> None:
        """Stop all workers without draining and wait until they are gone; ClusterError when one survives SIGKILL."""
        attempts = Retrying(
            retry=retry_if_result(bool), wait=wait_fixed(0.1), stop=stop_after_delay(2 * _STOP_TIMEOUT_S)
        )
        try:
            attempts(self._stop_once)
        except RetryError as error:
            left = [process.pid for worker in self._workers() for process in worker.daemon.members()]
            raise ClusterError(
                f"cluster {self._name!r}: found processes {left} alive; expected them gone after SIGKILL; "
                "check what they wait for in the kernel (ps -o pid,stat,wchan)"
            ) from error

    def close(self) -> None:
        """Do nothing: this object holds no resources; the workers stay."""

    def _stop_once(self) -> list[_Worker]:
        for worker in self._workers():
            if worker.stopping_file.exists():
                worker.keep_stopping()
            else:
                worker.stop()
        return self._workers()

    def _workers(self) -> list[_Worker]:
        numbers = sorted(int(path.stem.removeprefix("worker-")) for path in self._run_dir.glob("worker-*.pid"))
        return [self._worker(number) for number in numbers]

    def _worker(self, number: int) -> _Worker:
        work_dir = self._run_dir / f"worker-{number}"
        return _Worker(work_dir, Daemon(work_dir.with_suffix(".pid"), marker=str(work_dir)))

    def _start_worker(self) -> None:
        taken = {worker.work_dir for worker in self._workers()}
        number = next(n for n in range(1, len(taken) + 2) if self._worker(n).work_dir not in taken)
        worker, settings = self._worker(number), self._settings
        worker.work_dir.mkdir(parents=True, exist_ok=True)
        command = [str(spark_home() / "bin" / "spark-class"), _WORKER_CLASS]
        command += ["--cores", str(settings.cores_per_worker), "--memory", settings.memory_per_worker]
        command += ["--host", settings.host, "--webui-port", "0", "--work-dir", str(worker.work_dir)]
        inherited = spark_environment()
        environment = {
            **inherited,
            "SPARK_LOCAL_IP": settings.host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_OPTS": f"{inherited.get('SPARK_WORKER_OPTS', '')} -Dspark.decommission.enabled=true".strip(),
        }
        worker.daemon.start(
            [*command, settings.master_url],
            environment=environment,
            log_path=Path(settings.log_dir).absolute() / f"{self._name}-worker-{number}.log",
        )


@dataclass(frozen=True, slots=True)
class _Worker:
    """One worker: its directory, its process, and the files that mark it as draining or stopping."""

    work_dir: Path
    daemon: Daemon

    @property
    def draining_file(self) -> Path:
        return self.work_dir.with_suffix(".draining")

    @property
    def stopping_file(self) -> Path:
        return self.work_dir.with_suffix(".stopping")

    def drain(self) -> None:
        self.draining_file.touch()
        self.daemon.decommission()

    def keep_draining(self, timeout_s: float) -> None:
        executors = len(self.daemon.members()) > 1
        if executors and time.time() - self.draining_file.stat().st_mtime < timeout_s:
            # Repeat: the process that made the mark may have died before it sent the signal.
            self.daemon.decommission()
        else:
            self.stop()

    def stop(self) -> None:
        self.stopping_file.touch()
        self.daemon.terminate()

    def keep_stopping(self) -> None:
        if not self.daemon.members():
            self._forget()
        elif time.time() - self.stopping_file.stat().st_mtime > _STOP_TIMEOUT_S:
            self.daemon.kill()
        else:
            # Repeat: the process that made the mark may have died before it sent the signal.
            self.daemon.terminate()

    def clean_up(self) -> bool:
        """Clean up after a worker that died; return whether its slot stays empty until the restart pause is over."""
        self.daemon.kill()
        with contextlib.suppress(FileNotFoundError):
            if time.time() - self.daemon.pid_file.stat().st_mtime < _RESTART_PAUSE_S:
                return True
            self._forget()
        return False

    def _forget(self) -> None:
        # The pid file last: a mark left behind would apply to the next worker in this slot.
        self.draining_file.unlink(missing_ok=True)
        self.stopping_file.unlink(missing_ok=True)
        self.daemon.pid_file.unlink(missing_ok=True)
