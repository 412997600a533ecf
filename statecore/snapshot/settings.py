"""A job's settings: keys below ``statecore.`` in its configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec

from statecore.errors import ConfigurationError
from statecore.snapshot.compaction import BASE_FLOOR_BYTES

PREFIX = "statecore."
_GRACE = "statecore.cleanup.grace"
_TRIGGER = "statecore.trigger.interval"
_SILENT = "statecore.source.silent"
_HIDDEN = "statecore.state.hidden"
_OFF = "off"
_DURATION = re.compile(r"(\d+)(ms|s|m|min|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
MIN_GRACE = timedelta(minutes=10)
"""The shortest that a job may set: longer than an outage of the storage and the skew of two clocks together."""
# Between two epochs no timer fires and no live rescale takes effect; a shorter interval keeps a core busy.
_ALLOWED = {
    _GRACE: (MIN_GRACE, timedelta.max),
    _TRIGGER: (timedelta(milliseconds=10), timedelta(minutes=10)),
    _SILENT: (timedelta(minutes=1), timedelta.max),
}


class DriverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a job's driver runs epochs, how much it keeps of them, how long none may have rows, and what is hidden.

    Attributes:
        trigger_interval: ``statecore.trigger.interval``, such as ``500ms`` or ``5s``: shortest time from the start of
            an epoch to the start of the next, 10 ms to ten minutes.
        retained_checkpoints: ``statecore.checkpoints.retained``: how many of the newest manifests stay.
        clean_up_grace: ``statecore.cleanup.grace``, such as ``1h`` or ``90min``: how old a file must be before it can
            be removed; longer than the longest epoch, and in a job's configuration at least ten minutes.
        base_floor_bytes: ``statecore.compaction.floor``: changelogs of fewer bytes never become a base.
        silent_after: ``statecore.source.silent``, such as ``2h``: how long nothing may arrive before people are told;
            ``off`` for a job whose input comes in bursts. None: the job's own history says.
        hidden: ``statecore.state.hidden``, such as ``email,card``: columns of keys and values, and states, whose values
            are not shown to people who look a key up.

    """

    trigger_interval: timedelta = msgspec.field(name=_TRIGGER, default=timedelta(milliseconds=500))
    retained_checkpoints: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(
        name="statecore.checkpoints.retained", default=10
    )
    clean_up_grace: timedelta = msgspec.field(name=_GRACE, default=timedelta(hours=1))
    base_floor_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        name="statecore.compaction.floor", default=BASE_FLOOR_BYTES
    )
    silent_after: timedelta | None = msgspec.field(name=_SILENT, default=None)
    hidden: tuple[str, ...] = msgspec.field(name=_HIDDEN, default=())

    @classmethod
    def from_conf(cls, conf: Mapping[str, str]) -> DriverSettings:
        """Read a job's configuration; Spark's keys are ignored.

        Raises:
            ConfigurationError: A key below ``statecore.`` is unknown, or its value does not fit.

        """
        own: dict[str, object] = {key: value for key, value in conf.items() if key.startswith(PREFIX)}
        try:
            own |= {key: _duration(key, conf[key]) for key in _ALLOWED if key in own}
            if _HIDDEN in conf:
                own[_HIDDEN] = [name.strip() for name in conf[_HIDDEN].split(",") if name.strip()]
            return msgspec.convert(own, cls, strict=False)
        except (msgspec.ValidationError, ValueError, OverflowError) as error:
            known = [field.encode_name for field in msgspec.structs.fields(cls)]
            raise ConfigurationError(
                f"found {own} in the job's configuration ({error}); expected keys among {known}, whole numbers, and "
                f"durations such as 500ms, 90min, 2h or 1d: {_GRACE} at least 10min, {_TRIGGER} 10ms to 10min, "
                f"{_SILENT} at least 1min or {_OFF!r}; `register JOB --conf KEY=` removes one"
            ) from error

    @property
    def trigger_ms(self) -> int:
        """The trigger's interval in ms."""
        return self.trigger_interval // timedelta(milliseconds=1)


def _duration(key: str, text: str) -> timedelta:
    if (key, text) == (_SILENT, _OFF):
        return timedelta.max
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{key} is not a duration")
    duration = timedelta(milliseconds=int(match[1]) * _UNITS_MS[match[2]])
    least, most = _ALLOWED[key]
    if not least <= duration <= most:
        raise ValueError(f"{key} is out of bounds")
    return duration
