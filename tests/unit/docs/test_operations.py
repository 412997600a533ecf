"""docs/operations.md quotes what the shell says, and describes every state that it shows."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from statecore.operations.status.job_status import DriverState
from tests.support.paths import REPO

PAGE = (REPO / "docs" / "operations.md").read_text()
SAID = "".join(
    path.read_text()
    for folder in ("cli", "operations", "catalog")
    for path in (REPO / "statecore" / folder).rglob("*.py")
)
SYMPTOMS = [row.split(" | ")[0] for row in re.findall(r"^\| (.* \| .*) \|$", PAGE, re.MULTILINE)]
QUOTED = [quoted for row in SYMPTOMS for quoted in re.findall(r'"([^"]+)"', row)]


def test_there_are_quotes() -> None:
    assert len(QUOTED) > 5


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_quoted_message_is_one_that_is_printed(quoted: str) -> None:
    # Without what a message fills in.
    for words in re.split(r"…|\d+|running", quoted):
        assert words.strip() in SAID, words


@pytest.mark.parametrize("state", get_args(DriverState))
def test_every_state_of_a_driver_is_named(state: str) -> None:
    assert f"`{state.upper()}`" in PAGE


def test_every_drill_stands_in_its_table() -> None:
    drills = (REPO / "tests" / "drills" / "drills.py").read_text()
    names = re.findall(r"Drill\(\s*\"(.+?)\",", drills)
    assert len(names) == 12
    table = PAGE.partition("## What you are sent, and what helps")[2].partition("\n## ")[0]
    assert [row.split(" | ")[0] for row in re.findall(r"^\| (.* \| .*) \|$", table, re.MULTILINE)[2:]] == names
