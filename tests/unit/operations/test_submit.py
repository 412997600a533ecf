"""Which commands start drivers, and which jobs have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import ConfigurationError
from statecore.operations.submit import CATALOG_VARIABLE, DRIVER_CATALOG_VARIABLE, SparkSubmit, driver_environment
from tests.support.submit import command


def test_another_program_may_be_the_driver(tmp_path: Path) -> None:
    assert "/mine.py" in command(tmp_path, "local[2]", submit=SparkSubmit(Path("/mine.py")))


def test_a_driver_far_from_its_supervisor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"found spark\.submit\.deployMode=cluster in the configuration of"):
        command(tmp_path, "yarn", {"spark.submit.deployMode": "cluster"})


@pytest.mark.parametrize(
    ("supervisor", "drivers", "expected"),
    [
        ("postgresql://s@db/c", None, "postgresql://s@db/c"),
        ("postgresql://s@db/c", "postgresql://driver@db/c", "postgresql://driver@db/c"),
        ("postgresql://s@db/c", "postgresql://d_{job}@db/c?passfile=/p/{job}", "postgresql://d_a@db/c?passfile=/p/a"),
        (None, None, None),
    ],
)
def test_a_driver_gets_the_url_of_its_role_with_its_jobs_name(
    monkeypatch: pytest.MonkeyPatch, supervisor: str | None, drivers: str | None, expected: str | None
) -> None:
    for name, value in ((CATALOG_VARIABLE, supervisor), (DRIVER_CATALOG_VARIABLE, drivers)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    found = driver_environment("a")
    assert found.get(CATALOG_VARIABLE) == expected
    assert DRIVER_CATALOG_VARIABLE not in found
