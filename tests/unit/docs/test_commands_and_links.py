"""Every command and every link in the documentation leads somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from statecore.cli import app
from tests.support.paths import REPO

PAGES = [*sorted(REPO.glob("*.md")), *sorted(REPO.glob("docs/**/*.md"))]
PLACEHOLDERS = {"JOB": "orders", "STORE…": "store", "…": "logs"}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield (page, arguments) of everything that is shown as a command of ours, options in square brackets aside."""
    for page in PAGES:
        text = page.read_text().replace("\\\n", " ")
        for line in re.findall(r"^(?:    )?python -m statecore (.*)$", text, re.MULTILINE):
            yield page.name, shlex.split(line.rstrip("& "), comments=True)


@pytest.mark.parametrize(("page", "arguments"), list(commands()))
def test_the_command_line_takes_every_command_that_is_shown(
    page: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATECORE_CATALOG", "sqlite:///catalog.db")
    command = typer.main.get_command(app)
    given = [PLACEHOLDERS.get(each, each) for each in arguments]
    while given and given[0] in getattr(command, "commands", {}):
        command = command.commands[given.pop(0)]  # type: ignore[attr-defined]
    assert not hasattr(command, "commands"), f"{page}: {arguments}"
    command.make_context("statecore", given)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path) if path else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target
