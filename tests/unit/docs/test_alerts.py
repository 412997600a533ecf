"""Each alert has an entry in the runbook, with its severity; so has each rule."""

from __future__ import annotations

import re

import promql_parser as promql
import pytest

from statecore.operations.status.alerts import RESOLVED_AFTER_MS, SUPERVISOR_DEAD_MS
from statecore.operations.status.alerts import RULES as HELD
from statecore.operations.status.finding import Alert
from statecore.operations.status.runbook import runbook
from statecore.operations.supervising.alert_loop import CLAIM_MS, INTERVAL_S
from tests.support.monitoring import RULES, Rule
from tests.support.paths import REPO

PAGE = (REPO / "docs" / "alerts.md").read_text()
ENTRIES = dict(re.findall(r"^## (\w+_\w+)\n\n\*\*(\w+)\.\*\*", PAGE, re.MULTILINE))


@pytest.mark.parametrize("alert", Alert)
def test_an_alert_has_an_entry_that_says_how_urgent_it_is(alert: Alert) -> None:
    assert ENTRIES[alert].lower() == HELD[alert].severity


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_of_prometheus_names_its_entry_and_is_as_urgent(rule: Rule) -> None:
    entry = rule.runbook.removeprefix("statecore explain ")
    assert ENTRIES[entry].lower() == rule.severity
    assert rule.name == "Statecore" + "".join(part.capitalize() for part in entry.split("_"))


def test_every_alert_has_a_rule_and_every_entry_is_one_of_them() -> None:
    assert set(Alert) < {rule.runbook.rpartition(" ")[2] for rule in RULES} == set(ENTRIES)


def test_the_package_has_the_page() -> None:
    assert set(runbook()) == set(ENTRIES)
    words = {name: re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", PAGE) for name in ENTRIES}
    assert all(text in words[name] for name, text in runbook().items())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_prometheus_and_the_webhook_wait_alike(rule: Rule) -> None:
    alert = rule.runbook.rpartition(" ")[2]
    if "statecore_job_alert_firing" in rule.expression:
        lasts_ms = promql.parse_duration(rule.lasts).total_seconds() * 1000 if rule.lasts else 0
        assert lasts_ms == HELD[Alert(alert)].sent_after_ms
        assert rule.keeps == f"{RESOLVED_AFTER_MS // 1000}s"


def test_the_intervals_are_the_ones_in_force() -> None:
    assert "Each loop looks every ten seconds" in PAGE and INTERVAL_S == 10
    assert "could not deliver is sent again after a minute" in PAGE.replace("\n", " ") and CLAIM_MS == 60_000
    assert "is resolved after half a minute without it" in PAGE.replace("\n", " ") and RESOLVED_AFTER_MS == 30_000
    assert "has sent no heartbeat for a minute" in PAGE and SUPERVISOR_DEAD_MS == 60_000
