"""Policies and their decisions: kept over restarts, and each decision reached and taken up once."""

from __future__ import annotations

from typing import Any

import pytest

from statecore.catalog import Catalog, DecisionRecord, DecisionState, Diagnosed, EpochRecord, policies
from statecore.errors import UnknownJobError, UnknownRecordError

SETTINGS = {"max_parallelism": 8}


def reach(
    catalog: Catalog, job: str, *, memory: dict[str, Any] | None = None, state: DecisionState = "open"
) -> DecisionRecord | None:
    seen = catalog.policies.find(job)
    assert seen is not None
    return catalog.policies.record_decision(
        seen,
        memory or {"decided_ms": 7},
        from_parallelism=2,
        to_parallelism=4,
        from_workers=1,
        to_workers=2,
        method="live",
        reason="1,000 rows wait",
        figures={"waiting": 1_000},
        state=state,
    )


def test_settings_change_and_memory_stays(catalog: Catalog, job: str, clock) -> None:
    assert catalog.policies.find(job) is None
    made = catalog.policies.set(job, SETTINGS)
    assert (made.enabled, made.settings, made.memory, made.finding) == (True, SETTINGS, {}, None)
    assert catalog.policies.save_memory(made, {"slack_since_ms": 5}, "nothing to do")
    clock.advance(10)
    changed = catalog.policies.set(job, {"max_parallelism": 16}, enabled=False)
    assert (changed.enabled, changed.settings, changed.memory) == (
        False,
        {"max_parallelism": 16},
        {"slack_since_ms": 5},
    )
    assert (changed.finding, changed.looked_ms, changed.updated_ms) == ("nothing to do", 1_000_000, 1_000_010)
    assert catalog.policies.all() == [changed]
    with pytest.raises(UnknownJobError):
        catalog.policies.set("nobody", SETTINGS)


def test_a_diagnosis_stays_until_another_one_is_given(catalog: Catalog, job: str, clock) -> None:
    def saved(diagnosis: Diagnosed | None) -> tuple[str | None, int | None]:
        seen = catalog.policies.find(job)
        assert seen is not None and catalog.policies.save_memory(seen, {}, "found", diagnosis)
        after = catalog.policies.find(job)
        assert after is not None
        return after.diagnosis, after.diagnosed_ms

    catalog.policies.set(job, SETTINGS)
    assert saved(None) == (None, None)
    assert saved(Diagnosed("hot_key")) == ("hot_key", 1_000_000)
    clock.advance(10)
    assert saved(None) == ("hot_key", 1_000_000)
    assert saved(Diagnosed("skew", 1_000_000)) == ("skew", 1_000_000)
    assert saved(Diagnosed("healthy")) == ("healthy", 1_000_010)


def test_of_two_who_read_the_same_memory_one_decides(catalog: Catalog, catalog_url: str, job: str, clock) -> None:
    catalog.policies.set(job, SETTINGS)
    with Catalog(catalog_url, clock=clock) as other:
        first, second = catalog.policies.find(job), other.policies.find(job)
        assert first == second and first is not None and second is not None
        values: dict[str, Any] = {
            "from_parallelism": 2,
            "to_parallelism": 4,
            "from_workers": None,
            "to_workers": None,
            "method": "live",
            "reason": "r",
            "figures": {},
        }
        made = catalog.policies.record_decision(first, {"decided_ms": 1}, **values)
        assert made is not None and other.policies.record_decision(second, {"decided_ms": 1}, **values) is None
        assert not other.policies.save_memory(second, {}, "late")
        assert other.policies.decisions(job) == [made]
        # Settings that were changed meanwhile were not decided by.
        seen = catalog.policies.find(job)
        assert seen is not None
        other.policies.set(job, {"max_parallelism": 2})
        assert catalog.policies.record_decision(seen, {}, **values) is None


def test_a_decision_is_taken_up_once_and_ends_once(catalog: Catalog, job: str) -> None:
    catalog.policies.set(job, SETTINGS)
    made = reach(catalog, job)
    assert made is not None and (made.state, made.run_id) == ("open", None)
    assert catalog.policies.open_decisions() == [made]
    assert catalog.policies.claim_decision(made.id, "run-1").run_id == "run-1"
    assert catalog.policies.claim_decision(made.id, "run-2").run_id == "run-1"
    assert catalog.policies.open_decisions() == []
    assert catalog.policies.end_decision(made.id, "failed", "no room").state == "failed"
    ended = catalog.policies.end_decision(made.id, "done")
    assert (ended.state, ended.outcome) == ("failed", "no room")
    assert catalog.policies.decision(made.id) == ended
    with pytest.raises(UnknownRecordError, match="no decision 99"):
        catalog.policies.decision(99)


def test_an_observed_decision_stays_what_it_is(catalog: Catalog, job: str) -> None:
    catalog.policies.set(job, SETTINGS)
    made = reach(catalog, job, state="observed")
    assert made is not None and made.state == "observed"
    assert catalog.policies.open_decisions() == []
    assert catalog.policies.claim_decision(made.id, "run-1") == made
    assert catalog.policies.end_decision(made.id, "failed") == made
    assert not catalog.policies.reannounce(made)


def test_decisions_count_as_made_unless_they_were_refused_or_observed(
    catalog: Catalog, job: str, register: Any, clock
) -> None:
    for each in (job, register(catalog, "orders")):
        catalog.policies.set(each, SETTINGS)
        reach(catalog, each)
    clock.advance(10)
    since_ms = clock.now_ms()
    assert (catalog.policies.decisions_made(job, 0), catalog.policies.decisions_made(job, since_ms)) == (1, 0)
    ends: tuple[DecisionState, ...] = ("done", "refused", "failed")
    for state in ends:
        made = reach(catalog, job)
        assert made is not None
        catalog.policies.end_decision(made.id, state)
    reach(catalog, job, state="observed")
    reach(catalog, job)
    assert catalog.policies.decisions_made(job, since_ms) == 3


def test_an_open_decision_is_announced_again_by_one(catalog: Catalog, job: str, clock) -> None:
    catalog.policies.set(job, SETTINGS)
    made = reach(catalog, job)
    assert made is not None
    clock.advance(1_000)
    assert catalog.policies.reannounce(made) and not catalog.policies.reannounce(made)
    assert catalog.policies.decision(made.id).announced_ms == clock.now_ms()
    catalog.policies.claim_decision(made.id, "run-1")
    assert not catalog.policies.reannounce(catalog.policies.decision(made.id))


def test_old_decisions_leave_and_those_of_other_jobs_stay(
    catalog: Catalog, job: str, register: Any, clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "KEPT_DECISIONS", 3)
    other = register(catalog, "orders")
    for each in (job, other):
        catalog.policies.set(each, SETTINGS)
    reach(catalog, other)
    for _ in range(5):
        clock.advance(1)
        reach(catalog, job)
    kept = catalog.policies.decisions(job)
    assert [each.decided_ms for each in kept] == [clock.now_ms() - age for age in range(3)]
    assert catalog.policies.decisions(job, limit=1) == kept[:1]
    assert catalog.policies.decisions(job, since_ms=clock.now_ms()) == kept[:1]
    assert len(catalog.policies.decisions(other)) == 1


def test_costs_are_those_of_the_newest_epochs_with_rows(catalog: Catalog, job: str) -> None:
    for number, rows in enumerate([5, 0, 7, 9], start=1):
        phases = {"run": float(number)}
        catalog.epochs.record(EpochRecord(job, 1, number, 1, 2, rows, rows, 0, number * 10, 3, phases))
    assert catalog.epochs.costs(job, limit=2) == [(30, 2, 7, 3, {"run": 3.0}), (40, 2, 9, 3, {"run": 4.0})]
    assert [cost[2] for cost in catalog.epochs.costs(job, limit=9)] == [5, 7, 9]


def test_a_job_has_run_like_this_since_the_first_epoch_after_the_last_one_at_another_parallelism(
    catalog: Catalog, job: str
) -> None:
    assert catalog.epochs.settled_ms(job, 2) is None
    for number, parallelism in enumerate([2, 4, 2, 2], start=1):
        catalog.epochs.record(EpochRecord(job, 1, number, 1, parallelism, 1, 1, number * 10 - 5, number * 10, 5))
    assert catalog.epochs.settled_ms(job, 2) == 25
    assert catalog.epochs.settled_ms(job, 4) is None
