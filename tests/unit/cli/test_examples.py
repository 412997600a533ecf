"""``examples``: those of the package, to be copied and changed."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import REPO
from tests.support.shell import assert_refused, run

FILES = {path.name for path in (REPO / "examples").iterdir() if path.suffix in (".py", ".ipynb")} - {"__init__.py"}


def test_all_are_listed_with_what_they_show() -> None:
    shown = json.loads(run("examples", "list", "--json").stdout)
    assert {Path(name).stem for name in FILES} == set(shown) and all(shown.values())
    assert shown["shape_rules"].startswith("Finds pairs of items of one color")
    assert "order_totals" in run("examples", "list").stdout


@pytest.mark.parametrize("file", sorted(FILES))
def test_one_is_copied_as_it_is(file: str, tmp_path: Path) -> None:
    done = run("examples", "copy", Path(file).stem, tmp_path / "new")
    assert done.stdout == f"{tmp_path / 'new' / file}\n"
    copied = (tmp_path / "new" / file).read_text()
    assert copied == (REPO / "examples" / file).read_text()
    # Alone it must run: it may need the package, and no other file of the checkout.
    assert "from examples" not in copied.replace("from examples.over_from", "")


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "shape_rules.py").write_text("mine")
    assert_refused(run("examples", "copy", "shape_rules", tmp_path), "found a file at", "name another folder")
    assert (tmp_path / "shape_rules.py").read_text() == "mine"


def test_another_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    assert_refused(run("examples", "copy", "shapes", tmp_path), "found no example 'shapes'", "shape_rules")


def test_all_are_in_the_wheel() -> None:
    build = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"] == {f"examples/{name}": f"statecore/examples/{name}" for name in FILES}
    assert "examples" in build["sdist"]["only-include"]
