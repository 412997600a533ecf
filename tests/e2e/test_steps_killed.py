"""Processes of Airflow die in the middle of a rescale."""

from __future__ import annotations

import pytest

from tests.e2e.world import JOB, LARGE, LEASE_S, SMALL, World

pytestmark = pytest.mark.e2e


def test_a_rescale_goes_on_when_the_scheduler_is_killed_between_two_steps(world: World) -> None:
    world.feed(4)
    run = world.trigger("rescale", "scheduler-killed", parallelism=4, method="by_reference")

    def stopping() -> str | None:
        return world.task_state("rescale", run, "stop_with_savepoint")

    world.wait(lambda: stopping() == "running", lambda: f"the step to run, which is {stopping()}")
    world.say("killing the scheduler")
    world.stack.kill_scheduler()
    # The step itself runs to its end; nobody is there to begin the next one.
    world.wait(lambda: stopping() == "success", lambda: f"the step to end, which is {stopping()}")
    assert world.task_state("rescale", run, "rescale_state") in (None, "no_status")
    assert world.catalog.job(JOB).desired_state == "stopped"
    world.say("starting it again")
    world.stack.start_scheduler()
    world.succeed("rescale", run)
    world.check({"parallelism": 4, "workers": 1})
    world.succeed("rescale", world.trigger("rescale", "scheduler-killed-back", parallelism=2, method="live"))
    world.check(SMALL)


def test_a_run_that_nobody_goes_on_with_is_undone_by_the_supervisor(world: World) -> None:
    world.feed(4)
    world.arm("rescale_state@ended", "kill")
    run = world.trigger("rescale", "abandoned", **LARGE, method="by_reference")
    world.wait(lambda: world.was_hit("rescale_state@ended"), lambda: "the step's process to be killed")
    world.say("killing the scheduler with all its workers")
    world.stack.kill_scheduler(tasks_too=True)
    lease = world.catalog.lease(JOB)
    assert lease is not None and lease.owner == run
    assert world.catalog.job(JOB).desired_state == "stopped"

    world.wait(lambda: world.catalog.lease(JOB) is None, lambda: "the lease to expire", LEASE_S + 30)
    record = world.rescale_run(run)
    assert (record.state, record.error) == ("failed", f"lease expired (owner {run})")
    world.check(SMALL)
    # An Airflow that comes back later does no harm: the run has lost its lease.
    world.stack.start_scheduler()
    late = world.end_of("rescale", run)
    assert late.state == "failed"
    world.check(SMALL)
