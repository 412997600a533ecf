"""statecore's settings of a job: keys below ``statecore.`` in its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated

import msgspec

from statecore.errors import ConfigurationError
from statecore.snapshot.compaction import BASE_FLOOR_BYTES

PREFIX = "statecore."
_GRACE = "statecore.cleanup.grace"


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Retention of a driver's files.

    Attributes:
        retained_checkpoints: ``statecore.checkpoints.retained``: how many of the newest manifests stay.
        clean_up_grace: ``statecore.cleanup.grace``, such as ``1h`` or ``90s``: how old a file must be before it can be
            removed; longer than the longest epoch.
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
    def from_conf(cls, conf: Mapping[str, str]) -> RuntimeSettings:
        """Read a job's configuration; Spark's keys are ignored.

        Raises:
            ConfigurationError: A key below ``statecore.`` is unknown, or its value does not fit.

        """
        own: dict[str, object] = {key: value for key, value in conf.items() if key.startswith(PREFIX)}
        try:
            if _GRACE in own:
                # Imported on demand, because pandas takes a third of a driver's import time.
                import pandas as pd

                own[_GRACE] = pd.Timedelta(conf[_GRACE]).to_pytimedelta()
            return msgspec.convert(own, cls, strict=False)
        except (msgspec.ValidationError, ValueError) as error:
            known = [field.encode_name for field in msgspec.structs.fields(cls)]
            raise ConfigurationError(
                f"found {own} in the job's configuration ({error}); expected keys among {known}, a duration as 1h or "
                "90s, and whole numbers; `register JOB --conf KEY=` removes one"
            ) from error
