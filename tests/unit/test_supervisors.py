"""What a supervisor does when it is not the only one, not the first one, or something hangs."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from statecore import supervisor as supervisor_module
from statecore.catalog import Catalog, GenerationRecord, JobRecord
from statecore.cluster.processes import started_ms
from statecore.operations.status.advice import advice
from statecore.operations.status.job_status import job_status
from statecore.operations.supervising import cluster_size as tending_module
from statecore.supervisor import Supervisor
from tests.support.waiting import PATIENCE_S, wait
from tests.unit.test_supervisor import (
    FakeCluster,
    ManualClock,
    catalog,
    clock,
    launch,
    newest,
    patient,
    slow_catalog,
    spawned,
    states,
    until,
    url,
)

__all__ = ["catalog", "clock", "launch", "patient", "slow_catalog", "spawned", "url"]

SILENT_MS = 30_000


def sleeping(*_: object) -> list[str]:
    return ["sleep", "3600"]


def test_a_second_supervisor_waits_until_the_first_is_silent(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    first, second = (Supervisor(slow_catalog, tmp_path, launch=sleeping) for _ in range(2))
    first.step()
    slow_catalog.jobs.set_desired("j", state="running")
    second.step()
    assert states(slow_catalog) == []
    clock.ms += SILENT_MS
    second.step()
    assert states(slow_catalog) == ["launching"]
    first.step()
    assert len(spawned) == 1


def test_a_supervisor_that_stops_is_followed_at_once(slow_catalog: Catalog, tmp_path: Path) -> None:
    first = Supervisor(slow_catalog, tmp_path, launch=sleeping)
    first.step()
    first.close()
    slow_catalog.jobs.set_desired("j", state="running")
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    assert states(slow_catalog) == ["launching"]


@pytest.mark.parametrize("whose", ["nobody's", "a stranger's"])
def test_a_supervisor_that_was_killed_is_followed_at_once_on_its_host(
    slow_catalog: Catalog, tmp_path: Path, whose: str
) -> None:
    pid, born_ms = (2**22 + 1, 0) if whose == "nobody's" else (os.getpid(), started_ms(os.getpid()) - 60_000)
    slow_catalog.supervisors.lead("old", host=socket.gethostname(), pid=pid, process_started_ms=born_ms, version="0")
    slow_catalog.jobs.set_desired("j", state="running")
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    assert states(slow_catalog) == ["launching"]


@pytest.mark.parametrize("lives", [True, False])
def test_a_supervisor_that_begins_after_an_outage_gives_drivers_the_time_to_be_heard(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned, lives: bool
) -> None:
    slow_catalog.jobs.set_desired("j", state="running")
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    slow_catalog.generations.heartbeat("j", 1)
    # Nobody reaches the catalog; meanwhile, the supervisor is restarted.
    clock.ms += 600_000
    second = Supervisor(slow_catalog, tmp_path, launch=sleeping)
    second.step()
    assert states(slow_catalog) == ["running"]
    clock.ms += 15_000
    if lives:
        slow_catalog.generations.heartbeat("j", 1)
    second.step()
    assert states(slow_catalog)[-1] == ("running" if lives else "failed")


def test_of_a_supervisor_on_another_host_only_its_silence_counts(slow_catalog: Catalog, tmp_path: Path) -> None:
    slow_catalog.supervisors.lead("old", host="elsewhere", pid=2**22 + 1, process_started_ms=0, version="0")
    slow_catalog.jobs.set_desired("j", state="running")
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    assert states(slow_catalog) == []


def hang(catalog: Catalog, clock: ManualClock, tmp_path: Path) -> None:
    """Leave a driver that hangs, whose supervisor is gone."""
    first = Supervisor(catalog, tmp_path, launch=sleeping)
    catalog.jobs.set_desired("j", state="running")
    first.step()
    first.close()
    clock.ms += 90_000


def assert_not_killed(pid: int) -> None:
    """End a child, and see that this ended it and not a signal before."""
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM


def test_a_driver_that_hangs_is_ended_by_the_next_supervisor(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    hang(slow_catalog, clock, tmp_path)
    second = Supervisor(slow_catalog, tmp_path, launch=sleeping)
    second.step()
    assert states(slow_catalog) == ["failed"]
    wait(lambda: psutil.Process(spawned[0]).status() == psutil.STATUS_ZOMBIE, "the driver's end", 30)


def test_a_driver_that_does_not_heed_its_end_is_killed_by_the_next_supervisor(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    hang(slow_catalog, clock, tmp_path)
    slow_catalog.jobs.set_desired("j", state="stopped")
    slow_catalog.generations.end("j", 1, state="stopped", error="rolled back")
    second = Supervisor(slow_catalog, tmp_path, launch=sleeping)
    clock.ms += 60_000
    second.step()
    assert psutil.Process(spawned[0]).status() != psutil.STATUS_ZOMBIE
    clock.ms += 1
    second.step()
    wait(lambda: psutil.Process(spawned[0]).status() == psutil.STATUS_ZOMBIE, "the driver's end", 30)


def test_a_process_that_only_has_the_drivers_pid_lives_on(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    hang(slow_catalog, clock, tmp_path)
    born_ms = started_ms(spawned[0]) - 60_000
    slow_catalog.generations.record_driver(
        "j", 1, host=socket.gethostname(), pid=spawned[0], process_started_ms=born_ms
    )
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    assert states(slow_catalog) == ["failed"]
    assert_not_killed(spawned[0])


def test_a_process_of_this_host_with_the_pid_of_another_hosts_driver_lives_on(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, spawned
) -> None:
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "elsewhere")
        hang(slow_catalog, clock, tmp_path)
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    assert states(slow_catalog) == ["failed"]
    assert_not_killed(spawned[0])


def test_a_supervisor_on_another_host_does_not_double_the_workers(
    slow_catalog: Catalog, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FakeCluster] = []

    def cluster_for(_: object) -> FakeCluster:
        made.append(FakeCluster())
        return made[-1]

    monkeypatch.setattr(tending_module, "cluster_for", cluster_for)
    slow_catalog.clusters.register("c", "standalone", {}, 2)
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    host = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    clock.ms += SILENT_MS
    Supervisor(slow_catalog, tmp_path, launch=sleeping).step()
    assert [cluster.workers for cluster in made] == [2, 0]
    assert f"found the workers of cluster 'c' on host {host}; expected them on elsewhere" in str(
        slow_catalog.clusters.get("c").message
    )


@pytest.fixture
def silent_endpoint() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_cluster_whose_api_hangs_keeps_neither_the_pass_nor_another_cluster_waiting(
    catalog: Catalog, launch, tmp_path: Path, silent_endpoint: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"group": "g", "region": "us-east-1", "master_web_url": silent_endpoint, "endpoint_url": silent_endpoint}
    catalog.clusters.register("hangs", "ec2", settings, 1)
    catalog.clusters.register("wrong", "yarn", {}, 1)
    catalog.jobs.set_desired("j", state="running")
    monkeypatch.setattr(supervisor_module, "_PASS_S", 0.2)
    monkeypatch.setattr(supervisor_module, "_HUNG_S", 0.5)
    supervisor = Supervisor(catalog, tmp_path, launch=launch)

    # A pass that waited for it would never begin while it hangs: two calls to the API, each with its timeouts.
    until(supervisor, lambda: states(catalog) and "of kind 'yarn'" in str(catalog.clusters.get("wrong").message))
    only_pending(supervisor, "cluster 'hangs'")
    supervisor.step()
    assert newest(catalog).generation == 1
    found = catalog.supervisors.last()
    assert found is not None and list(found.hung) == ["cluster 'hangs'"]


def only_pending(supervisor: Supervisor, what: str) -> None:
    """Wait until one call has been pending for long enough to be told, and no other is."""

    def pending(for_s: float) -> list[str]:
        return [*supervisor._cluster_calls.hung(for_s), *supervisor._job_calls.hung(for_s)]

    wait(lambda: pending(0) == pending(supervisor_module._HUNG_S) == [what], f"the other calls than that about {what}")


class Hanging(FakeCluster):
    """A cluster that hangs until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.let_go = threading.Event()

    def resize(self, workers: int) -> None:
        self.calls += 1
        assert self.let_go.wait(PATIENCE_S)
        super().resize(workers)


def test_a_cluster_is_not_called_again_while_its_call_is_pending_and_goes_on_afterwards(
    catalog: Catalog, launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Hanging()
    monkeypatch.setattr(tending_module, "cluster_for", lambda _: hanging)
    monkeypatch.setattr(supervisor_module, "_PASS_S", 0.2)
    catalog.clusters.register("c", "standalone", {}, 2)
    supervisor = Supervisor(catalog, tmp_path, launch=launch)
    until(supervisor, lambda: hanging.calls)
    for _ in range(3):
        supervisor.step()
    assert hanging.calls == 1
    hanging.let_go.set()
    until(supervisor, lambda: catalog.clusters.get("c").ready_workers == 2 and hanging.calls > 1)


def test_a_job_that_hangs_keeps_no_other_job_waiting_and_is_told(
    catalog: Catalog, launch, tmp_path: Path, spawned, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()

    def hangs_for_a(job: JobRecord, generation: GenerationRecord) -> list[str]:
        assert job.name == "j" or let_go.wait(PATIENCE_S)
        return list(launch(job, generation))

    catalog.jobs.register("a", artifact="/a", store="/s", master_url="m", parallelism=1, max_parallelism=128)
    for name in ("a", "j"):
        catalog.jobs.set_desired(name, state="running")
    monkeypatch.setattr(supervisor_module, "_PASS_S", 0.2)
    monkeypatch.setattr(supervisor_module, "_HUNG_S", 0.1)
    supervisor = Supervisor(catalog, tmp_path, launch=hangs_for_a)
    try:
        until(supervisor, lambda: states(catalog) == ["running"])
        only_pending(supervisor, "job 'a'")
        supervisor.step()
        todo = " ".join(advice(job_status(catalog, catalog.jobs.get("a"))))
        assert "the supervisor has waited for job 'a' for" in todo
        assert "waited" not in " ".join(advice(job_status(catalog, catalog.jobs.get("j"))))
    finally:
        let_go.set()
        # Its driver starts now, and the fixture ends it.
        wait(lambda: len(spawned) == 2, "the driver of the other job")
