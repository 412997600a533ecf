"""Recurring windows of time: ``0 8 * * 1-5 for 10h`` opens at 08:00 from Monday to Friday, for ten hours.

A window opens by the clock of its time zone, and lasts for its duration even if that clock changes. A time that the
clock skips in spring counts as many minutes later; of a time that it shows twice in autumn, the first counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from croniter import croniter

from statecore.errors import ConfigurationError

_WINDOW = re.compile(r"\s*(?P<cron>.+?)\s+for\s+(?P<duration>\S+)\s*")
_AT_LEAST = re.compile(r"(?P<window>.+):\s*(?P<parallelism>\d{1,9})\s*")
_DURATION = re.compile(r"(?:(?P<days>\d{1,3})d)?(?:(?P<hours>\d{1,4})h)?(?:(?P<minutes>\d{1,6})m)?")
_LONGEST = timedelta(days=366)
# croniter also accepts fields that it fills by hash or chance, anew at every call.
_BY_CHANCE = re.compile(r"(?:^|[\s,])[hr]", re.IGNORECASE)
# A clock that shows a time for the second time went back at most this long ago.
_TURNED_BACK = timedelta(hours=3)


@dataclass(frozen=True, slots=True)
class Window:
    """A recurring window of time.

    Attributes:
        text: Its setting.
        cron: When it opens: minute, hour, day of month, month, day of week.
        lasts_ms: Its duration.
        zone: Time zone of ``cron``.

    """

    text: str
    cron: str
    lasts_ms: int
    zone: ZoneInfo

    def end_ms(self, at_ms: int, *, ahead_ms: int = 0) -> int | None:
        """Return the end of the window that is open, or opens within ``ahead_ms``; None without one."""
        end_ms = self._opened_ms(at_ms + ahead_ms) + self.lasts_ms
        return end_ms if at_ms < end_ms else None

    def _opened_ms(self, at_ms: int) -> int:
        """Return when the window last opened."""
        at = datetime.fromtimestamp(at_ms / 1000, self.zone)
        before = datetime.fromtimestamp(at_ms / 1000 - _TURNED_BACK.total_seconds(), self.zone)
        # After the clock went back, times that it has already shown lie ahead of it again.
        shown = max(at.replace(tzinfo=None), before.replace(tzinfo=None) + _TURNED_BACK)
        # Without a zone, because libraries differ in how they handle changes of the clock.
        starts = croniter(self.cron, shown + timedelta(seconds=1), ret_type=datetime)
        while True:
            start: datetime = starts.get_prev()
            opened_ms = round(start.replace(tzinfo=self.zone).timestamp() * 1000)
            if opened_ms <= at_ms:
                return opened_ms


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A parallelism that a job needs in a window."""

    window: Window
    parallelism: int


def parse_zone(name: str) -> ZoneInfo:
    """Return a time zone.

    Raises:
        ConfigurationError: There is no such time zone.

    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigurationError(
            f"found the time zone {name!r}; expected a name of the IANA database, such as UTC or Europe/Berlin; "
            "correct it with `statecore policy set JOB --time-zone …`"
        ) from error


def parse_window(text: str, zone: ZoneInfo) -> Window:
    """Return the window that a text describes.

    Raises:
        ConfigurationError: The text is no window.

    """
    match = _WINDOW.fullmatch(text)
    if match is None:
        raise _refused(text, "a cron expression, `for`, and a duration")
    cron, duration = " ".join(match["cron"].split()), _DURATION.fullmatch(match["duration"])
    if len(cron.split()) != 5 or _BY_CHANCE.search(cron) or not croniter.is_valid(cron, strict=True):
        raise _refused(
            text, f"five valid fields, minute, hour, day of month, month and day of week, instead of {cron!r}"
        )
    parts = {} if duration is None else duration.groupdict(default="0")
    lasts = timedelta(**{unit: int(count) for unit, count in parts.items()})
    if not timedelta() < lasts <= _LONGEST:
        raise _refused(text, f"a duration of days, hours and minutes, up to 366 days, instead of {match['duration']!r}")
    return Window(text.strip(), cron, round(lasts.total_seconds() * 1000), zone)


def parse_at_least(text: str, zone: ZoneInfo) -> AtLeast:
    """Return the window and the parallelism that a text describes.

    Raises:
        ConfigurationError: The text describes none.

    """
    match = _AT_LEAST.fullmatch(text)
    if match is None or int(match["parallelism"]) < 1:
        raise ConfigurationError(
            f"found the schedule {text!r}; expected a window, a colon and a parallelism of at least 1; write it like "
            "`0 9 * * 1 for 2h: 8`"
        )
    window = replace(parse_window(match["window"], zone), text=text.strip())
    return AtLeast(window, int(match["parallelism"]))


def _refused(text: str, expected: str) -> ConfigurationError:
    return ConfigurationError(f"found the window {text!r}; expected {expected}; write it like `0 8 * * 1-5 for 1h30m`")
