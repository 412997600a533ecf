"""Time spans in whole milliseconds."""

from __future__ import annotations

from datetime import timedelta

from statecore.errors import ConfigurationError

_MS = timedelta(milliseconds=1)


def whole_ms(name: str, span: timedelta) -> int:
    """Return a span in ms; ConfigurationError unless it is a timedelta of whole milliseconds."""
    if not isinstance(span, timedelta) or span % _MS:
        raise ConfigurationError(
            f"found {name}={span!r} for a window; expected a timedelta of whole milliseconds; pass timedelta(…)"
        )
    return span // _MS


def positive_ms(name: str, span: timedelta) -> int:
    """Return a span in ms; ConfigurationError unless it is a positive timedelta of whole milliseconds."""
    ms = whole_ms(name, span)
    if ms <= 0:
        raise ConfigurationError(f"found {name}={span!r} for a window; expected a positive span; pass timedelta(…)")
    return ms


def check_offset(offset: timedelta, period: timedelta) -> None:
    """Refuse an offset that is not whole milliseconds, or not shorter than the time from one window to the next.

    Raises:
        ConfigurationError: It is refused, as by Flink: the same windows have a shorter offset.

    """
    whole_ms("offset", offset)
    if abs(offset) >= period:
        raise ConfigurationError(
            f"found offset={offset!r} for windows that start every {period}; expected a shorter one, before or after "
            "1970-01-01 UTC; pass the remainder"
        )
