"""A change whose DAG or shell has died: the supervisor ends it if the job only awaits verification."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from statecore import supervisor as supervisor_module
from statecore.catalog import Catalog, RescaleMethod, SourceBacklog
from statecore.errors import CatalogError, StepFailedError, UnknownRecordError
from statecore.operations.changes import Change, Rollback, Status, Verify
from statecore.operations.changes.finishing import Finisher
from statecore.supervisor import Supervisor
from statecore.testing import ManualClock
from tests.support.waiting import PATIENCE_S

# Minutes of passes, and each asks the catalog a dozen times.
pytestmark = pytest.mark.untraced

JOB, CLUSTER, RUN = "flights", "local", "manual__1"
LEASE_MS = 60_000


class World:
    """A job at parallelism 4 and 3 workers that a run takes to 2 and 1; the run's process dies."""

    def __init__(self, catalog: Catalog, clock: ManualClock, folder: Path) -> None:
        self.catalog, self.clock, self._folder = catalog, clock, folder
        self.generation = 0
        self.waiting = 0
        catalog.clusters.register(CLUSTER, "none of ours", {}, workers=3)
        catalog.jobs.register(
            JOB,
            artifact="/flights.py",
            store=str(folder / "store"),
            master_url="spark://h:1",
            cluster=CLUSTER,
            parallelism=4,
            max_parallelism=16,
        )
        catalog.jobs.set_desired(JOB, state="running")
        self.launch()
        self.supervisor = self.another()

    def another(self) -> Supervisor:
        return Supervisor(self.catalog, self._folder, launch=lambda *_: ["true"])

    def rescale(self, method: RescaleMethod, *, up_to: str, to_parallelism: int = 2) -> None:
        """Do what a rescale does, up to the end of this step."""
        catalog = self.catalog
        catalog.leases.acquire(JOB, RUN, LEASE_MS)
        sizes = {"from_parallelism": 4, "to_parallelism": to_parallelism, "from_workers": 3, "to_workers": 1}
        catalog.runs.start(RUN, JOB, method=method, **sizes)  # type: ignore[arg-type]
        steps = ["lease", "stop_with_savepoint", "rescale_state", "restart"]
        for step in steps[: steps.index(up_to) + 1]:
            catalog.runs.mark_step(RUN, step, started=True, ended=True)
        catalog.generations.end(JOB, self.generation, state="stopped")
        catalog.jobs.set_desired(JOB, artifact="/new.py", parallelism=to_parallelism)
        self.launch()

    def passes(self, seconds: int, supervisor: Supervisor | None = None) -> None:
        """Let the time pass while the driver lives: a pass every ten seconds, and every second in the end."""
        last = min(seconds, 4)
        often, rest = divmod(seconds - last, 10)
        for pause_s in [10] * often + [rest] * bool(rest) + [1] * last:
            self.clock.advance(1_000 * pause_s)
            if self.catalog.generations.heartbeat(JOB, self.generation):
                self.catalog.epochs.record_backlog(JOB, self.generation, [SourceBacklog("in", self.waiting)])
            (supervisor or self.supervisor).step()

    @property
    def state(self) -> tuple[str, int, int]:
        """State of the run, and the job's desired parallelism and workers."""
        run, workers = self.catalog.runs.get(RUN), self.catalog.clusters.get(CLUSTER).desired_workers
        return run.state, self.catalog.jobs.get(JOB).parallelism, workers

    def launch(self) -> None:
        self.generation = self.catalog.generations.claim(JOB, log_path="log").generation
        self.catalog.generations.heartbeat(JOB, self.generation)


@pytest.fixture
def world(catalog_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # A pass that did not wait for its calls would be over before they are.
    monkeypatch.setattr(supervisor_module, "_PASS_S", PATIENCE_S)
    clock = ManualClock(1_000_000_000)
    with Catalog(catalog_url, clock=clock) as catalog:
        yield World(catalog, clock, tmp_path)


@pytest.mark.parametrize(("method", "last"), [("by_reference", "restart"), ("live", "rescale_state")])
def test_a_healthy_job_that_only_awaits_verify_is_verified_and_keeps_its_new_size(
    world: World, method: RescaleMethod, last: str
) -> None:
    world.rescale(method, up_to=last)
    world.passes(59)
    assert world.state == ("running", 2, 3)
    world.passes(4)
    assert world.state == ("done", 2, 1)
    assert world.catalog.leases.find(JOB) is None
    assert world.catalog.runs.get(RUN).steps["verify"].ended_ms is not None
    # Two heartbeats, seen by the supervisor itself, are the least.
    assert world.catalog.runs.get(RUN).ended_ms == world.clock.now_ms() - 1_000


def test_a_change_that_was_left_earlier_is_rolled_back(world: World) -> None:
    world.rescale("by_reference", up_to="rescale_state")
    world.passes(60)
    assert world.state == ("failed", 4, 3)
    assert world.catalog.runs.get(RUN).error == f"lease expired (owner {RUN})"


def test_a_dag_that_comes_back_and_dies_again_before_it_gives_its_lease_back_is_not_rolled_back(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(70)
    world.catalog.runs.finish(RUN)
    world.passes(400)
    assert world.state == ("done", 2, 1)
    assert world.catalog.jobs.get(JOB).artifact == "/new.py" and world.catalog.leases.find(JOB) is None
    assert "rollback" not in world.catalog.runs.get(RUN).steps


def _change(world: World) -> Change:
    return Change(world.catalog, JOB, RUN, LEASE_MS, logging.getLogger(__name__))


def test_a_verification_that_has_lost_its_lease_leaves_the_restored_job_its_workers(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    step = Verify(change=_change(world))
    assert step.begin() is None
    world.clock.advance(LEASE_MS)
    world.catalog.leases.recover_expired(JOB)
    with pytest.raises(UnknownRecordError, match="there is no lease on job"):
        step.end()
    assert world.state == ("failed", 4, 3)
    assert world.catalog.runs.get(RUN).steps["verify"].ended_ms is None


def test_a_verification_whose_run_is_rolled_back_meanwhile_fails_and_takes_no_workers(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    step = Verify(change=_change(world))
    assert step.begin() is None
    _rolling_back(world)
    with pytest.raises(StepFailedError, match="expected it to be running"):
        step.end()
    assert world.state == ("running", 4, 3)


def test_a_process_that_is_killed_once_its_run_is_done_leaves_no_surplus_workers(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.catalog.runs.finish(RUN)
    assert world.state == ("done", 2, 1) and world.catalog.leases.find(JOB) is not None
    found = Verify(change=_change(world)).begin()
    assert found is not None and found.status is Status.DONE
    assert world.state == ("done", 2, 1) and world.catalog.leases.find(JOB) is None
    # The lease is given back: later sizes stay.
    world.catalog.clusters.set_desired_workers(CLUSTER, 3)
    Verify(change=_change(world)).begin()
    assert world.state == ("done", 2, 3)


def _rolling_back(world: World) -> None:
    """Begin the rollback, up to the restored driver's start."""
    Rollback(change=_change(world)).ask()
    world.launch()


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_rollback_under_way_is_not_verified_and_takes_no_workers(world: World, taken_over: bool) -> None:
    world.rescale("by_reference", up_to="restart", to_parallelism=4)
    world.waiting = 500
    world.passes(70 if taken_over else 0)
    _rolling_back(world)
    world.waiting = 0
    world.passes(400)
    assert world.state == ("failed", 4, 3)
    assert world.catalog.runs.get(RUN).error == f"lease expired (owner {RUN})"
    assert world.catalog.leases.find(JOB) is None


def test_a_run_whose_rollback_has_begun_is_not_done_any_more(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    _rolling_back(world)
    assert world.catalog.runs.finish(RUN).state == "running"


def test_a_job_that_does_not_become_healthy_is_rolled_back_after_five_minutes(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(359)
    assert world.state == ("running", 2, 3)
    world.passes(1)
    assert world.state == ("failed", 4, 3)
    error = str(world.catalog.runs.get(RUN).error)
    assert error.startswith("the supervisor took over step verify, which failed: found generation 2 running")
    assert "0 epochs, 500 records wait" in error and error.endswith("; rolled back")
    assert world.catalog.leases.find(JOB) is None


@pytest.mark.parametrize("seconds", [20, 40, 360], ids=["short", "past the deadline", "past the lease"])
def test_a_job_is_not_rolled_back_because_the_catalog_was_away(
    world: World, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(345)
    with monkeypatch.context() as away:
        away.setattr(world.catalog.supervisors, "lead", Mock(side_effect=CatalogError("away")))
        with pytest.raises(CatalogError):
            world.supervisor.step()
    world.clock.advance(seconds * 1_000)
    # The first look comes before the driver's next heartbeat.
    world.supervisor.step()
    assert world.state == ("running", 2, 3)
    world.waiting = 0
    world.passes(20)
    assert world.state == ("done", 2, 1)


def test_a_job_that_never_becomes_healthy_is_rolled_back_after_an_outage_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(345)
    world.clock.advance(40_000)
    world.passes(39)
    assert world.state == ("running", 2, 3)
    world.passes(3)
    assert world.state == ("failed", 4, 3)


def test_a_supervisor_that_leads_again_verifies_anew(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(70)
    # Another leads while this one is silent.
    world.passes(100, world.another())
    world.passes(1)
    world.passes(280)
    assert world.state == ("running", 2, 3)
    world.passes(100)
    assert world.state == ("failed", 4, 3)


def test_a_lease_that_was_renewed_since_the_pass_began_is_not_taken_up(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.clock.advance(LEASE_MS)
    (expired,) = world.catalog.leases.expired()
    renewed = world.catalog.leases.renew(JOB, RUN, LEASE_MS)
    assert Finisher(world.catalog).take_up(expired)
    assert world.catalog.leases.find(JOB) == renewed


def test_a_user_aborts_it_there_too(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(70)
    world.catalog.runs.abort(JOB, "ann")
    world.passes(1)
    assert world.state == ("failed", 4, 3)
    assert "aborted by ann" in str(world.catalog.runs.get(RUN).error)


def test_the_next_supervisor_goes_on_with_it(world: World) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(70)
    # It dies; its lease of a minute keeps others away until the next one.
    another = world.another()
    world.waiting = 0
    world.passes(58, another)
    assert world.state == ("running", 2, 3)
    world.passes(5, another)
    assert world.state == ("done", 2, 1)


def test_a_dag_that_comes_back_and_ends_its_run_is_left_alone(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.rescale("by_reference", up_to="restart")
    world.waiting = 500
    world.passes(70)
    world.catalog.runs.finish(RUN)
    world.catalog.leases.release(JOB, RUN)
    world.catalog.leases.acquire(JOB, "manual__2", 10 * LEASE_MS)
    world.passes(400)
    assert world.state == ("done", 2, 1)
    assert "verification of" not in caplog.text
    lease = world.catalog.leases.find(JOB)
    assert lease is not None and lease.owner == "manual__2"
