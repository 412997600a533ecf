"""A rescale of a query, while something is killed at each of its steps: the output is that of a query left alone.

The shell that carries out the rescale stands for Airflow, whose tasks run the same steps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore.catalog import Catalog
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.e2e import query as by_number
from tests.support.waiting import wait

pytestmark = pytest.mark.timeout(600)

# Of master and worker in one process, with executors as processes of their own.
MASTER = "local-cluster[1,1,512]"
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
KEYS, ROWS = 23, 120
_WITHIN_S = 0.7
JOB = "kept"
STEPS = ("stop_with_savepoint", "rescale_state", "restart", "verify")
VICTIMS = ("driver", "supervisor", "shell", "executor")
SINKS = {True: "foreachBatch", False: "file sink"}
# Each victim and each step with both sinks.
KILLS = [
    ((victim + step) % 2 == 0, VICTIMS[victim], STEPS[step])
    for victim in range(len(VICTIMS))
    for step in range(len(STEPS))
]
TO_FILES = """
def build(spark, settings):
    rows = spark.readStream.schema("k string, n long").option("maxFilesPerTrigger", 1).parquet(settings["input"])
    seen = rows.dropDuplicates(["n"])
    return seen.writeStream.outputMode("append").format("parquet").option("path", settings["output"])
"""


@dataclass
class World:
    """A supervisor, a query as its job, and what it was fed."""

    root: Path
    by_number: bool
    fed: list[tuple[str, int]] = field(default_factory=list)
    files: int = 0
    processes: list[psutil.Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            (self.root / name).mkdir()
        self.url = f"sqlite:///{self.root}/catalog.db"
        query = self.root / "query.py"
        query.write_text(Path(by_number.__file__).read_text() if self.by_number else TO_FILES)
        conf = [f"--conf={key}={value}" for key, value in CONF.items()]
        settings = [f"--setting={name}={self.root / name}" for name in ("input", "output")]
        with Catalog(self.url) as catalog:
            catalog.create_schema()
        self.run(
            "register", JOB, "--query", query, "--checkpoint", self.root / "checkpoint", "--store", self.root / "store",
            "--master", MASTER, "--parallelism", 2, *conf, *settings,
        )  # fmt: skip

    def spawn(self, *arguments: object) -> psutil.Process:
        log = (self.root / f"{arguments[0]}-{len(self.processes)}.log").open("wb")
        command = [sys.executable, "-m", "statecore", *map(str, arguments)]
        environment = {**os.environ, "STATECORE_CATALOG": self.url}
        made = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(psutil.Process(made.pid))
        return self.processes[-1]

    def run(self, *arguments: object) -> None:
        code = self.spawn(*arguments).wait(300)
        assert code == 0, (self.root / f"{arguments[0]}-{len(self.processes) - 1}.log").read_text()

    def feed(self, files: int) -> None:
        """Feed some files; each has the rows of the one before it as well, which a query must know again."""
        for _ in range(files):
            first = self.files * ROWS
            rows = [(f"k{n % KEYS}", n) for n in range(max(0, first - ROWS), first + ROWS)]
            made = self.root / "made.parquet"
            pq.write_table(pa.table({"k": [k for k, _ in rows], "n": [n for _, n in rows]}), made)
            made.rename(self.root / "input" / f"{self.files:05}.parquet")
            self.files += 1
            self.fed += rows

    def truth(self) -> object:
        if not self.by_number:
            return Counter(dict.fromkeys(self.fed, 1))
        totals: dict[str, tuple[int, int]] = {}
        for k, n in self.fed:
            count, total = totals.get(k, (0, 0))
            totals[k] = count + 1, total + n
        return totals

    def output(self) -> object:
        folder = self.root / "output"
        if self.by_number:
            batches = {int(each.stem): json.loads(each.read_text()) for each in folder.glob("[0-9]*.json")}
            return {k: (count, total) for number in sorted(batches) for k, count, total in batches[number]}
        # As Spark reads it: what the sink's log names, and nothing else.
        logged: dict[str, None] = {}
        for entry in sorted(folder.glob("_spark_metadata/[0-9]*"), key=lambda each: int(each.stem)):
            for line in entry.read_text().splitlines()[1:]:
                logged[json.loads(line)["path"].rpartition("/")[2]] = None
        rows: Counter[tuple[str, int]] = Counter()
        for name in logged:
            table = pq.read_table(folder / name)
            rows.update(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))
        return rows

    def settle(self) -> None:
        wait(lambda: self.output() == self.truth(), "the output of all that was fed", 240)

    def kill(self, what: str, rescale: psutil.Process) -> None:
        """Kill without warning; a driver or an executor that is not there, at that step, is not killed."""
        victims = {"shell": [rescale], "supervisor": [self.processes[1]]}.get(what)
        if victims is None:
            marks = {"driver": ("programs/query.py", JOB), "executor": ("CoarseGrainedExecutorBackend",)}[what]
            below = self.processes[1].children(recursive=True)
            victims = [each for each in below if all(mark in " ".join(_command(each)) for mark in marks)][:1]
        for victim in victims:
            with suppress(psutil.NoSuchProcess):
                os.kill(victim.pid, signal.SIGKILL)

    def close(self) -> None:
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):
                for each in [*process.children(recursive=True), process]:
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
        for process in psutil.process_iter(["cmdline"]):
            if any(str(self.root) in part for part in process.info["cmdline"] or ()):
                with suppress(psutil.NoSuchProcess):
                    process.kill()


def _command(process: psutil.Process) -> list[str]:
    try:
        found: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return found


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, request.param)
    try:
        # The supervisor is the second process, see `kill`.
        made.spawn("supervisor", "--logs", tmp_path / "logs")
        made.feed(2)
        made.run("start", JOB)
        made.settle()
        yield made
    finally:
        made.close()


def reached(catalog: Catalog, step: str, rescale: psutil.Process) -> bool:
    runs = catalog.runs.of(JOB)
    times = runs[0].steps.get(step) if runs else None
    return (times is not None and times.started_ms is not None) or not rescale.is_running()


@pytest.mark.parametrize(
    ("world", "what", "step"), KILLS, ids=[f"{SINKS[sink]}-{what}-{step}" for sink, what, step in KILLS],
    indirect=["world"],
)  # fmt: skip
def test_a_kill_changes_no_output(world: World, what: str, step: str) -> None:
    world.feed(3)
    rescale = world.spawn("rescale", JOB, "--parallelism", 3)
    with Catalog(world.url) as catalog:
        wait(lambda: reached(catalog, step, rescale), f"the step {step}", 200)
        # In the middle of it, not at its begin.
        begun = time.monotonic()
        wait(lambda: time.monotonic() - begun > _WITHIN_S, "the middle of the step")
        world.kill(what, rescale)
        world.feed(2)
        if what == "supervisor":
            world.processes[1] = world.spawn("supervisor", "--logs", world.root / "logs")
        world.settle()
        wait(lambda: catalog.leases.find(JOB) is None, "the end of the rescale", 240)
        world.feed(1)
        world.settle()
        job = catalog.jobs.get(JOB)
    assert job.checkpoint is not None
    assert job.parallelism in (2, 3)
    assert open_checkpoint(job.checkpoint).partitions == job.parallelism


@pytest.mark.parametrize("world", SINKS, ids=SINKS.values(), indirect=True)
def test_a_state_file_lost_between_stop_and_restart_is_named_and_nothing_is_lost(world: World) -> None:
    rescale = world.spawn("rescale", JOB, "--parallelism", 3)
    with Catalog(world.url) as catalog:
        wait(lambda: catalog.runs.of(JOB) and catalog.runs.of(JOB)[0].savepoint, "the savepoint", 100)
        (savepoint,) = catalog.savepoints.of(JOB)
        lost = next(Path(savepoint.path).glob("state/0/1/[0-9]*.delta"))
        lost.unlink()
        assert rescale.wait(240) != 0
        (run,) = catalog.runs.of(JOB)
        assert "state/0/1/" in (run.error or "")
        world.feed(2)
        world.settle()
        assert catalog.jobs.get(JOB).parallelism == 2


@pytest.mark.parametrize("world", SINKS, ids=SINKS.values(), indirect=True)
def test_a_cluster_that_never_comes_stops_nothing(world: World) -> None:
    # Nobody listens there.
    settings = {
        "master_url": "spark://127.0.0.1:9",
        "master_web_url": "http://127.0.0.1:9",
        "run_dir": world.root / "run",
        "log_dir": world.root / "logs of workers",
    }
    options = [f"--setting={name}={value}" for name, value in settings.items()]
    world.run("cluster", "register", "far", "--kind", "standalone", "--workers", 1, *options)
    world.run("register", JOB, "--cluster", "far")
    rescale = world.spawn("rescale", JOB, "--parallelism", 3, "--workers", 2, "--timeout", 15)
    world.feed(2)
    assert rescale.wait(120) != 0
    with Catalog(world.url) as catalog:
        (run,) = catalog.runs.of(JOB)
        assert (run.state, run.savepoint) == ("failed", None)
        assert "grow_cluster" in (run.error or ""), run.error
        world.feed(1)
        world.settle()
        newest = catalog.generations.newest(JOB)
        assert newest is not None and (newest.generation, newest.state) == (1, "running")
        assert catalog.jobs.get(JOB).parallelism == 2
        assert catalog.clusters.get("far").desired_workers == 1
