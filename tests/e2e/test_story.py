"""One job's day, from its first backlog to its page in the evening; each test goes on from where the one before ended.

`make stories` runs two of them: a rescale from the form and the way back, and the outage.
At the end of every one the job runs, nobody holds it, and its output is what an undisturbed run would have published.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.world import CORES_PER_WORKER, JOB, LARGE, LEASE_S, SMALL, World

POLICY = {
    "min_parallelism": 2,
    "max_parallelism": 4,
    "subtasks_per_worker": CORES_PER_WORKER,
    "catch_up_s": 10,
    "scale_out_after_s": 2,
    "scale_in_after_s": 5,
    "cooldown_s": 1,
}
# Most at their ends, where what they did has to be undone. The cheapest rescale that has the step: `live` stops no
# driver, and one that asks for no other parallelism starts none either.
FAILURES = [
    ("plan@begun", {**LARGE, "method": "live"}),
    ("lease@begun", {**LARGE, "method": "live"}),
    ("grow_cluster@ended", {**LARGE, "method": "by_reference"}),
    ("resize_cluster@ended", {"parallelism": 2, "workers": 2, "method": "live"}),
    ("rescale_state@begun", {"parallelism": 4, "method": "live"}),
    ("verify@begun", {"parallelism": 2, "workers": 2, "method": "live"}),
    ("rescale_state@ended", {"parallelism": 4, "method": "by_reference"}),
    ("restart@ended", {"parallelism": 4, "method": "by_reference"}),
    ("rescale_state@begun", {"parallelism": 4, "max_parallelism": 32, "method": "rewrite"}),
]
CHARTS = ("rate", "backlog", "epochs", "parallelism")


@pytest.mark.nightly
def test_autoscale_takes_a_job_that_begins_with_a_backlog_to_four_subtasks_and_back_unasked(world: World) -> None:
    world.catalog.policies.set(JOB, POLICY)

    def states() -> list[str]:
        return [decision.state for decision in world.decisions()]

    def expected() -> str:
        policy = world.catalog.policies.find(JOB)
        return f"two decisions to be carried out, which are {states()}; {policy.finding if policy else None}"

    world.wait(lambda: states() == ["done", "done"], expected, 300)
    world.catalog.policies.set(JOB, POLICY, enabled=False)
    out, back = world.decisions()
    assert (out.from_parallelism, out.to_parallelism, out.to_workers) == (2, 4, 2)
    assert (back.from_parallelism, back.to_parallelism, back.to_workers) == (4, 2, 1)
    assert "scale out: " in out.reason and "rows wait" in out.reason
    assert world.catalog.runs.get(str(out.run_id)).reason == out.reason
    world.check(SMALL)


def test_the_form_takes_a_job_with_a_backlog_to_four_subtasks_and_a_second_run_is_refused(
    world: World, page: Page
) -> None:
    world.feed(6)
    page.goto(f"{world.url}/statecore/job?name={JOB}")
    page.get_by_role("button", name="Rescale…").click()
    form = page.get_by_role("dialog")
    form.get_by_label("Parallelism", exact=True).fill(str(LARGE["parallelism"]))
    form.get_by_label("Workers", exact=True).fill(str(LARGE["workers"]))
    form.get_by_label("Reason").fill("drain what waits")
    expect(form.locator(".sum")).to_contain_text("Parallelism 2 → 4")
    form.get_by_role("button", name="Rescale", exact=True).click()
    run = form.locator("#outcome a").inner_text()
    world.say(f"the form began {run}")

    lease = world.wait(lambda: world.catalog.leases.find(JOB), lambda: "the lease")
    assert lease is not None and lease.owner == run
    second = world.trigger("rescale", "second", parallelism=3)
    refused = world.end_of("rescale", second)
    assert (refused.state, [task.task_id for task in refused.failed_tasks]) == ("failed", ["plan"])
    assert f"found run '{run}' changing job" in world.airflow.failure(refused)

    world.succeed("rescale", run)
    expect(form.locator("#outcome")).to_contain_text("success")
    done = world.catalog.runs.get(run)
    assert (done.state, done.method, done.reason) == ("done", "live", "drain what waits")
    world.check(LARGE)


def test_the_run_back_is_approved_and_goes_on_when_the_scheduler_is_killed_between_two_steps(world: World) -> None:
    world.feed(2)
    run = world.trigger("rescale", "back", **SMALL, method="by_reference", reason="drained", approval=True)
    world.approve(run)

    def stopping() -> str | None:
        return world.task_state("rescale", run, "stop_with_savepoint")

    world.wait(lambda: stopping() == "running", lambda: f"the step to run, which is {stopping()}")
    world.say("killing the scheduler")
    world.stack.kill_airflow_part("scheduler")
    # The step itself runs to its end, or leaves a long wait to the triggerer; nobody is there to begin the next one.
    world.wait(lambda: stopping() in ("success", "deferred"), lambda: f"the step to go on, which is {stopping()}")
    world.wait(lambda: world.catalog.jobs.get(JOB).desired_state == "stopped", lambda: "the job to be stopped")
    assert world.task_state("rescale", run, "rescale_state") is None
    world.say("starting it again")
    world.stack.start_airflow_part("scheduler")
    world.succeed("rescale", run)
    world.check(SMALL)


@pytest.mark.nightly
def test_a_rescale_that_is_not_approved_changes_nothing(world: World) -> None:
    before = world.catalog.jobs.get(JOB)
    run = world.trigger("rescale", "not-approved", **LARGE, method="live", approval=True)
    world.approve(run, "Reject")
    ended = world.succeed("rescale", run)
    states = {task.task_id: task.state for task in ended.tasks}
    assert (states.pop("plan"), states.pop("approval")) == ("success", "success")
    assert set(states.values()) == {"skipped"}
    assert world.catalog.jobs.get(JOB) == before
    assert run not in [each.run_id for each in world.catalog.runs.of(JOB)]
    world.check(SMALL)


def test_catch_up_drains_a_backlog_and_goes_back_though_triggerer_and_api_server_are_killed(world: World) -> None:
    world.feed(6)
    run = world.trigger("catch_up", "catch-up", **LARGE, method="live", backlog=0, hold_seconds=1)

    def waiting() -> str | None:
        return world.task_state("catch_up", run, "scale_out")

    world.wait(lambda: waiting() == "deferred", lambda: f"the step to be deferred, which is {waiting()}")
    world.say("killing triggerer and API server")
    for part in ("triggerer", "api-server"):
        world.stack.kill_airflow_part(part, children_too=True)
    world.say("starting them again")
    for part in ("triggerer", "api-server"):
        world.stack.start_airflow_part(part)
    world.airflow.wait_healthy()
    world.say("they are back")
    # A rescale that found no API server failed before it began; the next attempt triggers another one.
    world.succeed("catch_up", run, timeout_s=480)
    runs = world.catalog.runs.of(JOB)
    out, back = (
        next(each for each in runs if each.run_id.startswith(f"{run}__{step}-")) for step in ("scale_out", "scale_back")
    )
    assert (out.state, out.from_parallelism, out.to_parallelism) == ("done", 2, 4)
    assert (back.state, back.from_parallelism, back.to_parallelism) == ("done", 4, 2)
    assert back.reason.endswith("the backlog is drained")
    world.check(SMALL)


@pytest.mark.nightly
@pytest.mark.parametrize(("fault", "conf"), FAILURES, ids=[fault for fault, _ in FAILURES])
def test_a_failure_at_each_step_is_rolled_back_and_the_job_goes_on(
    world: World, fault: str, conf: dict[str, object]
) -> None:
    fail(world, fault, conf)
    world.check(SMALL)


@pytest.mark.nightly
def test_a_failure_while_the_cluster_shrinks_takes_no_job_back_that_was_verified(world: World) -> None:
    world.catalog.clusters.set_desired_workers(world.stack.cluster, 2)
    world.arm("shrink_cluster@begun")
    run = world.trigger("rescale", "fails-at-shrink_cluster", **SMALL, method="live")
    ended = world.end_of("rescale", run)
    assert (ended.state, [task.task_id for task in ended.failed_tasks]) == ("failed", ["shrink_cluster"])
    assert world.catalog.runs.get(run).state == "done"
    world.check(SMALL)


@pytest.mark.nightly
def test_a_user_aborts_a_rescale_on_the_page_of_the_job(world: World, page: Page) -> None:
    world.feed(2)
    run = world.trigger("rescale", "aborted", **LARGE, method="by_reference")
    world.wait(lambda: run in [each.run_id for each in world.catalog.runs.of(JOB)], lambda: "the run to begin")
    page.goto(f"{world.url}/statecore/job?name={JOB}")
    page.get_by_role("button", name="Abort…").click()
    page.get_by_role("button", name="Abort and roll back").click()
    ended = world.end_of("rescale", run)
    assert ended.state == "failed" and "aborted by admin" in world.airflow.failure(ended)
    assert "aborted by admin at step " in str(world.catalog.runs.get(run).error)
    world.check(SMALL)


@pytest.mark.nightly
def test_a_rollback_that_is_killed_is_tried_again(world: World) -> None:
    world.arm("rollback@begun", "kill")
    fail(world, "stop_with_savepoint@begun", {"parallelism": 4, "method": "by_reference"})
    assert world.was_hit("rollback@begun")
    world.check(SMALL)


@pytest.mark.nightly
def test_a_run_that_nobody_goes_on_with_is_undone_by_the_supervisor(world: World) -> None:
    world.feed(4)
    world.arm("rescale_state@ended", "kill")
    run = world.trigger("rescale", "abandoned", **LARGE, method="by_reference")
    world.wait(lambda: world.was_hit("rescale_state@ended"), lambda: "the step's process to be killed")
    world.say("killing the scheduler with all its workers")
    world.stack.kill_airflow_part("scheduler", children_too=True)
    lease = world.catalog.leases.find(JOB)
    assert lease is not None and lease.owner == run
    assert world.catalog.jobs.get(JOB).desired_state == "stopped"

    world.wait(lambda: world.catalog.leases.find(JOB) is None, lambda: "the lease to expire", LEASE_S + 30)
    record = world.catalog.runs.get(run)
    assert (record.state, record.error) == ("failed", f"lease expired (owner {run})")
    # An Airflow that comes back later does no harm: the run has lost its lease.
    world.stack.start_airflow_part("scheduler")
    world.check(SMALL)
    assert world.end_of("rescale", run).state == "failed"
    world.check(SMALL)


@pytest.mark.nightly
def test_the_page_shows_every_rescale_decision_and_savepoint(world: World, page: Page) -> None:
    page.goto(f"{world.url}/statecore/")
    expect(page.locator(f"tr[data-job={JOB}] .condition")).to_have_text("running")
    page.screenshot(path=world.folder / "jobs.png")
    page.goto(f"{world.url}/statecore/job?name={JOB}")
    expect(page.locator("#condition")).to_have_text("running")
    page.get_by_role("button", name="1 h").click()
    for chart in CHARTS:
        expect(page.locator(f"#{chart} .main-svg").first).to_be_visible()
    shown = {
        "rescales": [run.run_id for run in world.catalog.runs.of(JOB)],
        "decisions": [str(decision.run_id) for decision in world.decisions()],
        "savepoints": [savepoint.path for savepoint in world.catalog.savepoints.of(JOB)],
    }
    for section, words in shown.items():
        assert words
        for each in words:
            expect(page.locator(f"#{section}")).to_contain_text(each)
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        page.screenshot(path=world.folder / f"job-{theme}.png", full_page=True, animations="disabled")


def fail(world: World, fault: str, conf: dict[str, object]) -> None:
    """Run a rescale that fails there, with records on their way, and check that it says so and was rolled back."""
    step = fault.partition("@")[0]
    world.arm(fault)
    world.feed(2)
    run = world.trigger("rescale", f"fails-at-{step}-{conf['method']}", **conf)
    ended = world.end_of("rescale", run)
    assert world.was_hit(fault)
    assert (ended.state, [task.task_id for task in ended.failed_tasks]) == ("failed", [step])
    rolled_back = next(task.state for task in ended.tasks if task.task_id == "rollback")
    if step in ("plan", "lease"):
        # Nothing has begun, so there is nothing to take back, and nothing is known of it.
        assert rolled_back == "upstream_failed" and run not in [each.run_id for each in world.catalog.runs.of(JOB)]
        return
    assert rolled_back == "success"
    record = world.catalog.runs.get(run)
    assert record.state == "failed"
    assert f"step {step} failed: " in str(record.error) and "rolled back to parallelism 2" in str(record.error)
