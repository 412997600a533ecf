"""Decisions of a policy on a real catalog: they survive and are reached once."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from statecore.catalog import (
    Catalog,
    DecisionRecord,
    Diagnosed,
    PolicyRecord,
)
from statecore.errors import ConfigurationError
from statecore.operations.autoscaling import evaluation
from statecore.operations.autoscaling.evaluation import (
    ANNOUNCE_EVERY_MS,
    LAPSES_AFTER_MS,
    decisions_to_announce,
    diagnosed,
    evaluate,
)
from statecore.operations.autoscaling.figures import figures_of
from statecore.operations.changes import RescaleRequest
from statecore.operations.status.advice import advice
from statecore.operations.status.job_status import job_status
from statecore.policy import Ailment, Decision, Diagnosis, PolicyMemory
from statecore.testing import ManualClock
from tests.unit.operations.autoscaling.driver import JOB, Driver

SETTINGS = {
    "max_parallelism": 8,
    "min_parallelism": 2,
    "subtasks_per_worker": 2,
    "scale_out_after_s": 10,
    "cooldown_s": 0,
}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("stopped", "should not run"),
        ("silent", "no live driver"),
        ("leased", "manual-7 holds the lease"),
        ("wanted", "at the desired parallelism 4"),
        ("new", "no epoch yet"),
    ],
)
def test_what_hinders_a_decision_is_said(catalog: Catalog, clock: ManualClock, state: str, said: str) -> None:
    driver = Driver(catalog, clock)
    if state != "new":
        driver.run(2, arriving=1, reading=1)
    if state == "stopped":
        catalog.jobs.set_desired(JOB, state="stopped")
    elif state == "silent":
        clock.advance(100_000)
    elif state == "leased":
        catalog.leases.acquire(JOB, "manual-7", 5_000)
    elif state == "wanted":
        catalog.jobs.set_desired(JOB, parallelism=4)
    else:
        catalog.generations.heartbeat(JOB, 1)
    policy = catalog.policies.set(JOB, SETTINGS)
    assert evaluate(catalog, policy, clock.now_ms()) is None
    seen = catalog.policies.find(JOB)
    assert seen is not None and said in (seen.finding or "")


def reached(catalog: Catalog, clock: ManualClock) -> DecisionRecord | None:
    policy = catalog.policies.find(JOB)
    assert policy is not None
    return evaluate(catalog, policy, clock.now_ms())


def pile(catalog: Catalog, clock: ManualClock) -> Driver:
    """An outage, a pile that will take hours, and a policy."""
    catalog.policies.set(JOB, SETTINGS)
    driver = Driver(catalog, clock)
    driver.run(60, arriving=1, reading=1)
    driver.run(20, arriving=0, reading=0)
    driver.waiting = 3_000
    driver.run(60, arriving=1, reading=2)
    return driver


def test_a_backlog_becomes_one_decision_that_stands_in_the_catalog(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    assert reached(catalog, clock) is None
    driver.run(10, arriving=1, reading=2)
    # Whoever looks now is another process, with the same catalog.
    decision = reached(catalog, clock)
    assert decision is not None and decision.state == "open"
    assert (decision.from_parallelism, decision.from_workers) == (2, 1)
    assert decision.to_parallelism in (4, 6, 8) and decision.to_workers == decision.to_parallelism // 2
    assert decision.reason.startswith("scale out: ") and "rows wait" in decision.reason
    assert decision.figures["waiting"] == driver.waiting * 1_000 and decision.method == "live"
    # Edge, not level: while it stands nothing is decided anew, and two who look at once reach one decision.
    assert reached(catalog, clock) is None
    seen = catalog.policies.find(JOB)
    assert seen is not None and f"decision {decision.id} is open" in (seen.finding or "")
    assert catalog.policies.decisions(JOB) == [decision]
    catalog.policies.end_decision(decision.id, "refused", "somebody else was first")
    for _ in range(3):
        driver.run(6, arriving=1, reading=2)
        again = reached(catalog, clock)
    assert again is not None and again.id != decision.id


def test_a_policy_of_a_query_decides_by_its_batches_and_rescales_it_by_its_only_method(
    catalog: Catalog, clock: ManualClock
) -> None:
    catalog.jobs.set_desired(JOB, checkpoint="/data/checkpoint")
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "method": "rewrite"})
    driver.run(20, arriving=1, reading=2)
    assert reached(catalog, clock) is None
    driver.run(15, arriving=1, reading=2)
    decision = reached(catalog, clock)
    assert decision is not None
    assert (decision.method, decision.from_parallelism) == ("rewrite", 2)
    assert decision.to_parallelism > 2
    request = RescaleRequest(job=JOB, parallelism=decision.to_parallelism, method=decision.method)
    assert request.resolved(catalog) == "rewrite"


def test_a_policy_that_observes_tells_each_change_once_and_carries_out_nothing(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "observe": True, "cooldown_s": 20})

    def look(seconds: int) -> str:
        for _ in range(seconds // 5):
            driver.run(5, arriving=1, reading=2)
            found.append(reached(catalog, clock))
        seen = catalog.policies.find(JOB)
        assert seen is not None
        return seen.finding or ""

    found: list[DecisionRecord | None] = []
    assert look(15).startswith("would scale out: ")
    (told,) = catalog.policies.decisions(JOB)
    assert [each for each in found if each is not None] == [told]
    assert (told.state, told.from_parallelism, told.run_id) == ("observed", 2, None)
    assert told.reason.startswith("would scale out: ") and "rows wait" in told.reason
    # It is nobody's to carry out, hinders nothing, and is no failure.
    assert (
        catalog.policies.open_decisions()
        == []
        == list(decisions_to_announce(catalog.policies, clock.now_ms() + 2 * LAPSES_AFTER_MS))
    )
    figures = figures_of(catalog, JOB, clock.now_ms())
    assert (figures.hindrance, figures.failures) == (None, 0)
    assert "cooling down" in look(15)
    # The need has lasted, so the rest alone delays what would be done; it is the same change, so only the finding says.
    for _ in range(3):
        assert look(10).startswith("would scale out: ")
    assert catalog.policies.decisions(JOB) == [told]
    # Another change is another decision.
    catalog.policies.set(JOB, {**SETTINGS, "observe": True, "cooldown_s": 20, "max_parallelism": 4})
    look(10)
    newest, before = catalog.policies.decisions(JOB)
    assert (before, newest.to_parallelism, newest.state) == (told, 4, "observed")
    assert [each for each in found if each is not None] == [told, newest]
    # Once it may act, it does.
    catalog.policies.set(JOB, {**SETTINGS, "max_parallelism": 4})
    driver.run(5, arriving=1, reading=2)
    made = reached(catalog, clock)
    assert made is not None and (made.state, made.to_parallelism) == ("open", 4)


def test_a_job_outside_of_its_limits_is_told_of_once_a_cooldown_whatever_the_size(
    catalog: Catalog, clock: ManualClock
) -> None:
    Driver(catalog, clock).run(30, arriving=1, reading=1)
    for lowest, said in ((4, "outside the limits 4 to 8"), (6, "cooling down for another")):
        observing = {**SETTINGS, "observe": True, "cooldown_s": 20, "min_parallelism": lowest}
        evaluate(catalog, catalog.policies.set(JOB, observing), clock.now_ms())
        seen = catalog.policies.find(JOB)
        assert seen is not None and said in (seen.finding or "")
    assert [each.to_parallelism for each in catalog.policies.decisions(JOB)] == [4]


def test_decisions_are_logged_with_their_figures_those_that_are_only_observed_too(
    catalog: Catalog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    driver = pile(catalog, clock)
    caplog.set_level(logging.INFO, evaluation.__name__)
    for observe, said in ((True, "would scale out"), (False, "scale out")):
        catalog.policies.set(JOB, {**SETTINGS, "observe": observe, "max_parallelism": 4})
        caplog.clear()
        for _ in range(4):
            driver.run(5, arriving=1, reading=2)
            reached(catalog, clock)
        (line,) = [each for each in caplog.messages if "scale out: " in each]
        assert line.startswith(f"Job flights: {said}: 1,000 rows/s arrive, ") and "rows wait" in line
        assert line.endswith("(parallelism 2 → 4, workers 1 → 2)")


def test_a_look_that_decides_nothing_is_logged_for_another_kind_of_reason_and_not_for_other_figures(
    catalog: Catalog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    driver = pile(catalog, clock)
    caplog.set_level(logging.INFO, evaluation.__name__)

    def looks(times: int, **settings: object) -> list[str]:
        """Look so many times; return what was logged."""
        catalog.policies.set(JOB, {**SETTINGS, **settings})
        caplog.clear()
        for _ in range(times):
            driver.run(2, arriving=1, reading=2)
            reached(catalog, clock)
        return caplog.messages

    (first,) = looks(4)
    assert first.startswith("Job flights: too_small, before None: 1,000 rows/s arrive, ")
    assert first.endswith("; this has lasted 0 s of 8 s")
    (frozen,) = looks(4, freeze=("* * * * * for 1d",))
    assert frozen.startswith("Job flights: 1,000 rows/s arrive, ") and "; frozen until " in frozen
    (cooling,) = looks(4, cooldown_s=300)
    assert "; cooling down for another 1" in cooling
    catalog.leases.acquire(JOB, "manual-7", 60_000)
    (leased,) = looks(2, cooldown_s=300)
    assert leased.startswith("Job flights: 1,000 rows/s arrive, ") and leased.endswith(
        "; manual-7 holds the lease on the job"
    )
    catalog.leases.release(JOB, "manual-7")
    lasts, decided, under_way = looks(8, max_rescales_a_day=1)
    assert lasts.endswith("; this has lasted 0 s of 8 s")
    assert decided.startswith("Job flights: scale out: ")
    assert under_way.endswith("; decision 1 is open: parallelism 8")
    catalog.policies.end_decision(1, "done")
    assert looks(8, max_rescales_a_day=1)[-1].endswith("; the limit of 1 rescales a day is reached")


def test_two_who_look_at_once_log_it_once(
    catalog: Catalog, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    pile(catalog, clock)
    caplog.set_level(logging.INFO, evaluation.__name__)
    policy = catalog.policies.find(JOB)
    assert policy is not None
    for _ in range(2):
        evaluate(catalog, policy, clock.now_ms())
    assert len(caplog.messages) == 1


def decides(catalog: Catalog, clock: ManualClock, driver: Driver, after_s: int) -> DecisionRecord | None:
    """Look for a while, as the DAG does, up to this time from now; return a decision."""
    clock.advance((after_s - 80) * 1_000)
    driver.run(60, arriving=1, reading=2)
    for _ in range(4):
        driver.run(5, arriving=1, reading=2)
        decision = reached(catalog, clock)
        if decision is not None:
            return decision
    return None


def failing(catalog: Catalog, clock: ManualClock, decision: DecisionRecord) -> None:
    """Carry a decision out, in vain: a quarter of an hour passes until the rescale has failed."""
    run = f"autoscale__{decision.id}"
    catalog.policies.claim_decision(decision.id, run)
    catalog.runs.start(run, JOB, from_parallelism=2, to_parallelism=decision.to_parallelism)
    clock.advance(900_000)
    catalog.runs.finish(run, error="no workers came")
    catalog.policies.end_decision(decision.id, "failed", f"run {run} failed: no workers came")


@pytest.mark.untraced
def test_a_rescale_that_fails_again_and_again_is_tried_less_and_less_often_until_a_person_unblocks_the_policy(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "cooldown_s": 60})
    for rest_s in (120, 240):
        decision = decides(catalog, clock, driver, 100)
        assert decision is not None
        failing(catalog, clock, decision)
        assert decides(catalog, clock, driver, rest_s - 1) is None
        # A failure of somebody else adds none to the row, and does not end it.
        catalog.runs.start(f"manual-{rest_s}", JOB, from_parallelism=2, to_parallelism=4)
        catalog.runs.finish(f"manual-{rest_s}", error="a wrong number")
        driver.waiting = 3_000
        clock.advance(rest_s * 1_000)
    decision = decides(catalog, clock, driver, 100)
    assert decision is not None
    failing(catalog, clock, decision)
    for _ in range(3):
        assert decides(catalog, clock, driver, 86_400) is None
    policy = catalog.policies.find(JOB)
    assert policy is not None and "blocked: the last 3 rescales" in str(policy.finding)
    assert "`statecore policy set flights --on`" in str(policy.finding) and "no workers came" in str(policy.finding)
    assert any("the policy is blocked" in line for line in advice(job_status(catalog, catalog.jobs.get(JOB))))
    catalog.policies.set(JOB, policy.settings)
    driver.waiting = 3_000
    assert decides(catalog, clock, driver, 100) is not None


@pytest.mark.untraced
def test_a_rescale_that_is_done_ends_a_row_of_failures(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    for _ in range(2):
        decision = decides(catalog, clock, driver, 300)
        assert decision is not None
        failing(catalog, clock, decision)
    assert figures_of(catalog, JOB, clock.now_ms()).failures == 2
    catalog.runs.start("manual", JOB, from_parallelism=2, to_parallelism=2)
    catalog.runs.finish("manual")
    assert figures_of(catalog, JOB, clock.now_ms()).failures == 0


@pytest.mark.untraced
def test_a_policy_makes_so_many_rescales_a_day_and_those_that_were_refused_do_not_count(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    catalog.policies.set(JOB, {**SETTINGS, "max_rescales_a_day": 1})
    for state in ("refused", "done"):
        decision = decides(catalog, clock, driver, 100)
        assert decision is not None
        catalog.policies.end_decision(decision.id, "refused" if state == "refused" else "done")
        driver.waiting = 3_000
    assert figures_of(catalog, JOB, clock.now_ms()).made_in_a_day == 1
    assert decides(catalog, clock, driver, 100) is None
    policy = catalog.policies.find(JOB)
    assert policy is not None and str(policy.finding).endswith("; the limit of 1 rescales a day is reached")
    driver.waiting = 3_000
    assert decides(catalog, clock, driver, 86_400) is not None


@pytest.mark.untraced
def test_what_was_needed_before_nobody_looked_counts_no_more(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    reached(catalog, clock)
    driver.run(330, arriving=1, reading=2)
    assert reached(catalog, clock) is None
    driver.run(10, arriving=1, reading=2)
    made = reached(catalog, clock)
    assert made is not None
    # What the policy chose, it chose.
    clock.advance(600_000)
    reached(catalog, clock)
    seen = catalog.policies.find(JOB)
    assert seen is not None and seen.memory["chosen"] == made.to_parallelism


@pytest.mark.untraced
def test_the_limit_of_an_epoch_that_a_job_met_is_known_after_nobody_looked(
    catalog: Catalog, clock: ManualClock
) -> None:
    catalog.policies.set(JOB, SETTINGS)
    Driver(catalog, clock).run(60, arriving=1, reading=1)
    reached(catalog, clock)
    policy = catalog.policies.find(JOB)
    assert policy is not None and policy.memory["limit"] is None
    met = {"rows": 20_000, "seen_ms": clock.now_ms()}
    clock.advance(600_000)
    evaluate(catalog, dataclasses.replace(policy, memory=policy.memory | {"limit": met}), clock.now_ms())
    seen = catalog.policies.find(JOB)
    assert seen is not None and seen.memory["limit"] == met


def test_two_who_look_at_once_reach_one_decision(catalog: Catalog, clock: ManualClock) -> None:
    driver = pile(catalog, clock)
    reached(catalog, clock)
    driver.run(10, arriving=1, reading=2)
    policy = catalog.policies.find(JOB)
    assert policy is not None
    made = [evaluate(catalog, policy, clock.now_ms()) for _ in range(2)]
    assert made[0] is not None and made[1] is None
    assert len(catalog.policies.decisions(JOB)) == 1


def test_a_decision_nobody_heard_of_is_announced_again_and_one_too_old_is_given_up(
    catalog: Catalog, clock: ManualClock
) -> None:
    driver = pile(catalog, clock)
    reached(catalog, clock)
    driver.run(10, arriving=1, reading=2)
    decision = reached(catalog, clock)
    assert decision is not None
    assert list(decisions_to_announce(catalog.policies, clock.now_ms())) == []
    clock.advance(ANNOUNCE_EVERY_MS)
    assert [each.id for each in decisions_to_announce(catalog.policies, clock.now_ms())] == [decision.id]
    assert list(decisions_to_announce(catalog.policies, clock.now_ms())) == []
    clock.advance(LAPSES_AFTER_MS)
    assert list(decisions_to_announce(catalog.policies, clock.now_ms())) == []
    ended = catalog.policies.decision(decision.id)
    assert ended.state == "failed" and "check whether it is paused" in (ended.outcome or "")


def test_settings_that_do_not_fit_are_said_to_whoever_looks(catalog: Catalog, clock: ManualClock) -> None:
    policy = catalog.policies.set(JOB, {"max_paralelism": 8})
    with pytest.raises(ConfigurationError, match="max_paralelism"):
        evaluate(catalog, policy, clock.now_ms())


@pytest.mark.parametrize(
    ("before", "now", "since_ms"),
    [
        ("hot_key", Ailment.HOT_KEY, 7),
        ("hot_key", Ailment.SINK_BOUND, 7),
        ("hot_key", Ailment.HEALTHY, None),
        ("too_small", Ailment.HOT_KEY, None),
        (None, Ailment.HOT_KEY, None),
    ],
)
def test_bottlenecks_that_take_turns_are_one_trouble_that_lasts_since_the_first(
    before: str | None, now: Ailment, since_ms: int | None
) -> None:
    policy = PolicyRecord(JOB, True, {}, {}, 0, None, None, 0, before, 7 if before else None)
    made = Decision("stay", 2, None, "r", PolicyMemory(), Diagnosis(now, "f"))
    assert diagnosed(policy, made) == Diagnosed(now, since_ms)
    assert diagnosed(policy, dataclasses.replace(made, diagnosis=None)) is None
