"""The supervisor with real processes: a small driver that only reports to the catalog."""

from __future__ import annotations

import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from statecore import supervisor as supervisor_module
from statecore.catalog import Catalog, EpochRecord, GenerationRecord, JobRecord, Liveness
from statecore.catalog.job_names import read_job_names
from statecore.catalog.records import ENDED_BY_ITSELF
from statecore.cluster import ClusterSize
from statecore.cluster.processes import kill_session, session_members, spawn
from statecore.errors import CatalogError, ClusterError
from statecore.operations.supervising import cluster_size as tending_module
from statecore.operations.supervising import drivers as drivers_module
from statecore.supervisor import Supervisor
from tests.support.waiting import PATIENCE_S, wait

DRIVER = """
import os, sys, time
from statecore.catalog import Catalog

url, job, generation = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("driver of", job, generation, flush=True)
with Catalog(url) as catalog:
    epoch = 10 * generation
    while catalog.generations.heartbeat(job, generation, lineage=1, epoch=epoch):
        if catalog.jobs.get(job).desired_state == "stopped":
            catalog.generations.end(job, generation, state="stopped")
            sys.exit(0)
        time.sleep(0.05)
"""


class ManualClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def url(catalog_url: str) -> str:
    return catalog_url


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with Catalog(url) as catalog:
        register(catalog)
        yield catalog


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slow_catalog(url: str, clock: ManualClock) -> Iterator[Catalog]:
    """A catalog in which time passes only when the test says so."""
    with Catalog(url, clock=clock) as catalog:
        register(catalog)
        yield catalog


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a pass wait for its calls, so that a test may look at what they did however long they took."""
    monkeypatch.setattr(supervisor_module, "_PASS_S", PATIENCE_S)


@pytest.fixture(autouse=True)
def spawned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Pids of all drivers started; whatever is left of them is ended, once no supervisor is about to start another."""
    pids: list[int] = []

    def recording(*args: Any, **kwargs: Any) -> subprocess.Popen[bytes]:
        child = spawn(*args, **kwargs)
        pids.append(child.pid)
        return child

    monkeypatch.setattr(drivers_module, "spawn", recording)
    yield pids
    wait(lambda: all(thread.name != "statecore-job" for thread in threading.enumerate()), "the calls about jobs")
    for pid in pids:
        kill_session(pid)


@pytest.fixture
def launch(tmp_path: Path, url: str) -> Callable[[JobRecord, GenerationRecord], list[str]]:
    program = tmp_path / "driver.py"
    program.write_text(DRIVER)
    return lambda job, generation: [sys.executable, str(program), url, job.name, str(generation.generation)]


@pytest.fixture
def sleeping(slow_catalog: Catalog, tmp_path: Path) -> Supervisor:
    """A supervisor whose drivers only sleep; it has started one."""
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["sleep", "60"])
    slow_catalog.jobs.set_desired("j", state="running")
    supervisor.step()
    return supervisor


def register(catalog: Catalog, name: str = "j") -> None:
    catalog.jobs.register(
        name, artifact="/a.py", store="/s", master_url="spark://h:1", parallelism=2, max_parallelism=128
    )


def until(supervisor: Supervisor, condition: Callable[[], object]) -> None:
    """Make one pass after the other until something has come about."""

    def attempt() -> object:
        supervisor.step()
        return condition()

    wait(attempt, "what the supervisor is to bring about")


def states(catalog: Catalog) -> list[str]:
    return [g.state for g in reversed(catalog.generations.of("j"))]


def newest(catalog: Catalog) -> GenerationRecord:
    generation = catalog.generations.newest("j")
    assert generation is not None
    return generation


def test_a_wanted_job_is_started_once_and_writes_its_log(catalog: Catalog, launch, tmp_path: Path, spawned) -> None:
    supervisor = Supervisor(catalog, tmp_path / "logs", launch=launch)
    supervisor.step()
    assert states(catalog) == []
    catalog.jobs.set_desired("j", state="running")
    until(supervisor, lambda: states(catalog) == ["running"])
    supervisor.step()
    assert len(spawned) == 1
    assert os.getsid(spawned[0]) == spawned[0] != os.getsid(0)
    assert newest(catalog).log_path == str(tmp_path / "logs" / "j-1.log")
    assert Path(newest(catalog).log_path).read_text().startswith("driver of j 1")


def test_a_killed_driver_is_replaced_without_waiting_for_its_heartbeat(
    catalog: Catalog, launch, tmp_path: Path, spawned
) -> None:
    supervisor = Supervisor(catalog, tmp_path, launch=launch)
    catalog.jobs.set_desired("j", state="running")
    until(supervisor, lambda: states(catalog) == ["running"])
    os.kill(spawned[0], signal.SIGKILL)
    until(supervisor, lambda: len(spawned) == 2)
    until(supervisor, lambda: states(catalog) == ["failed", "running"])
    assert "its JVM killed by SIGKILL" in str(catalog.generations.of("j")[1].error)
    assert not psutil.pid_exists(spawned[0])


def test_a_job_that_stopped_as_wanted_stays_stopped_and_starts_again_when_wanted(
    catalog: Catalog, launch, tmp_path: Path, spawned
) -> None:
    supervisor = Supervisor(catalog, tmp_path, launch=launch)
    catalog.jobs.set_desired("j", state="running")
    until(supervisor, lambda: states(catalog) == ["running"])
    catalog.jobs.set_desired("j", state="stopped")
    until(supervisor, lambda: states(catalog) == ["stopped"] and not psutil.pid_exists(spawned[0]))
    for _ in range(3):
        supervisor.step()
    assert len(spawned) == 1
    catalog.jobs.set_desired("j", state="running", parallelism=4)
    supervisor.step()
    assert (newest(catalog).generation, newest(catalog).parallelism) == (2, 4)


def freeze(pid: int, url: str) -> None:
    """Stop a process between two of its transactions: stopped within one, it would keep the database locked."""
    while True:
        os.kill(pid, signal.SIGSTOP)
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0.1)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError:
                os.kill(pid, signal.SIGCONT)


def test_a_job_killed_while_unwanted_is_not_started(
    catalog: Catalog, url: str, launch, tmp_path: Path, spawned
) -> None:
    supervisor = Supervisor(catalog, tmp_path, launch=launch)
    catalog.jobs.set_desired("j", state="running")
    until(supervisor, lambda: states(catalog) == ["running"])
    freeze(spawned[0], url)
    catalog.jobs.set_desired("j", state="stopped")
    os.kill(spawned[0], signal.SIGKILL)
    until(supervisor, lambda: states(catalog) == ["failed"])
    supervisor.step()
    assert len(spawned) == 1


def test_another_supervisor_goes_on_with_a_living_driver_and_replaces_a_dead_one(
    catalog: Catalog, url: str, launch, tmp_path: Path, spawned
) -> None:
    first = Supervisor(catalog, tmp_path, launch=launch)
    catalog.jobs.set_desired("j", state="running")
    until(first, lambda: states(catalog) == ["running"])
    first.close()
    second = Supervisor(catalog, tmp_path, launch=launch)
    beat_ms = newest(catalog).heartbeat_ms
    until(second, lambda: newest(catalog).heartbeat_ms > beat_ms + 500)
    assert len(spawned) == 1
    second.close()
    os.kill(spawned[0], signal.SIGKILL)
    with Catalog(url, liveness=Liveness(running_ms=3_000)) as impatient:
        third = Supervisor(impatient, tmp_path, launch=launch)
        until(third, lambda: states(catalog) == ["failed", "running"])
    assert len(spawned) == 2
    assert "no heartbeat" in str(catalog.generations.of("j")[1].error)


def test_an_expired_lease_brings_the_job_back(slow_catalog: Catalog, clock: ManualClock, tmp_path: Path) -> None:
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["sleep", "60"])
    slow_catalog.jobs.set_desired("j", state="running")
    slow_catalog.leases.acquire("j", "run-1", 5_000)
    slow_catalog.runs.start("run-1", "j", from_parallelism=2, to_parallelism=4)
    slow_catalog.jobs.set_desired("j", state="stopped", start_from="/sp")
    clock.ms += 4_999
    supervisor.step()
    assert states(slow_catalog) == []
    clock.ms += 1
    supervisor.step()
    assert states(slow_catalog) == ["launching"]
    assert slow_catalog.jobs.get("j").start_from is None and slow_catalog.leases.find("j") is None
    assert slow_catalog.runs.get("run-1").error == "lease expired (owner run-1)"


def test_a_driver_that_keeps_failing_is_started_less_and_less_often(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path
) -> None:
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["false"])
    slow_catalog.jobs.set_desired("j", state="running")
    for number, pause_ms in enumerate([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000], start=1):
        until(supervisor, lambda n=number: states(slow_catalog) == ["failed"] * n)  # type: ignore[misc]
        assert "the driver ended with exit code 1" in str(newest(slow_catalog).error)
        clock.ms += pause_ms - 1
        supervisor.step()
        assert newest(slow_catalog).generation == number
        clock.ms += 1
        supervisor.step()
        assert newest(slow_catalog).generation == number + 1


def test_a_job_whose_record_is_damaged_keeps_no_other_from_being_started(
    catalog: Catalog, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    register(catalog, "other")
    catalog.jobs.set_desired("other", state="running")
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as database, database:
        database.execute("UPDATE jobs SET start_after_generation = 'damaged' WHERE name = 'j'")
    Supervisor(catalog, tmp_path, launch=lambda *_: ["sleep", "60"]).step()
    assert [each.state for each in catalog.generations.of("other")] == ["launching"]
    assert "'j'" in caplog.text


def fail_with(catalog: Catalog, epoch: int | None) -> None:
    number = catalog.generations.claim("j", log_path="/l").generation
    # The epoch that it has resumed from is no progress.
    catalog.generations.heartbeat("j", number, lineage=1, epoch=4)
    if epoch is not None:
        catalog.epochs.record(EpochRecord("j", 1, epoch, number, 2, 1, 1, 0, 1, 1))
    catalog.generations.end("j", number, state="failed")


@pytest.mark.parametrize(
    ("epochs", "pause_ms"),
    [
        ([5], 0), ([5, None], 1_000), ([5, None, 6], 0), ([5, None, None], 2_000), ([None, 5], 0),
        ([5, None, None, None], 4_000),
    ],
)  # fmt: skip
def test_only_failures_without_a_new_epoch_count(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, epochs: list[int | None], pause_ms: int
) -> None:
    for epoch in epochs:
        fail_with(slow_catalog, epoch)
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["sleep", "60"])
    slow_catalog.jobs.set_desired("j", state="running")
    clock.ms += max(pause_ms - 1, 0)
    supervisor.step()
    assert (newest(slow_catalog).generation > len(epochs)) == (pause_ms == 0)
    clock.ms += 1
    supervisor.step()
    assert newest(slow_catalog).generation == len(epochs) + 1


def test_a_driver_that_hangs_is_ended_before_its_successor_starts(
    slow_catalog: Catalog, clock: ManualClock, sleeping: Supervisor, spawned
) -> None:
    clock.ms += 90_000
    sleeping.step()
    assert states(slow_catalog) == ["failed"]
    until(sleeping, lambda: not psutil.pid_exists(spawned[0]))
    clock.ms += 1_000
    sleeping.step()
    assert states(slow_catalog) == ["failed", "launching"]


def test_a_driver_that_outlives_its_generation_is_killed_although_its_successor_runs(
    slow_catalog: Catalog, clock: ManualClock, sleeping: Supervisor, spawned
) -> None:
    # As a driver does that finds its JVM hung, and cannot kill it.
    slow_catalog.generations.end("j", 1, state="failed", error="found no answer from the driver's JVM")
    clock.ms += 1_000
    sleeping.step()
    assert states(slow_catalog) == ["failed", "launching"]
    clock.ms += 60_000
    assert slow_catalog.generations.heartbeat("j", 2)
    sleeping.step()
    until(sleeping, lambda: not psutil.pid_exists(spawned[0]))
    assert states(slow_catalog) == ["failed", "running"] and psutil.pid_exists(spawned[1])


def test_the_earlier_driver_of_a_query_of_spark_is_killed_before_its_successor_starts(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    slow_catalog.jobs.register(
        "q", artifact="/q.py", store="/q", master_url="local", parallelism=2, max_parallelism=128, checkpoint="/cp"
    )
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["sleep", "60"])
    slow_catalog.jobs.set_desired("q", state="running")
    supervisor.step()
    # As by a rollback: the driver learns it from its next heartbeat, and writes to its checkpoint until then.
    slow_catalog.generations.end("q", 1, state="stopped", error="rolled back")
    clock.ms += 1_000
    supervisor.step()
    assert [each.state for each in slow_catalog.generations.of("q")] == ["launching", "stopped"]
    wait(lambda: not psutil.pid_exists(spawned[0]) or psutil.Process(spawned[0]).status() == "zombie", "the kill")
    assert psutil.pid_exists(spawned[1])


def test_a_query_that_has_ended_by_itself_is_started_again_only_by_people(
    slow_catalog: Catalog, clock: ManualClock, sleeping: Supervisor
) -> None:
    slow_catalog.generations.end("j", 1, state="stopped", error=ENDED_BY_ITSELF)
    for _ in range(2):
        clock.ms += 60_000
        sleeping.step()
        assert (slow_catalog.jobs.get("j").desired_state, newest(slow_catalog).generation) == ("stopped", 1)
    slow_catalog.jobs.set_desired("j", state="running")
    sleeping.step()
    assert (slow_catalog.jobs.get("j").desired_state, newest(slow_catalog).generation) == ("running", 2)
    assert not slow_catalog.generations.stop_ended_query("j", 1)


def test_a_driver_that_does_not_heed_its_end_is_killed(
    slow_catalog: Catalog, clock: ManualClock, sleeping: Supervisor, spawned
) -> None:
    slow_catalog.jobs.set_desired("j", state="stopped")
    slow_catalog.generations.end("j", 1, state="stopped", error="rolled back")
    clock.ms += 60_000
    sleeping.step()
    assert psutil.pid_exists(spawned[0])
    clock.ms += 1
    until(sleeping, lambda: not psutil.pid_exists(spawned[0]))
    assert states(slow_catalog) == ["stopped"]


def test_the_names_of_all_jobs_are_written_down_for_those_who_must_not_ask_the_catalog(
    slow_catalog: Catalog, tmp_path: Path
) -> None:
    names = tmp_path / "jobs.json"
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: [], names_file=names)
    supervisor.step()
    assert read_job_names(names) == ["j"]


def test_what_a_dead_driver_started_is_ended_with_it(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["sh", "-c", "sleep 60 & sleep 60; true"])
    slow_catalog.jobs.set_desired("j", state="running")
    until(supervisor, lambda: len(session_members(spawned[0])) == 3)
    os.kill(spawned[0], signal.SIGKILL)
    until(supervisor, lambda: states(slow_catalog) == ["failed"] and not session_members(spawned[0]))


def test_a_job_file_is_checked_for_those_who_ask(catalog: Catalog, launch, tmp_path: Path) -> None:
    request = catalog.requests.send("j", "check_job_file", {"artifact": str(tmp_path / "none.py")}, "1").id
    until(Supervisor(catalog, tmp_path, launch=launch), lambda: catalog.requests.get(request).state == "failed")
    assert "registered for the job before" in str(catalog.requests.get(request).error)


def test_a_driver_that_cannot_be_started_fails_its_generation(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path
) -> None:
    supervisor = Supervisor(slow_catalog, tmp_path, launch=lambda *_: ["/no/such/program"])
    slow_catalog.jobs.set_desired("j", state="running")
    supervisor.step()
    assert states(slow_catalog) == ["failed"]
    assert "/no/such/program" in str(newest(slow_catalog).error)


def test_a_catalog_that_fails_for_a_while_does_not_end_the_supervisor(
    catalog: Catalog, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, failures = catalog.clusters.all, [CatalogError("database is locked"), RuntimeError("surprise")]

    def clusters() -> object:
        if failures:
            raise failures.pop(0)
        return real()

    monkeypatch.setattr(catalog.clusters, "all", clusters)
    catalog.jobs.set_desired("j", state="running")
    supervisor = Supervisor(catalog, tmp_path, launch=launch, poll_interval_s=0.02)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    with caplog.at_level(logging.INFO):
        thread.start()
        try:
            wait(lambda: states(catalog) == ["running"], "the driver")
        finally:
            supervisor.stop()
            thread.join(30)
    assert not thread.is_alive()
    assert "database is locked" in caplog.text and "surprise" in caplog.text


def test_after_its_own_silence_a_supervisor_gives_drivers_as_long(
    slow_catalog: Catalog, clock: ManualClock, sleeping: Supervisor
) -> None:
    """The catalog answered late, and no call failed."""
    slow_catalog.generations.heartbeat("j", 1)
    sleeping.step()
    clock.ms += 40_000
    sleeping._beat_s -= 40
    sleeping.step()
    clock.ms += 39_900
    sleeping.step()
    assert states(slow_catalog) == ["running"]
    clock.ms += 1_000
    sleeping.step()
    assert states(slow_catalog)[-1] == "failed"


def test_who_could_not_be_heard_while_the_catalog_was_away_is_given_time_to_be(
    slow_catalog: Catalog, clock: ManualClock, sleeping: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_catalog.generations.heartbeat("j", 1)
    slow_catalog.leases.acquire("j", "run-1", 60_000)
    clock.ms += 120_000
    with monkeypatch.context() as away:
        away.setattr(slow_catalog.clusters, "all", unreachable)
        with pytest.raises(CatalogError):
            sleeping.step()
    clock.ms += 60_000
    sleeping.step()
    clock.ms += 14_999
    sleeping.step()
    assert states(slow_catalog) == ["running"] and slow_catalog.leases.find("j") is not None
    clock.ms += 1
    sleeping.step()
    assert states(slow_catalog) == ["failed"] and slow_catalog.leases.find("j") is None


def unreachable() -> None:
    raise CatalogError("the database is down")


class FakeCluster:
    is_local = True

    def __init__(self) -> None:
        self.workers = 0

    def resize(self, workers: int) -> None:
        if workers == 3:
            raise ClusterError("no room")
        self.workers = workers

    def size(self) -> ClusterSize:
        if self.workers > 3:
            raise ClusterError("no master")
        return ClusterSize(running=self.workers, ready=self.workers, smallest=1, largest=8)

    def close(self) -> None:
        pass


def test_clusters_get_the_size_wanted_and_report_the_size_seen(
    catalog: Catalog, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tending_module, "cluster_for", lambda record: FakeCluster())
    catalog.clusters.register("c", "standalone", {}, 1)
    supervisor = Supervisor(catalog, tmp_path, launch=launch)
    supervisor.step()
    found = catalog.clusters.get("c")
    assert (found.ready_workers, found.min_workers, found.max_workers) == (1, 1, 8)
    catalog.clusters.set_desired_workers("c", 2)
    supervisor.step()
    assert (catalog.clusters.get("c").ready_workers, catalog.clusters.get("c").message) == (2, None)
    catalog.clusters.set_desired_workers("c", 3)
    supervisor.step()
    # Those that are there go on.
    assert (catalog.clusters.get("c").ready_workers, catalog.clusters.get("c").message) == (2, "no room")
    catalog.clusters.set_desired_workers("c", 4)
    supervisor.step()
    assert (catalog.clusters.get("c").ready_workers, catalog.clusters.get("c").message) == (0, "no master")


def test_one_impossible_cluster_does_not_keep_jobs_from_starting(catalog: Catalog, launch, tmp_path: Path) -> None:
    catalog.clusters.register("c", "yarn", {}, 1)
    catalog.jobs.set_desired("j", state="running")
    Supervisor(catalog, tmp_path, launch=launch).step()
    assert states(catalog) == ["launching"]
    assert "of kind 'yarn'" in str(catalog.clusters.get("c").message)


def test_the_supervisor_process_ends_on_sigterm(url: str, tmp_path: Path) -> None:
    program = (
        "import logging, sys; from pathlib import Path; from statecore.supervisor import run_supervisor;"
        "logging.basicConfig(level='INFO'); run_supervisor(sys.argv[1], Path(sys.argv[2]), poll_interval_s=0.1)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, url, str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(supervisor_module.__file__).parents[1],
    )
    assert process.stderr is not None
    assert any("supervisor started" in line for line in process.stderr)
    process.terminate()
    _, rest = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, rest
    assert "supervisor stops" in rest
