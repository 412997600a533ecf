"""What ``statecore.run`` refuses before it starts Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import statecore
from statecore.errors import ConfigurationError, JobDefinitionError


def nothing(job: Any) -> None:
    pass


def test_it_runs_only_over_what_is_available() -> None:
    with pytest.raises(ConfigurationError, match=r"found until='forever'; expected 'available'; .*register the job"):
        statecore.run(nothing, until="forever")  # type: ignore[arg-type]


def test_settings_are_texts_as_those_of_a_registered_job(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found the settings {'input': .*}; expected texts"):
        statecore.run(nothing, settings={"input": tmp_path})  # type: ignore[dict-item]


def test_a_name_that_would_leave_the_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"job name '../other' cannot be used"):
        statecore.run(nothing, name="../other", folder=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_cannot_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match="found 0 sources and no operator"):
        statecore.run(nothing, folder=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
