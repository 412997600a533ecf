"""A scale-out that did not help is undone, once, and not tried again until the job changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from statecore.policy import Ailment, Decision, Diagnosis, Figures, PolicySettings, decide
from statecore.policy.effects import Effect, useless
from statecore.policy.figures import EpochCost
from tests.unit.policy.test_cost import SIZES, epochs
from tests.unit.policy.test_decision import NO_WAIT, NOTHING, NOW_MS

# No subtask makes rows cheaper: 8,000 rows/s at any parallelism.
STUCK_ROW_MS = 0.125


def costs(parallelism: int, row_ms: float = STUCK_ROW_MS) -> tuple[EpochCost, ...]:
    return tuple(epochs(SIZES, fixed_ms=1, row_ms=row_ms, parallelism=parallelism))


def job(parallelism: int, *measured: EpochCost, **others: Any) -> Figures:
    known: dict[str, Any] = {"arriving": 20_000.0, "waiting": 100_000, "busy": 1.0, "settled_ms": 0}
    return Figures("flights", NOW_MS, parallelism, 128, epochs=measured, **(known | others))


def undone() -> Decision:
    """A scale-out from 4, found to do nothing, and undone."""
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    assert before.action == "out"
    larger = before.parallelism
    return decide(job(larger, *costs(4), *costs(larger)), NO_WAIT, before.memory)


def test_a_scale_out_that_brought_nothing_is_undone_and_its_reason_tells_what_both_sizes_did() -> None:
    made = undone()
    assert (made.action, made.parallelism) == ("in", 4)
    assert made.diagnosis is not None and made.diagnosis.name is Ailment.INEFFECTIVE
    assert "does not help, a row costs 0.125 ms, as against 0.125 ms at 4" in made.reason
    assert made.reason.endswith("this is undone")


def test_a_scale_out_that_helped_is_kept_although_the_job_is_still_short() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    helped = job(larger, *costs(4), *costs(larger, STUCK_ROW_MS * 4 / larger), arriving=200_000.0)
    assert decide(helped, NO_WAIT, before.memory).action != "in"


def test_it_is_not_tried_again_when_the_measurements_of_the_larger_size_are_long_gone() -> None:
    memory = undone().memory
    for _ in range(3):
        again = decide(job(4, *costs(4)), NO_WAIT, memory)
        assert again.action == "stay"
        assert again.diagnosis is not None and again.diagnosis.name is Ailment.INEFFECTIVE
        assert "was tried, and rows cost no less than at 4" in again.reason
        memory = again.memory


def test_below_the_size_from_which_it_did_not_help_the_policy_scales_out_as_far_as_that_size() -> None:
    made = decide(job(2, *costs(2, 2 * STUCK_ROW_MS)), NO_WAIT, undone().memory)
    assert (made.action, made.parallelism) == ("out", 4)


def test_a_changed_job_tries_it_again() -> None:
    memory = undone().memory
    assert decide(job(4, *costs(4), version="another job file"), NO_WAIT, memory).action == "out"
    cheaper = decide(job(4, *costs(4, STUCK_ROW_MS / 2), arriving=40_000.0), NO_WAIT, memory)
    assert cheaper.action == "out", "its rows have another cost"


def test_it_rests_for_the_cooldown_before_it_undoes() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    calm = PolicySettings(max_parallelism=16, scale_out_after_s=0, scale_in_after_s=0, cooldown_s=300)
    found = decide(job(larger, *costs(4), *costs(larger)), calm, before.memory)
    assert found.action == "stay" and "cooling down" in found.reason


def test_it_is_not_judged_by_its_first_two_minutes() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    young = job(larger, *costs(4), *costs(larger), settled_ms=NOW_MS - 119_999)
    assert decide(young, NO_WAIT, before.memory).action == "stay"
    assert decide(replace(young, settled_ms=NOW_MS - 120_000), NO_WAIT, before.memory).action == "in"


def test_what_an_undone_scale_out_leaves_is_no_scale_in_that_could_be_taken_back() -> None:
    memory = undone().memory
    assert (memory.shrunk_ms, memory.shrunk_from, memory.shrunk_to, memory.taken_back) == (None, None, None, 0)


def test_to_undo_a_scale_out_proves_no_scale_in_right() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    memory = replace(before.memory, shrunk_ms=0, shrunk_from=32, shrunk_to=larger, taken_back=1, restored=32)
    made = decide(job(larger, *costs(4), *costs(larger)), NO_WAIT, memory)
    assert made.action == "in" and "this is undone" in made.reason
    assert (made.memory.taken_back, made.memory.restored) == (1, 32)


def test_it_is_undone_once_although_somebody_scales_out_again() -> None:
    memory = undone().memory
    larger = memory.effects[0].after
    again = decide(job(larger, *costs(4), *costs(larger)), NO_WAIT, memory)
    assert again.action == "stay"


def test_one_that_helped_is_never_undone_however_slow_the_job_becomes_later() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    helped = job(larger, *costs(larger, STUCK_ROW_MS * 4 / larger), arriving=200_000.0)
    kept = decide(helped, NO_WAIT, before.memory)
    assert not kept.memory.effects or kept.memory.effects[0].after != larger
    later = job(larger, *costs(4), *costs(larger))
    assert decide(later, NO_WAIT, kept.memory).action != "in"


def test_half_an_hour_later_nobody_judges_it() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    late = replace(job(larger, *costs(4), *costs(larger)), at_ms=NOW_MS + 1_800_001)
    assert decide(late, NO_WAIT, before.memory).action != "in"


def test_the_largest_size_that_is_allowed_is_not_undone_because_it_is_not_enough() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    noisy = job(larger, *costs(larger, STUCK_ROW_MS * 0.95), arriving=10**6)
    limited = structs.replace(NO_WAIT, max_parallelism=larger)
    found = decide(noisy, limited, before.memory)
    assert found.diagnosis is not None and found.diagnosis.name is Ailment.AT_LIMIT
    assert found.action == "stay"


def test_a_schedule_is_not_undone() -> None:
    before = decide(job(4, *costs(4)), NO_WAIT, NOTHING)
    larger = before.parallelism
    window = structs.replace(NO_WAIT, at_least=(f"* * * * * for 1h: {larger}",))
    assert decide(job(larger, *costs(4), *costs(larger)), window, before.memory).action == "stay"
    asked = decide(job(4, *costs(4)), window, NOTHING)
    assert asked.action == "out" and not asked.memory.effects, "it does not show whether a larger size helps"


def test_nothing_is_barred_where_somebody_scaled_out_further_and_nothing_for_longer_than_a_day() -> None:
    memory = undone().memory
    further = job(12, *costs(12, STUCK_ROW_MS / 3), arriving=40_000.0)
    assert decide(further, NO_WAIT, memory).action == "out"
    assert decide(job(4, *costs(4)), NO_WAIT, memory).action == "stay"
    next_day = replace(job(4, *costs(4)), at_ms=NOW_MS + 86_400_001)
    assert decide(next_day, NO_WAIT, memory).action == "out"


def test_a_job_that_may_not_be_changed_now_has_the_same_diagnosis() -> None:
    held = decide(job(4, *costs(4), hindrance="somebody holds the lease"), NO_WAIT, undone().memory)
    assert held.diagnosis is not None and held.diagnosis.name is Ailment.INEFFECTIVE


def test_a_small_step_is_not_judged() -> None:
    small = structs.replace(NO_WAIT, max_step=1)
    before = decide(job(8, *costs(8), arriving=9_000.0), small, NOTHING)
    assert (before.parallelism, before.memory.effects) == (9, ())


def test_a_poor_measurement_undoes_nothing() -> None:
    effect = Effect(4, 8, 0.125, NOW_MS)
    found = Diagnosis(Ailment.SINK_BOUND, "", is_short=True, row_ms=0.12, row_error=0.01)
    assert useless([effect], found, 8) == effect
    # Nor is anything undone where the job keeps up, though its rows are late by what each epoch costs.
    assert useless([effect], replace(found, name=Ailment.FIXED_COST, is_short=False), 8) is None
    assert useless([effect], replace(found, row_error=0.1), 8) is None


def test_it_is_not_undone_where_fewer_workers_would_be_full() -> None:
    before = decide(job(4, *costs(4), workers=4), NO_WAIT, NOTHING)
    larger = before.parallelism
    stays = decide(job(larger, *costs(4), *costs(larger), workers=larger, memory_share=0.6), NO_WAIT, before.memory)
    assert stays.action == "stay" and stays.diagnosis is not None and stays.diagnosis.name is Ailment.INEFFECTIVE
