"""A failure at each step of a rescale: it is rolled back, and the job goes on as it was."""

from __future__ import annotations

import pytest

from tests.e2e.world import LARGE, SMALL, World

pytestmark = pytest.mark.e2e

# At their ends, where what they did has to be undone. The cheapest rescale that has the step: `live` stops no driver.
FAILURES = [
    ("plan@begun", {**LARGE, "method": "live"}),
    ("lease@begun", {**LARGE, "method": "live"}),
    ("resize_cluster@ended", {"parallelism": 2, "workers": 2, "method": "live"}),
    ("stop_with_savepoint@ended", {**LARGE, "method": "by_reference"}),
    ("rescale_state@ended", {"parallelism": 4, "method": "by_reference"}),
    ("rewrite_state@ended", {"parallelism": 4, "max_parallelism": 32, "method": "rewrite"}),
    ("restart@ended", {**LARGE, "method": "by_reference"}),
    ("rescale_live@ended", {**LARGE, "method": "live"}),
    ("verify@begun", {"parallelism": 4, "method": "live"}),
]


@pytest.mark.parametrize(("fault", "conf"), FAILURES, ids=[fault for fault, _ in FAILURES])
def test_a_failure_at_each_step_is_rolled_back_and_the_job_goes_on(
    world: World, fault: str, conf: dict[str, object]
) -> None:
    fail(world, fault, conf)
    world.check(SMALL)


def test_a_failure_while_the_cluster_shrinks_gives_its_workers_back(world: World) -> None:
    world.catalog.set_desired_workers(world.stack.cluster, 2)
    fail(world, "shrink_cluster@ended", {**SMALL, "method": "live"})
    world.check({"parallelism": 2, "workers": 2})
    world.catalog.set_desired_workers(world.stack.cluster, 1)
    world.check(SMALL)


def test_a_rollback_that_is_killed_is_tried_again(world: World) -> None:
    world.arm("rollback@begun", "kill")
    fail(world, "stop_with_savepoint@begun", {**LARGE, "method": "by_reference"})
    assert world.was_hit("rollback@begun")
    world.check(SMALL)


def fail(world: World, fault: str, conf: dict[str, object]) -> None:
    """Run a rescale that fails there, with records on their way, and check that it says so and was rolled back."""
    step = fault.partition("@")[0]
    world.arm(fault)
    world.feed(2)
    run = world.trigger("rescale", f"fails-at-{fault}", **conf)
    ended = world.end_of("rescale", run)
    assert world.was_hit(fault)
    assert (ended.state, [task.task_id for task in ended.failed_tasks]) == ("failed", [step])
    states = {task.task_id: task.state for task in ended.tasks}
    if step == "plan":
        # Nothing was begun, so nothing is known of it.
        assert states["lease"] == "upstream_failed"
        return
    if step == "lease":
        assert states["rollback"] == "upstream_failed"
        return
    assert states["rollback"] == "success"
    record = world.rescale_run(run)
    assert record.state == "failed"
    assert f"step {step} failed: " in str(record.error) and "rolled back to parallelism 2" in str(record.error)
