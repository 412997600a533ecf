"""The settings of a job's store are read from its configuration, and wrong ones are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from statecore.errors import ConfigurationError
from statecore.snapshot.compaction import BASE_FLOOR_BYTES
from statecore.snapshot.settings import UpkeepSettings


def test_settings_are_read_from_the_jobs_configuration() -> None:
    assert UpkeepSettings.from_conf({"spark.ui.enabled": "false"}) == UpkeepSettings(
        retained_checkpoints=10, clean_up_grace=timedelta(hours=1), base_floor_bytes=BASE_FLOOR_BYTES
    )
    conf = {
        "statecore.compaction.floor": "0",
        "statecore.cleanup.grace": "10min",
        "statecore.checkpoints.retained": "2",
    }
    assert UpkeepSettings.from_conf(conf) == UpkeepSettings(
        retained_checkpoints=2, clean_up_grace=timedelta(minutes=10), base_floor_bytes=0
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("statecore.checkpoints.retain", "2"),
        ("statecore.checkpoints.retained", "0"),
        ("statecore.compaction.floor", "-1"),
        ("statecore.cleanup.grace", "soon"),
        ("statecore.cleanup.grace", "NaT"),
        ("statecore.cleanup.grace", "0s"),
        ("statecore.cleanup.grace", "-1h"),
        ("statecore.cleanup.grace", "599s"),
    ],
)
def test_wrong_settings_are_refused_by_name_with_what_is_expected(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"found .*{key}.*; expected .*grace.*at least 10min.*; `register"):
        UpkeepSettings.from_conf({key: value})
