"""What binds a decision beside the limits: windows without changes, and sizes known beforehand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from statecore.errors import ConfigurationError
from statecore.policy import Decision, Figures, PolicyMemory, PolicySettings, decide, policy_settings
from tests.unit.policy.test_decision import NO_WAIT, NOTHING, figures

BUSINESS = "0 8 * * 1-5 for 10h"
MARKET = "0 9 * * 1 for 2h: 8"
DAY = datetime(2026, 11, 23, tzinfo=UTC)
"""A Monday."""
FITS = figures(4, arriving=26_000.0)


def at(clock: str, found: Figures) -> Figures:
    """Return figures at a time of that day."""
    hours, minutes = map(int, clock.split(":"))
    then_ms = round(DAY.timestamp() * 1000) + (60 * hours + minutes) * 60_000
    later_ms = then_ms - found.at_ms
    moved = tuple(replace(each, committed_ms=each.committed_ms + later_ms) for each in found.epochs)
    return replace(found, at_ms=then_ms, epochs=moved)


def with_(settings: PolicySettings, **changes: Any) -> PolicySettings:
    return policy_settings(msgspec.to_builtins(settings) | changes)


def test_in_a_window_nothing_changes_and_right_after_it_what_has_been_needed_does() -> None:
    settings = with_(NO_WAIT, freeze=[BUSINESS], scale_out_after_s=300)
    short = figures(4, arriving=40_000.0)
    made = decide(at("17:00", short), settings, NOTHING)
    made = decide(at("17:59", short), settings, made.memory)
    assert made.action == "stay"
    assert made.reason.endswith("this has lasted 3540 s; frozen until 18:00 UTC by `0 8 * * 1-5 for 10h`")
    assert decide(at("18:00", short), settings, made.memory).action == "out"


def test_a_window_holds_back_a_scale_in_and_a_return_into_the_limits_too() -> None:
    settings = with_(NO_WAIT, freeze=[BUSINESS], scale_in_after_s=180)
    memory = PolicyMemory(parallelism=4, slack_since_ms=0, known_since_ms=0)
    for found in (figures(4, arriving=5_000.0), figures(20)):
        for clock, action in (("17:59", "stay"), ("18:00", "in")):
            made = decide(at(clock, found), settings, memory)
            assert (made.action, "frozen until 18:00 UTC" in made.reason) == (action, action == "stay"), made


def test_of_windows_that_overlap_the_last_end_counts_and_another_day_is_named() -> None:
    settings = with_(NO_WAIT, freeze=["0 0 * * * for 1d6h", BUSINESS], time_zone="Europe/Berlin")
    made = decide(at("12:00", figures(4, arriving=40_000.0)), settings, NOTHING)
    assert made.reason.endswith("frozen until 2026-11-24 06:00 Europe/Berlin by `0 0 * * * for 1d6h`")


def scheduled(clock: str, found: Figures | None = None, **changes: Any) -> Decision:
    # Neither waits for a need to last: of a schedule, the policy knows beforehand.
    settings = with_(NO_WAIT, at_least=[MARKET], scale_out_after_s=600, scale_in_after_s=0, **changes)
    return decide(at(clock, found or FITS), settings, NOTHING)


def test_a_schedule_has_its_size_ready_at_its_beginning() -> None:
    reason = "scheduled: at least 8 until 11:00 UTC by `0 9 * * 1 for 2h: 8`"
    assert scheduled("08:59").action == "stay"
    made = scheduled("09:00")
    assert (made.action, made.parallelism, made.reason) == ("out", 8, reason)
    # A rescale takes three minutes.
    slow = replace(FITS, rescale_ms=180_000)
    assert (scheduled("08:56", slow).action, scheduled("08:57", slow).reason) == ("stay", reason)
    assert scheduled("09:00", replace(FITS, epochs=())).parallelism == 8
    assert scheduled("10:59", figures(8, arriving=5_000.0)).action == "stay"
    assert scheduled("11:00", figures(8, arriving=5_000.0)).action == "in"
    assert scheduled("09:00", figures(16, arriving=5_000.0)).parallelism == 8


def test_a_schedule_waits_for_the_cooldown_for_a_run_and_for_a_frozen_window() -> None:
    resting = figures(4, ended_ms=at("08:59", figures()).at_ms)
    assert "scheduled: at least 8" in scheduled("09:00", resting, cooldown_s=300).reason
    assert scheduled("09:00", resting, cooldown_s=300).action == "stay"
    assert scheduled("09:00", figures(4, hindrance="run-7 has the lease")).reason == "run-7 has the lease"
    assert "frozen until 18:00 UTC" in scheduled("09:00", freeze=[BUSINESS]).reason


def test_a_schedule_never_asks_for_more_than_the_limits_allow() -> None:
    made = scheduled("09:00", figures(2, workers=2, max_workers=6))
    assert (made.parallelism, made.workers) == (6, 6)
    assert scheduled("09:00", replace(figures(2), max_parallelism=4)).parallelism == 4
    assert scheduled("09:00", figures(6, workers=6, max_workers=6)).action == "stay"
    # Below the lower limit, with a schedule below it too, the limit is the reason.
    below = scheduled("09:00", figures(9), min_parallelism=10)
    assert (below.parallelism, "outside the limits 10 to 16" in below.reason) == (10, True)


def test_of_schedules_at_once_the_largest_counts() -> None:
    settings = with_(NO_WAIT, at_least=["0 0 * * * for 1d: 6", MARKET, "0 9 * * 1 for 30m: 7"])
    assert decide(at("09:00", figures(4)), settings, NOTHING).parallelism == 8
    assert decide(at("11:00", figures(4)), settings, NOTHING).parallelism == 6


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"freeze": ["0 8 * * 1-5 for ever"]}, "'ever'"),
        ({"at_least": ["0 9 * * 1 for 2h"]}, "a window, a colon and a parallelism"),
        ({"at_least": [MARKET], "max_parallelism": 7}, "above max parallelism 7"),
        ({"time_zone": "Berlin"}, "the time zone 'Berlin'"),
    ],
)
def test_rules_that_do_not_fit_are_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        policy_settings({"max_parallelism": 8, **values})
