"""A worker of another release than its driver's does nothing: both sides of their messages change together."""

from __future__ import annotations

from typing import Any, cast

import pytest

from statecore.errors import ConfigurationError
from statecore.release import RELEASE
from statecore.runtime.worker import releases
from statecore.runtime.worker.subtask import subtask_runner


def test_a_worker_of_another_release_than_its_driver_refuses_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    run = subtask_runner(cast(Any, None), cast(Any, None))
    assert list(run(iter(()))) == []
    monkeypatch.setattr(releases, "RELEASE", "0.0.9")
    with pytest.raises(ConfigurationError, match=rf"found release 0\.0\.9 .* in a worker on .*; expected {RELEASE},"):
        list(run(iter(())))
