"""Which commands start drivers, and which jobs have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import ConfigurationError
from statecore.operations.submit import SparkSubmit
from tests.support.submit import command


def test_another_program_may_be_the_driver(tmp_path: Path) -> None:
    assert "/mine.py" in command(tmp_path, "local[2]", submit=SparkSubmit(Path("/mine.py")))


def test_a_driver_far_from_its_supervisor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found spark\.submit\.deployMode=cluster in the configuration of"):
        command(tmp_path, "yarn", {"spark.submit.deployMode": "cluster"})
