"""A job with a backlog is taken to another size and back: by the form, by ``catch_up``, and unasked."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.world import JOB, LARGE, SMALL, World

pytestmark = pytest.mark.e2e


def test_the_form_takes_a_job_with_a_backlog_to_four_subtasks_and_back_and_a_second_run_is_refused(
    world: World, page: Page
) -> None:
    world.feed(12)
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

    lease = world.wait(lambda: world.catalog.lease(JOB), lambda: "the lease")
    assert lease.owner == run
    second = world.trigger("rescale", "second", parallelism=3)
    refused = world.end_of("rescale", second)
    assert refused.state == "failed" and [task.task_id for task in refused.failed_tasks] == ["plan"]
    assert run in world.airflow.failure(refused)

    world.succeed("rescale", run)
    expect(form.locator("#outcome")).to_contain_text("success")
    done = world.rescale_run(run)
    assert (done.state, done.method, done.reason) == ("done", "by_reference", "drain what waits")
    world.check(LARGE)
    world.succeed("rescale", world.trigger("rescale", "form-back", **SMALL, method="live", reason="drained"))
    world.check(SMALL)


def test_catch_up_drains_a_backlog_with_four_subtasks_and_goes_back(world: World) -> None:
    world.feed(12)
    run = world.trigger("catch_up", "catch-up", **LARGE, method="live", backlog=0, hold_seconds=1)
    world.succeed("catch_up", run)
    out, back = (world.rescale_run(f"{run}__{step}-1") for step in ("scale_out", "scale_back"))
    assert (out.state, out.from_parallelism, out.to_parallelism) == ("done", 2, 4)
    assert (back.state, back.from_parallelism, back.to_parallelism) == ("done", 4, 2)
    assert back.reason.endswith("the backlog is drained")
    assert [epoch.parallelism for epoch in world.epochs_since(out.created_ms)].count(4) >= 3
    world.check(SMALL)


def test_autoscale_does_it_unasked(world: World) -> None:
    before = len(world.decisions())
    settings = {
        "min_parallelism": 2,
        "max_parallelism": 4,
        "subtasks_per_worker": 2,
        "catch_up_s": 10,
        "scale_out_after_s": 2,
        "scale_in_after_s": 5,
        "cooldown_s": 1,
    }
    world.catalog.set_policy(JOB, settings)
    world.feed(30)

    def finding() -> str:
        policy = world.catalog.policy(JOB)
        made = [f"{each.to_parallelism} {each.state}" for each in world.decisions()[before:]]
        return f"two decisions to be carried out; so far {made}, and now: {policy.finding if policy else None}"

    def carried_out() -> bool:
        return [each.state for each in world.decisions()[before:]] == ["done", "done"]

    world.wait(carried_out, finding, 300)
    world.catalog.set_policy(JOB, settings, enabled=False)
    out, back = world.decisions()[before:]
    assert (out.from_parallelism, out.to_parallelism, out.to_workers) == (2, 4, 2)
    assert (back.from_parallelism, back.to_parallelism, back.to_workers) == (4, 2, 1)
    assert "scale out: " in out.reason and "rows wait" in out.reason
    assert world.rescale_run(str(out.run_id)).reason == out.reason
    world.check(SMALL)
