"""The processes of a campaign's job: supervisors, drivers, workers, a cluster; and how one of them is struck."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from stack.quick_start import QUICK_START
from statecore.catalog import Catalog, GenerationRecord, RequestRecord
from statecore.cluster import StandaloneCluster, StandaloneMaster, StandaloneSettings
from statecore.cluster.processes import session_members, spawn
from statecore.errors import CatalogError
from statecore.operations.submit import SparkSubmit, driver_environment
from statecore.runtime.faults import FaultPoint
from statecore.runtime.sinks.markers import Markers
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.published import MARKERS
from statecore.supervisor import CATALOG_VARIABLE
from tests.chaos.clocks import with_clock
from tests.chaos.supervise import LIVENESS
from tests.chaos.truth import Verdict
from tests.support.processes import naming

JOB = "chaos"
CLUSTER = "cluster"
WORKERS = 2
PATIENCE_S = 240
_MARK = "STATECORE_CHAOS"


class ChaosError(Exception):
    """The campaign cannot go on; the message says what was waited for in vain."""


class DifferenceError(ChaosError):
    """Something is not as it should be, before the campaign has ended.

    Attributes:
        verdict: How the run compares with the truth so far.

    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__("; ".join(verdict.differences))
        self.verdict = verdict


class Processes:
    """Starts and finds the processes of one job, and ends them all.

    Args:
        folder: Of its own, for everything that is no process.
        catalog_url: Where the job's catalog is.
        driver: The driver's program.

    """

    def __init__(self, folder: Path, catalog_url: str, driver: Path) -> None:
        for name in ("hits", "tmp", "spark", "logs"):
            (folder / name).mkdir(parents=True)
        self.folder = folder
        self.catalog_url = catalog_url
        self.catalog = Catalog(catalog_url, liveness=LIVENESS)
        self.supervisor: subprocess.Popen[bytes] | None = None
        self._driver = driver
        self._mark = uuid.uuid4().hex
        self._cluster: StandaloneMaster | None = None
        for point in FaultPoint:
            self._hit_file(point).touch()

    def variables(self) -> Mapping[str, str]:
        """Return what the environment of the job's processes has besides what all campaigns give them."""
        return {}

    def conf(self) -> dict[str, str]:
        """Return a job's configuration, for drivers that live for seconds."""
        options = f"{QUICK_START} -Djava.io.tmpdir={self.folder}/tmp"
        return {
            "spark.ui.enabled": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.host": "127.0.0.1",
            # Drivers would spend their time on code that runs once.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": options,
            "spark.executor.extraJavaOptions": options,
        }

    def master_url(self, ground: str) -> str:
        """Return the Spark master of a ground, which is one itself or the cluster; that is started when needed."""
        if ground != CLUSTER:
            return ground
        if self._cluster is None:
            self._cluster = self._started_cluster()
        return self._cluster.master_url

    def generation(self) -> GenerationRecord:
        """Return the newest driver."""
        newest = self.catalog.generations.newest(JOB)
        assert newest is not None
        return newest

    def register(self, ground: str, parallelism: int) -> None:
        """Say where the job runs next: on a Spark master's URL, or on the cluster."""
        raise NotImplementedError

    def feed(self) -> None:
        """Give the job records."""
        raise NotImplementedError

    def begin_epoch(self) -> None:
        """Feed, and wait until the epoch has begun."""
        raise NotImplementedError

    def in_flight(self) -> bool:
        """Return whether an epoch is begun and not committed, or committed and not published."""
        raise NotImplementedError

    def settle(self) -> None:
        """Wait until all that was fed is committed and published."""
        raise NotImplementedError

    def verdict(self) -> Verdict:
        """Compare all that the job has left with the truth."""
        raise NotImplementedError

    def stop_with_savepoint(self, name: str) -> str | None:
        """Ask the job to stop, wait until it has, and return its savepoint's URL; None when it died instead."""
        self.catalog.jobs.set_desired(JOB, state="stopped")
        asked = self.ask("stop_with_savepoint", name)
        until(lambda: self.generation().ended, "the driver to stop", self)
        result = self.catalog.requests.get(asked.id).result
        return None if result is None else str(result["url"])

    def ask(self, kind: Any, name: str, **arguments: Any) -> RequestRecord:
        """Ask the driver for something."""
        return self.catalog.requests.send(JOB, kind, {"name": name, "reason": "chaos", **arguments}, name)

    def start(self, **wishes: Any) -> None:
        """Want the job to run."""
        self.catalog.jobs.set_desired(JOB, state="running", **wishes)

    def begun(self) -> int:
        """Return the newest epoch that the newest driver has begun; -1 before the first."""
        folders = f"statecore-{JOB}-{self.generation().generation}-*/spark/offsets/*"
        names = [path.name for path in (self.folder / "tmp").glob(folders)]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def epoch_s(self) -> float:
        """Return how long epochs take; not the first of a driver, which take longer."""
        return min(epoch.duration_ms for epoch in self.catalog.epochs.of(JOB, limit=8)) / 1000

    def note(self) -> None:
        """Look at what has happened; called again and again while the campaign waits."""

    # Fault points.

    def arm(self, point: FaultPoint) -> None:
        """Let whoever passes the point next die there."""
        self._hit_file(point).unlink()

    def is_hit(self, point: FaultPoint) -> bool:
        """Return whether somebody has died at an armed point."""
        return self._hit_file(point).exists()

    def _hit_file(self, point: FaultPoint) -> Path:
        # All points are armed at all times, and each that has such a file has been hit and rests.
        return self.folder / "hits" / point

    # Processes.

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Give processes that are started now the environment of the job's."""
        own = {
            _MARK: self._mark,
            CATALOG_VARIABLE: self.catalog_url,
            "TMPDIR": f"{self.folder}/tmp",
            "SPARK_LOCAL_DIRS": f"{self.folder}/spark",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "STATECORE_FAULTS": ",".join(f"{point}@0" for point in FaultPoint),
            "STATECORE_FAULT_DIR": f"{self.folder}/hits",
            **self.variables(),
        }
        before = {name: os.environ.get(name) for name in own}
        os.environ.update(own)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def start_supervisor(self, *, ahead_s: int = 0, drivers_ahead_s: int = 0) -> subprocess.Popen[bytes]:
        """Start a supervisor beside the one that may run, with clocks that are so much ahead of this one."""
        with self.environment():
            logs, clock = self.folder / "logs", self.folder / "clock.so"
            arguments = (logs, self._driver, clock, drivers_ahead_s)
            program = [sys.executable, "-m", "tests.chaos.supervise", *map(str, arguments)]
            command, environment = with_clock(program, clock, ahead_s), driver_environment(JOB)
            self.supervisor = spawn(command, environment=environment, log_path=logs / "supervisor.log")
        return self.supervisor

    def kill_supervisor(self) -> None:
        """End the supervisor as a power cut does; its drivers go on."""
        assert self.supervisor is not None
        self.supervisor.kill()
        self.supervisor.wait()

    def launch(self, generation: GenerationRecord) -> subprocess.Popen[bytes]:
        """Start a driver by hand, as nobody should."""
        command = SparkSubmit(self._driver)(self.catalog.jobs.get(JOB), generation)
        log = self.folder / f"logs/by-hand-{generation.generation}-{uuid.uuid4().hex}.log"
        with self.environment():
            return spawn(command, environment=driver_environment(JOB), log_path=log)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Return the living processes that belong to the world, with these words in their command lines."""
        return [process for process in naming(psutil.process_iter(), *words) if self._is_own(process)]

    def _is_own(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            return bool(process.environ().get(_MARK) == self._mark)
        return False

    def driver_jvm(self, generation: int) -> list[psutil.Process]:
        """Return the Java process of a driver."""
        return self.processes("org.apache.spark.deploy.SparkSubmit", f"--generation {generation}")

    def driver_program(self, generation: int) -> list[psutil.Process]:
        """Return the Python process of a driver."""
        found = self.processes(str(self._driver), f"--generation {generation}")
        return [process for process in found if process not in self.driver_jvm(generation)]

    def driver_session(self, generation: int) -> list[psutil.Process]:
        """Return a driver with all that it started on this machine."""
        leaders = {os.getsid(process.pid) for process in self.driver_jvm(generation)}
        return [process for leader in leaders for process in session_members(leader)]

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python workers, which work for one daemon per Java process."""
        daemons = self.processes("pyspark.daemon")
        pids = {process.pid for process in daemons}
        workers = []
        for process in daemons:
            with contextlib.suppress(psutil.Error):
                if process.ppid() in pids:
                    workers.append(process)
        return workers

    def executors(self) -> list[psutil.Process]:
        """Return the executors."""
        return self.processes("CoarseGrainedExecutorBackend")

    def freeze(self, processes: Sequence[psutil.Process]) -> None:
        """Freeze processes, but none that has the lock of SQLite in its hands: it has one for all, who would wait."""
        while True:
            signalled(processes, "suspend")
            if not self.catalog_url.startswith("sqlite"):
                return
            try:
                self.catalog.jobs.set_desired(JOB)
            except CatalogError:
                signalled(processes, "resume")
                time.sleep(0.5)
            else:
                return

    def end_processes(self) -> None:
        """End every process that belongs to the world, also what it starts meanwhile."""
        if self.supervisor is not None:
            self.kill_supervisor()
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            kill(*left)
            time.sleep(0.1)

    def _started_cluster(self) -> StandaloneMaster:
        with self.environment():
            master = StandaloneMaster(self.folder / "master")
            master.start()
            master.wait_ready(120)
            settings = StandaloneSettings(
                master_url=master.master_url,
                master_web_url=master.web_url,
                run_dir=f"{self.folder}/cluster",
                log_dir=f"{self.folder}/logs",
                memory_per_worker="512m",
            )
            cluster = StandaloneCluster(CLUSTER, settings)
            cluster.resize(WORKERS)
        until(lambda: cluster.size().ready == WORKERS, "the workers", self)
        return master


def is_published(store: CheckpointStore, manifest: Manifest | None) -> bool:
    """Return whether the driver knows that all sinks have an epoch."""
    if manifest is None:
        return True
    sinks = {output.sink for output in manifest.outputs}
    markers = (Markers(store.files, f"{MARKERS}/{sink}").newest for sink in sinks)
    return all(found is not None and found >= (manifest.lineage, manifest.epoch) for found in markers)


def kill(*processes: psutil.Process) -> None:
    """End processes at once."""
    signalled(processes, "kill")


def signalled(processes: Sequence[psutil.Process], what: str) -> None:
    """Kill, suspend or resume processes; those that are gone are left alone."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            getattr(process, what)()


def until(condition: Callable[[], Any], what: str, world: Processes, timeout_s: float = PATIENCE_S) -> None:
    """Wait for something; note meanwhile what has happened, in the main campaign before clean-up removes it.

    Raises:
        ChaosError: It did not come about, or an epoch was committed that nobody asked for.

    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            newest = world.catalog.generations.newest(JOB)
            raise ChaosError(f"waited {timeout_s} s for {what}; the newest generation is {newest}")
        world.note()
        time.sleep(0.1)
