"""What a newcomer reads, and what every command has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from statecore.cli import app
from tests.support.paths import REPO
from tests.support.shell import run


def commands() -> Iterator[tuple[str, Any]]:
    def below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        for part, each in getattr(command, "commands", {}).items():
            yield from below(f"{name} {part}".strip(), each)
        if not hasattr(command, "commands"):
            yield name, command

    yield from below("", typer.main.get_command(app))


COMMANDS = dict(commands())


# Per DAG the commands that do the same.
AIRFLOW_ONLY: set[str] = set()
SAME_AS_DAG = {
    "alerts": AIRFLOW_ONLY,
    "autoscale": AIRFLOW_ONLY,
    "catch_up": AIRFLOW_ONLY,
    "rescale": {"plan", "rescale"},
    "rewrite": AIRFLOW_ONLY,
    "savepoints": {"savepoint create", "savepoint verify", "savepoint drop"},
    "start": {"start"},
    "stop": {"stop"},
    "upgrade": {"stop", "register", "start"},
}


def test_what_airflow_does_can_be_done_here_or_is_listed_as_airflows_alone() -> None:
    assert set(SAME_AS_DAG) == {file.stem for file in (REPO / "dags").glob("*.py")}
    assert set().union(*SAME_AS_DAG.values()) <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_and_what_each_option_is_for(name: str) -> None:
    command = COMMANDS[name]
    done = run(*name.split(), "--help")
    assert done.returncode == 0 and str(command.help).split(".")[0].split(":")[0][:40] in " ".join(done.stdout.split())
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: {parameter.name}"
    # For programs, too; the supervisor has nothing to tell them.
    assert ("--json" in {option for each in command.params for option in each.opts}) == (name != "supervisor")


def test_the_first_help_leads_to_the_first_steps() -> None:
    done = run("--help")
    told = " ".join(done.stdout.split())
    for part in ("STATECORE_CATALOG", "First steps", "status JOB", "Exit codes", "Inspect jobs", "Run jobs"):
        assert part in told


def test_the_documentation_lists_every_command() -> None:
    page = (REPO / "docs" / "commands.md").read_text()
    listed = re.findall(r"^\| `([a-z ]+?)(?: [A-Z|…].*?)?` \|", page, re.M)
    assert [name for name in COMMANDS if name not in listed] == []
