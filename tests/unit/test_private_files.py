"""Only their owner may read the files that may hold secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.cluster.processes import spawn
from statecore.private_files import write_private
from statecore.redaction import SPARK_PATTERN
from tests.support.submit import command


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_catalog_in_sqlite(tmp_path: Path) -> None:
    with Catalog(f"sqlite:///{tmp_path}/new/catalog.db") as catalog:
        catalog.create_schema()
        with catalog._database.write():
            files = sorted((tmp_path / "new").iterdir())
            assert [file.name for file in files] == ["catalog.db", "catalog.db-shm", "catalog.db-wal"]
            assert [mode(file) for file in files] == [0o600] * 3
    assert mode(tmp_path / "new") == 0o700


def test_the_log_of_a_driver(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "j-1.log"
    assert spawn(["true"], environment=dict(os.environ), log_path=log).wait() == 0
    assert (mode(log), mode(log.parent)) == (0o600, 0o700)


def test_a_folder_that_exists_keeps_the_mode_that_somebody_gave_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    Catalog(f"sqlite:///{tmp_path}/catalog.db").close()
    assert mode(tmp_path) == 0o750


def test_the_configuration_of_a_driver_which_stands_on_no_command_line(tmp_path: Path) -> None:
    words = command(tmp_path, "local[2]", {"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.x": "1"})
    assert not any("hunter2" in word for word in words)
    properties = Path(words[words.index("--properties-file") + 1])
    assert properties.read_text() == (
        f"spark.python.sql.dataFrameDebugging.enabled=false\nspark.redaction.regex={SPARK_PATTERN}\n"
        "spark.hadoop.fs.s3a.secret.key=hunter2\nspark.x=1\n"
        "spark.executorEnv.STATECORE_CATALOG=\nspark.executorEnv.STATECORE_KAFKA_CLIENT=\n"
    )
    assert (mode(properties), mode(properties.parent)) == (0o600, 0o700)
    assert list(properties.parent.iterdir()) == [properties]


def test_one_that_replaces_a_file_which_all_may_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("old")
    write_private(file, "new")
    assert (file.read_text(), mode(file)) == ("new", 0o600)
