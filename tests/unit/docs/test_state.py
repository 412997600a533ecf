"""docs/state.md: every Python block on it runs, and says by an assert what is true."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.paths import REPO

PAGE = (REPO / "docs" / "state.md").read_text()
IMPORTS, *EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def _run(*blocks: str) -> None:
    namespace: dict[str, Any] = {"__name__": "docs_state"}
    for block in blocks:
        exec(compile(block, "docs/state.md", "exec"), namespace)


def _heading(example: str) -> str:
    return re.findall(r"^#+ (.*)", PAGE[: PAGE.index(example)], re.MULTILINE)[-1]


def test_the_first_block_are_the_imports_that_the_others_share() -> None:
    assert f"<!-- imports -->\n```python\n{IMPORTS}```" in PAGE
    _run(IMPORTS)


@pytest.mark.parametrize("example", EXAMPLES, ids=_heading)
def test_every_example_runs_with_the_imports_alone(example: str) -> None:
    _run(IMPORTS, example)


@pytest.mark.parametrize("example", EXAMPLES, ids=_heading)
def test_every_example_claims_something(example: str) -> None:
    assert re.search(r"^ *assert ", example, re.MULTILINE)


def test_no_import_is_without_use() -> None:
    names = re.findall(r"^    (\w+),$|\bimport ([\w, ]+)$", IMPORTS, re.MULTILINE)
    for name in (name for found in names for name in ",".join(found).split(",") if name.strip()):
        assert any(re.search(rf"\b{name.strip()}\b", example) for example in EXAMPLES), name


def test_every_example_file_that_is_named_exists() -> None:
    for path in re.findall(r"`((?:examples|statecore|tests)/[\w/]+\.py)`", PAGE):
        assert (REPO / path).is_file(), path
