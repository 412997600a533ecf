"""`statecore explain`."""

from __future__ import annotations

import json

from statecore.operations.status.alerts import RULES
from statecore.operations.status.finding import Alert
from tests.support.shell import assert_refused, run


def test_an_alert_is_explained_as_on_its_page() -> None:
    done = run("explain", "crash_loop")
    assert done.stdout.startswith("crash_loop\n\n**Critical.** Two or more drivers failed in a row")
    assert "| source | see that it is there" in done.stdout and "](" not in done.stdout
    assert json.loads(run("explain", "crash_loop", "--json").stdout)["crash_loop"] in done.stdout


def test_without_a_name_all_are_listed_with_their_severity() -> None:
    lines = run("explain").stdout.splitlines()
    for alert in Alert:
        (line,) = (line for line in lines if f" {alert} " in line)
        assert f" {RULES[alert].severity} " in line


def test_a_name_that_is_no_alert_is_refused() -> None:
    assert_refused(run("explain", "crashed"), "found no alert 'crashed'", "crash_loop", "statecore explain")
