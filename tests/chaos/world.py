"""The job and all that it stands on: processes, storage, input; and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import boto3
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from examples.quick_start import QUICK_START
from statecore.catalog import Catalog, GenerationRecord, RequestRecord
from statecore.cluster import StandaloneCluster, StandaloneMaster, StandaloneSettings
from statecore.cluster.processes import session_members, spawn
from statecore.operations.submit import SparkSubmit, driver_environment
from statecore.runtime.faults import FaultPoint
from statecore.runtime.sinks.markers import MARKERS, Markers
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.supervisor import CATALOG_VARIABLE
from tests.chaos import job
from tests.chaos.alone import SINKS, Fed, Record, Rule, read_so_far
from tests.chaos.clocks import has_clocks, make_clock, with_clock
from tests.chaos.lineages import ForkError, Lineages, RollBack
from tests.chaos.network import network_to
from tests.chaos.supervise import DRIVER, LIVENESS
from tests.chaos.truth import MAX_PARALLELISM, Kept, Verdict, judge
from tests.support.postgres import Replicated
from tests.support.processes import naming
from tests.support.shell import Done, run

JOB = "chaos"
CLUSTER = "cluster"
WORKERS = 2
PATIENCE_S = 240
_MARK = "STATECORE_CHAOS"


class ChaosError(Exception):
    """The campaign cannot go on; the message says what was waited for in vain."""


class World:
    """One job in an unquiet world, from its first to its last process.

    Args:
        folder: Of its own, for everything that is no process.
        endpoint: Of the S3 server; the environment of this process leads boto3 there.
        seed: Of the input.
        postgres: Servers for the catalog; without them it is a SQLite file.

    """

    def __init__(self, folder: Path, endpoint: str, seed: int, postgres: Replicated | None = None) -> None:
        self.folder = folder
        self.postgres = postgres
        self.fed = Fed([], [])
        self.lineages = Lineages()
        self.kept: list[str] = []
        self._noted = 0
        self._seed = seed
        self._mark = uuid.uuid4().hex
        self._stack = ExitStack()
        self.supervisor: subprocess.Popen[bytes] | None = None
        self._cluster: StandaloneMaster | None = None
        for name in ("input/records", "input/rules", "hits", "tmp", "spark", "logs"):
            (folder / name).mkdir(parents=True)
        bucket = f"chaos-{self._mark}"
        boto3.session.Session().client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket)
        self._bucket = f"s3://{bucket}"
        self.store = CheckpointStore.at(f"{self._bucket}/store")
        self.sinks = {
            name: f"{folder}/output/{name}" if name in ("tallied", "late") else f"{self._bucket}/output/{name}"
            for name in SINKS
        }
        self.catalog_url = f"sqlite:///{folder}/catalog.db"
        self.database = ""
        if postgres is not None:
            self.database = postgres.primary.create_database()
            self.catalog_url = postgres.url(self.database)
        self.catalog = Catalog(self.catalog_url, liveness=LIVENESS)
        self.network = self._stack.enter_context(network_to(endpoint))
        for point in FaultPoint:
            self._hit_file(point).touch()
        if has_clocks():
            make_clock(folder)

    def __enter__(self) -> World:
        self.catalog.create_schema()
        return self

    def __exit__(self, *_: object) -> None:
        self.end_processes()
        self.catalog.close()
        self._stack.close()

    # What the job is given.

    def feed(self, files: int = 1) -> None:
        """Give the job files of records, each of which becomes an epoch, and now and then rules."""
        for _ in range(files):
            index = len(self.fed.records)
            random = Random(f"{self._seed}-input-{index}")
            if index == 0 or random.random() < 0.4:
                self._feed_rules(random)
            first = index * 20
            numbers = [first + random.randrange(40) for _ in range(random.randint(20, 60))]
            numbers += [random.randrange(first + 1) for _ in range(random.randint(0, 6))]
            records = [Record(f"k{n * 7 % 23}", n, datetime.fromtimestamp(n, UTC)) for n in numbers]
            at = pa.array([record.at for record in records], pa.timestamp("us", "UTC"))
            n = pa.array(numbers, pa.int64())
            self._feed("records", index, pa.table({"k": [record.k for record in records], "n": n, "at": at}))
            self.fed.records.append(records)

    def _feed_rules(self, random: Random) -> None:
        index = len(self.fed.rules)
        # Odd numbers are unknown at first, and now and then again.
        chosen = [("even", 2)] if index == 0 else random.choices(_RULES, k=random.randint(1, 3))
        rules = [Rule(name, factor, 10 * index + i) for i, (name, factor) in enumerate(chosen)]
        columns = {"name": [rule.name for rule in rules]}
        factors = pa.array([rule.factor for rule in rules], pa.int64())
        versions = pa.array([rule.version for rule in rules], pa.int64())
        self._feed("rules", index, pa.table({**columns, "factor": factors, "version": versions}))
        self.fed.rules.append(rules)

    def _feed(self, folder: str, index: int, table: pa.Table) -> None:
        """Make a file visible, all at once."""
        staged = self.folder / "input" / f"staged-{folder}"
        pq.write_table(table, staged)
        # The file source goes by modification time, which must grow from file to file.
        stamp = time.time_ns() // 1_000_000_000 - 100_000 + index
        os.utime(staged, (stamp, stamp))
        staged.rename(self.folder / "input" / folder / f"{index:05d}.parquet")

    # What the job is.

    def register(self, ground: str, parallelism: int) -> None:
        """Say where the job runs next: on a Spark master's URL, or on the cluster."""
        if ground == CLUSTER and self._cluster is None:
            self._start_cluster()
        self.catalog.register_job(
            JOB,
            artifact=job.__file__,
            store=self.store.files.url,
            master_url=self._cluster.master_url if ground == CLUSTER and self._cluster is not None else ground,
            conf={
                "spark.ui.enabled": "false",
                "spark.driver.memory": "512m",
                "spark.executor.memory": "512m",
                "spark.driver.host": "127.0.0.1",
                # Drivers live for seconds here, and would spend them on code that runs once.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.driver.extraJavaOptions": f"{QUICK_START} -Djava.io.tmpdir={self.folder}/tmp",
                "spark.executor.extraJavaOptions": f"{QUICK_START} -Djava.io.tmpdir={self.folder}/tmp",
            },
            settings={
                "input": f"{self.folder}/input",
                "lake": f"{self._bucket}/output",
                "disk": f"{self.folder}/output",
            },
            parallelism=parallelism,
            max_parallelism=MAX_PARALLELISM,
        )

    def stop_with_savepoint(self, name: str) -> str | None:
        """Ask the job to stop, wait until it has, and return its savepoint's URL; None when it died instead."""
        self.catalog.set_desired(JOB, state="stopped")
        asked = self.ask("stop_with_savepoint", name)
        until(lambda: self.generation().ended, "the driver to stop", self)
        result = self.catalog.get_request(asked.id).result
        if result is None:
            return None
        self.kept.append(result["url"])
        return str(result["url"])

    def ask(self, kind: Any, name: str, **arguments: Any) -> RequestRecord:
        """Ask the driver for something."""
        return self.catalog.request(JOB, kind, {"name": name, "reason": "chaos", **arguments}, name)

    def savepoint_folder(self, name: str) -> str:
        """Return a place for a self-contained savepoint."""
        return f"{self._bucket}/elsewhere/{name}"

    def start(self, **wishes: Any) -> None:
        """Want the job to run."""
        self.catalog.set_desired(JOB, state="running", **wishes)

    def roll_back(self, url: str, *options: str) -> None:
        """Start the stopped job from an older savepoint, as a person does."""
        self.note()
        to = open_savepoint(url).manifest
        self.lineages.roll_back(RollBack(to.lineage, to.epoch), published=self._is_published())
        self.shell("start", JOB, "--from", url, "--roll-back", *options)

    def shell(self, *arguments: str) -> Done:
        """Run a command of ``statecore`` on the job's catalog; ChaosError when it fails."""
        done = run(*arguments, STATECORE_CATALOG=self.catalog_url)
        if done.returncode:
            raise ChaosError(f"statecore {' '.join(arguments)} failed: {done.stderr}")
        return done

    @contextmanager
    def shell_beside(self, *arguments: str) -> Iterator[None]:
        """Run a command of ``statecore`` while the block runs, and wait for its end; ChaosError when it fails."""
        with self.environment(), (self.folder / "logs/shell.log").open("ab") as log:
            command = [sys.executable, "-m", "statecore", *arguments]
            shell = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        yield
        until(lambda: shell.poll() is not None, f"the end of statecore {' '.join(arguments)}", self)
        if shell.returncode:
            raise ChaosError(f"statecore {' '.join(arguments)} failed; see logs/shell.log")

    def lock_job(self) -> subprocess.Popen[str]:
        """Start a client of the catalog in a transaction that locks the job, until its input ends."""
        with self.environment():
            command, pipe = [sys.executable, "-m", "tests.chaos.client", JOB], subprocess.PIPE
            client = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        assert client.stdout is not None
        if client.stdout.readline() != "locked\n":
            raise ChaosError(f"the client could not lock the job: {client.communicate()[1]}")
        return client

    # What can be seen of it.

    def generation(self) -> GenerationRecord:
        newest = self.catalog.newest_generation(JOB)
        assert newest is not None
        return newest

    def note(self) -> None:
        """Read the manifests that are new: clean-up will remove them."""
        put = self.network.manifests
        # To list them takes as much of the processor as the job does, when it is done all the time.
        if put == self._noted:
            return
        new = [self.store.find(*epoch) for epoch in self.store.committed() if not self.lineages.has(*epoch)]
        try:
            self.lineages.add(manifest for manifest in new if manifest is not None)
        except ForkError as error:
            raise ChaosError(str(error)) from error
        self._noted = put

    def begun(self) -> int:
        """Return the newest epoch that the newest driver has begun; -1 before the first."""
        folders = f"statecore-{JOB}-{self.generation().generation}-*/spark/offsets/*"
        names = [path.name for path in (self.folder / "tmp").glob(folders)]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def in_flight(self) -> bool:
        """Tell whether an epoch is begun and not committed, or committed and not published."""
        begun = self.begun()
        self.note()
        return begun > self.lineages.head or not self._is_published()

    def is_settled(self) -> bool:
        """Tell whether all that was fed is committed and published."""
        self.note()
        fed = (len(self.fed.records), len(self.fed.rules))
        newest = self.lineages.newest
        return newest is not None and read_so_far(newest) == fed and self._is_published()

    def read_by(self, url: str) -> tuple[int, int]:
        """Return how many files of records, and of rules, the job had read when it took a savepoint."""
        return read_so_far(open_savepoint(url).manifest)

    def settle(self) -> None:
        """Wait until all that was fed is committed and published."""
        until(self.is_settled, "the records to be committed and published", self)

    def begin_epoch(self, files: int = 1) -> None:
        """Feed, and wait until the epoch has begun."""
        self.note()
        before = self.lineages.head
        self.feed(files)
        until(lambda: self.begun() > before, "an epoch to begin", self)

    def epoch_s(self) -> float:
        """Return how long epochs take; not the first of a driver, which take longer."""
        return min(epoch.duration_ms for epoch in self.catalog.epochs(JOB, limit=8)) / 1000

    def verdict(self) -> Verdict:
        """Compare all that the job has left with the truth."""
        savepoints = [Kept(*open_savepoint(url)[:2]) for url in self.kept]
        return judge(self.store, self.lineages, self.fed, self.sinks, savepoints)

    def _is_published(self) -> bool:
        newest = self.lineages.newest
        if newest is None:
            return True
        sinks = {output.sink for output in newest.outputs}
        markers = (Markers(self.store.files, f"{MARKERS}/{sink}").newest for sink in sinks)
        return all(found is not None and found >= (newest.lineage, newest.epoch) for found in markers)

    # Fault points.

    def arm(self, point: FaultPoint) -> None:
        """Let whoever passes the point next die there."""
        self._hit_file(point).unlink()

    def is_hit(self, point: FaultPoint) -> bool:
        """Tell whether somebody has died at an armed point."""
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
            "AWS_ENDPOINT_URL": self.network.url,
            "TMPDIR": f"{self.folder}/tmp",
            "SPARK_LOCAL_DIRS": f"{self.folder}/spark",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "STATECORE_FAULTS": ",".join(f"{point}@0" for point in FaultPoint),
            "STATECORE_FAULT_DIR": f"{self.folder}/hits",
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
            program = [sys.executable, "-m", "tests.chaos.supervise", str(logs), str(clock), str(drivers_ahead_s)]
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
        command = SparkSubmit(DRIVER)(self.catalog.job(JOB), generation)
        log = self.folder / f"logs/by-hand-{generation.generation}-{len(self.fed.records)}.log"
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
        found = self.processes(str(DRIVER), f"--generation {generation}")
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

    def end_processes(self) -> None:
        """End every process that belongs to the world, also what it starts meanwhile."""
        if self.supervisor is not None:
            self.kill_supervisor()
        deadline = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < deadline:
            kill(*left)
            time.sleep(0.1)

    def _start_cluster(self) -> None:
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
        self._cluster = master


_RULES = (("even", 3), ("even", 2), ("odd", 5), ("odd", 7), ("odd", 0), (job.FLUSH, 0), (job.FLUSH, 0))


def kill(*processes: psutil.Process) -> None:
    """End processes at once."""
    signalled(processes, "kill")


def signalled(processes: Sequence[psutil.Process], what: str) -> None:
    """Kill, suspend or resume processes; those that are gone are left alone."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            getattr(process, what)()


def until(condition: Callable[[], Any], what: str, world: World, timeout_s: float = PATIENCE_S) -> None:
    """Wait for something; note what is committed meanwhile, before clean-up removes it.

    Raises:
        ChaosError: It did not come about, or an epoch was committed that nobody asked for.

    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            newest = world.catalog.newest_generation(JOB)
            raise ChaosError(f"waited {timeout_s} s for {what}; the newest generation is {newest}")
        world.note()
        time.sleep(0.1)
