"""The contract of the tables over releases, on SQLite."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from statecore.catalog import Catalog, schema
from statecore.errors import CatalogError
from tests.contracts.catalog.schema import *
from tests.contracts.catalog.schema import run
from tests.support.paths import REPO


def test_revisions_follow_each_other_in_one_line_by_their_numbers() -> None:
    script = ScriptDirectory(str(schema.MIGRATIONS))
    line = [each.revision for each in script.walk_revisions()][::-1]
    assert line == [f"{number:04d}" for number in range(1, len(line) + 1)]
    assert script.get_current_head() == schema.head()


def test_the_package_has_its_revisions_with_it(tmp_path: Path) -> None:
    # Alembic finds them by their path, also by one with a character that means something to it.
    shutil.copytree(REPO / "statecore", tmp_path / "100%" / "statecore", ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import os, statecore.catalog as c\n"
        "assert c.__file__.startswith(os.getcwd()), c.__file__\n"
        "c.Catalog('sqlite:///' + os.getcwd() + '/c.db').create_schema()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "100%", capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(tmp_path / "100%")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_upgrade_that_fails_half_way_changes_nothing(empty_url: str) -> None:
    with Catalog(empty_url) as catalog:
        catalog.revision()  # makes the folder
        # In the way of one of the last tables.
        run(empty_url, "CREATE TABLE policies (other TEXT)")
        with pytest.raises(CatalogError, match="policies"):
            catalog.create_schema()
        assert catalog.revision() is None
        run(empty_url, "DROP TABLE policies")
        catalog.create_schema()
        assert catalog.jobs.all() == []
