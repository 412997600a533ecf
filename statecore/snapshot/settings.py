"""How much a job keeps in its store: keys below ``statecore.`` in its configuration."""

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
_DURATION = re.compile(r"(\d+)(s|m|min|h|d)")
_UNITS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
MIN_GRACE = timedelta(minutes=10)
"""The shortest that a job may set: longer than an outage of the storage and the skew of two clocks together."""


class UpkeepSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention of a driver's files.

    Attributes:
        retained_checkpoints: ``statecore.checkpoints.retained``: how many of the newest manifests stay.
        clean_up_grace: ``statecore.cleanup.grace``, such as ``1h`` or ``90min``: how old a file must be before it can
            be removed; longer than the longest epoch, and in a job's configuration at least ten minutes.
        base_floor_bytes: ``statecore.compaction.floor``: changelogs of fewer bytes never become a base.

    """

    retained_checkpoints: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(
        name="statecore.checkpoints.retained", default=10
    )
    clean_up_grace: timedelta = msgspec.field(name=_GRACE, default=timedelta(hours=1))
    base_floor_bytes: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(
        name="statecore.compaction.floor", default=BASE_FLOOR_BYTES
    )

    @classmethod
    def from_conf(cls, conf: Mapping[str, str]) -> UpkeepSettings:
        """Read a job's configuration; Spark's keys are ignored.

        Raises:
            ConfigurationError: A key below ``statecore.`` is unknown, or its value does not fit.

        """
        own: dict[str, object] = {key: value for key, value in conf.items() if key.startswith(PREFIX)}
        try:
            if _GRACE in own:
                own[_GRACE] = _grace(conf[_GRACE])
            return msgspec.convert(own, cls, strict=False)
        except (msgspec.ValidationError, ValueError) as error:
            known = [field.encode_name for field in msgspec.structs.fields(cls)]
            raise ConfigurationError(
                f"found {own} in the job's configuration ({error}); expected keys among {known}, a duration of at "
                "least 10min, such as 90min, 2h or 1d, and whole numbers; `register JOB --conf KEY=` removes one"
            ) from error


def _grace(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{_GRACE} is not a duration")
    grace = timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])
    if grace < MIN_GRACE:
        raise ValueError(f"{_GRACE} is less than ten minutes")
    return grace
