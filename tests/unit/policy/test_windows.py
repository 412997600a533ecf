"""Windows of time that come again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ConfigurationError
from statecore.policy.windows import parse_at_least, parse_window, parse_zone
from tests.support.examples import examples

BERLIN = parse_zone("Europe/Berlin")
HOUR_MS = 3_600_000


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def ends(window: str, at: str, zone: str = "UTC") -> str | None:
    """Return the end of a window that is open at a time, both in UTC."""
    end_ms = parse_window(window, parse_zone(zone)).end_ms(ms(at))
    return None if end_ms is None else f"{datetime.fromtimestamp(end_ms / 1000, UTC):%Y-%m-%d %H:%M}"


@pytest.mark.parametrize(
    ("at", "end"),
    [
        # 2026-11-23 is a Monday.
        ("2026-11-23 07:59:59.999", None),
        ("2026-11-23 08:00", "2026-11-23 18:00"),
        ("2026-11-23 17:59:59.999", "2026-11-23 18:00"),
        ("2026-11-23 18:00", None),
        ("2026-11-22 12:00", None),
    ],
)
def test_a_window_is_open_from_its_beginning_until_before_its_end(at: str, end: str | None) -> None:
    assert ends("0 8 * * 1-5 for 10h", at) == end


def test_a_window_may_last_past_midnight_and_into_the_next_one() -> None:
    assert ends("0 22 * * * for 8h", "2026-11-24 05:59") == "2026-11-24 06:00"
    assert ends("0 22 * * fri for 2d12h30m", "2026-11-23 10:29") == "2026-11-23 10:30"
    assert ends("0 * * * * for 90m", "2026-11-23 10:15") == "2026-11-23 11:30"


def test_a_window_that_opens_soon_is_known_ahead() -> None:
    window = parse_window("0 9 * * 1 for 2h", parse_zone("UTC"))
    assert window.end_ms(ms("2026-11-23 08:57"), ahead_ms=180_000) == ms("2026-11-23 11:00")
    assert window.end_ms(ms("2026-11-23 08:56:59"), ahead_ms=180_000) is None
    assert window.end_ms(ms("2026-11-23 11:00"), ahead_ms=180_000) is None


@pytest.mark.parametrize(
    ("window", "at", "end"),
    [
        # In spring, 01:00 UTC is 02:00 and then 03:00; in autumn, 01:00 UTC is 03:00 and then 02:00 once more.
        ("0 8 * * * for 10h", "2026-03-28 07:00", "2026-03-28 17:00"),
        ("0 8 * * * for 10h", "2026-03-29 06:00", "2026-03-29 16:00"),
        ("0 22 * * * for 10h", "2026-03-29 06:59", "2026-03-29 07:00"),
        ("0 22 * * * for 10h", "2026-10-25 05:59", "2026-10-25 06:00"),
        # What the clock skips comes as many minutes later.
        ("30 2 * * * for 1h", "2026-03-29 01:15", None),
        ("30 2 * * * for 1h", "2026-03-29 01:30", "2026-03-29 02:30"),
        # Of what it shows twice, the first counts, also while it shows an earlier time again.
        ("30 2 * * * for 1h", "2026-10-25 00:30", "2026-10-25 01:30"),
        ("30 2 * * * for 1h", "2026-10-25 01:10", "2026-10-25 01:30"),
        ("30 2 * * * for 1h", "2026-10-25 01:30", None),
        ("30 2 * * * for 1h", "2026-10-25 01:45", None),
    ],
)
def test_windows_across_a_change_of_the_clock_open_by_it_and_last_as_long_as_ever(
    window: str, at: str, end: str | None
) -> None:
    assert ends(window, at, "Europe/Berlin") == end


@examples(200)
@given(
    at_ms=st.integers(ms("2026-01-01"), ms("2027-01-01")),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
    lasts_h=st.integers(1, 30),
)
def test_a_window_is_open_whenever_one_of_its_beginnings_is_younger_than_its_duration(
    at_ms: int, hour: int, minute: int, lasts_h: int
) -> None:
    window = parse_window(f"{minute} {hour} * * * for {lasts_h}h", BERLIN)
    today = datetime.fromtimestamp(at_ms / 1000, BERLIN).date()
    opened_ms = max(
        opens_ms
        for days in range(-2, 2)
        if (opens_ms := _opens_ms(today + timedelta(days=days), hour, minute)) <= at_ms
    )
    end_ms = opened_ms + lasts_h * HOUR_MS
    assert window.end_ms(at_ms) == (end_ms if at_ms < end_ms else None)


def _opens_ms(day: object, hour: int, minute: int) -> int:
    wall = datetime.fromisoformat(f"{day} {hour:02}:{minute:02}")
    return round(wall.replace(tzinfo=BERLIN).timestamp() * 1000)


def test_a_schedule_has_a_window_and_a_parallelism() -> None:
    found = parse_at_least(" 0 9 * * 1 for 2h: 8", BERLIN)
    assert (found.parallelism, found.window.cron, found.window.lasts_ms) == (8, "0 9 * * 1", 2 * HOUR_MS)
    assert found.window.text == "0 9 * * 1 for 2h: 8"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 8 * * 1-5", "a cron expression, `for`, and a duration"),
        ("for 10h", "a cron expression, `for`, and a duration"),
        ("0 8 * * for 10h", "five valid fields"),
        ("0 8 * * 1-5 0 for 10h", "five valid fields"),
        ("61 8 * * 1-5 for 10h", "five valid fields"),
        ("0 0 30 2 * for 10h", "five valid fields"),
        ("@daily for 10h", "five valid fields"),
        ("R 8 * * * for 10h", "five valid fields"),
        ("0 8 * * 1,h for 10h", "five valid fields"),
        ("0 8 * * 1-5 for 10", "a duration"),
        ("0 8 * * 1-5 for 0h", "a duration"),
        ("0 8 * * 1-5 for 30m1h", "a duration"),
        ("0 8 * * 1-5 for 367d", "a duration"),
    ],
)
def test_what_is_no_window_is_refused_with_what_would_be_one(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_window(text, BERLIN)
    for part in (repr(text), said, "write it like `0 8 * * 1-5 for 1h30m`"):
        assert part in str(refused.value)


@pytest.mark.parametrize("text", ["0 9 * * 1 for 2h", "0 9 * * 1 for 2h: 0", "0 9 * * 1 for 2h: many"])
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="a window, a colon and a parallelism"):
        parse_at_least(text, BERLIN)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "Europe", "../UTC", "/etc/localtime", "Europe/Berlin\0"])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="expected a name of the IANA database"):
        parse_zone(name)
