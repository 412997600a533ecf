"""The limit of an epoch that a job has met."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from statecore.policy import Ailment, Decision, Figures, PolicyMemory, decide
from statecore.policy.limits import EpochLimit, known_limit
from tests.unit.policy.test_cost import epochs
from tests.unit.policy.test_decision import LASTED, NO_WAIT, NOW_MS, SLACK

DAY_MS = 86_400_000
MET = EpochLimit(20_000, NOW_MS - 60_000)


def job(parallelism: int, *sizes: int, limit: int | None = None, waiting: int = 0) -> Figures:
    """A job of 5,000 rows/s, whose epochs have a fixed cost of 2 s."""
    measured = epochs(list(sizes) * 5, fixed_ms=2_000, row_ms=0.2 / parallelism, parallelism=parallelism)
    return Figures(
        "flights",
        NOW_MS,
        parallelism,
        128,
        epochs=tuple(measured),
        arriving=5_000.0,
        waiting=waiting,
        busy=1.0,
        settled_ms=0,
        epoch_limit=limit,
    )


def test_a_limit_holds_while_no_epoch_shows_it_until_one_reads_more_or_a_day_is_over() -> None:
    assert known_limit(None, job(4, 9_000)) is None
    assert known_limit(None, job(4, 20_000, limit=20_000)) == EpochLimit(20_000, NOW_MS)
    assert known_limit(MET, job(4, 9_000, 20_500)) == MET
    assert known_limit(MET, replace(job(4, 9_000), at_ms=MET.seen_ms + DAY_MS + 1)) is None
    more = replace(job(4), epochs=(replace(job(4, 9_000).epochs[0], committed_ms=NOW_MS, rows=22_000),))
    assert known_limit(MET, more) is None


def test_no_scale_in_goes_below_what_a_limit_allows_that_was_met_before() -> None:
    # Two subtasks do 9,730 rows/s with epochs of any size, and 5,000 with those of 20,000 rows; three do 6,000 then.
    free = decide(job(8, 9_000, 15_000), LASTED, replace(SLACK, parallelism=8))
    assert (free.action, free.parallelism) == ("in", 2)
    limited = decide(job(8, 9_000, 15_000), LASTED, replace(SLACK, parallelism=8, limit=MET))
    assert (limited.action, limited.parallelism) == ("in", 3)
    changed = decide(
        replace(job(8, 9_000, 15_000), version="another"), LASTED, replace(SLACK, parallelism=8, limit=MET)
    )
    assert changed.parallelism == 2


def back(shrunk_from: int | None) -> Decision:
    memory = PolicyMemory(parallelism=2, shrunk_ms=NOW_MS - 400_000, shrunk_from=shrunk_from)
    return decide(job(2, 10_000, 20_000, limit=20_000, waiting=130_000), LASTED, memory)


def test_only_a_scale_in_of_its_own_is_taken_back() -> None:
    made = back(11)
    assert (made.action, made.parallelism, made.memory.taken_back, made.memory.shrunk_from) == ("out", 3, 1, None)
    assert made.diagnosis is not None and made.diagnosis.name is Ailment.SOURCE_BOUND
    assert made.reason.endswith("so the scale-in is taken back; this has lasted 0 s")
    stays = back(None)
    assert stays.action == "stay" and "parallelism 3 does enough with the present one" in stays.reason
    # A scale-in in two steps counts as one.
    memory = PolicyMemory(parallelism=8, shrunk_ms=NOW_MS, shrunk_from=11, known_since_ms=0)
    assert decide(job(8, 9_000, 15_000), LASTED, memory).memory.shrunk_from == 11


def test_it_is_taken_back_no_further_than_to_the_size_before() -> None:
    limited = job(2, 10_000, 20_000, limit=20_000, waiting=800_000)
    memory = PolicyMemory(parallelism=2, shrunk_ms=NOW_MS - 400_000, shrunk_from=3)
    assert decide(limited, structs.replace(NO_WAIT, catch_up_s=1200), memory).parallelism == 3
