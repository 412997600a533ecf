"""The settings of a job's driver are read from its configuration, and wrong ones are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from statecore.errors import ConfigurationError
from statecore.snapshot.compaction import BASE_FLOOR_BYTES
from statecore.snapshot.settings import DriverSettings


def test_settings_are_read_from_the_jobs_configuration() -> None:
    assert DriverSettings.from_conf({"spark.ui.enabled": "false"}) == DriverSettings(
        trigger_interval=timedelta(milliseconds=500),
        retained_checkpoints=10,
        clean_up_grace=timedelta(hours=1),
        base_floor_bytes=BASE_FLOOR_BYTES,
    )
    conf = {
        "statecore.compaction.floor": "0",
        "statecore.cleanup.grace": "10min",
        "statecore.checkpoints.retained": "2",
        "statecore.trigger.interval": "2s",
    }
    assert DriverSettings.from_conf(conf) == DriverSettings(
        trigger_interval=timedelta(seconds=2),
        retained_checkpoints=2,
        clean_up_grace=timedelta(minutes=10),
        base_floor_bytes=0,
    )


@pytest.mark.parametrize(("interval", "ms"), [("10ms", 10), ("1500ms", 1500), ("10min", 600_000)])
def test_the_trigger_may_be_10_ms_to_10_minutes(interval: str, ms: int) -> None:
    assert DriverSettings.from_conf({"statecore.trigger.interval": interval}).trigger_ms == ms


@pytest.mark.parametrize(
    ("text", "silent"), [("1min", timedelta(minutes=1)), ("2d", timedelta(days=2)), ("off", timedelta.max)]
)
def test_how_long_nothing_may_arrive_is_a_duration_or_off(text: str, silent: timedelta) -> None:
    assert DriverSettings.from_conf({"statecore.source.silent": text}).silent_after == silent
    assert DriverSettings.from_conf({}).silent_after is None
    for wrong in ("59s", "never"):
        with pytest.raises(ConfigurationError, match=r"statecore\.source\.silent at least 1min or 'off'"):
            DriverSettings.from_conf({"statecore.source.silent": wrong})


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
        ("statecore.cleanup.grace", f"{10**20}d"),
        ("statecore.trigger.interval", "500"),
        ("statecore.trigger.interval", "0ms"),
        ("statecore.trigger.interval", "9ms"),
        ("statecore.trigger.interval", "1.5s"),
        ("statecore.trigger.interval", "601s"),
    ],
)
def test_wrong_settings_are_refused_by_name_with_what_is_expected(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"found .*{key}.*; expected .*grace.*at least 10min.*; `register"):
        DriverSettings.from_conf({key: value})
