"""The dashboard and the alert rules: they are well-formed, and all that they ask for is exported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import promql_parser as promql
import pytest

from statecore.operations.status.finding import Alert
from statecore.operations.status.measures import JOB_MEASURES
from tests.support.monitoring import DASHBOARD, LEGENDS, QUERIES, RULES, RULES_FILE
from tests.support.paths import REPO
from tests.unit.operations.supervising.test_telemetry import Series, catalog, full_scrape, telemetry

__all__ = ["catalog", "full_scrape", "telemetry"]

EXPRESSIONS = [rule.expression for rule in RULES] + QUERIES


def selectors(expression: Any) -> Iterator[promql.VectorSelector]:
    """Yield each selector of a parsed query."""
    if isinstance(expression, promql.VectorSelector):
        yield expression
    for part in ("lhs", "rhs", "expr", "vector_selector", "param"):
        yield from selectors(getattr(expression, part)) if getattr(expression, part, None) is not None else ()
    for argument in getattr(expression, "args", None) or ():
        yield from selectors(argument)


def test_each_query_asks_for_exported_metrics_and_labels(full_scrape: Series) -> None:
    labels: dict[str, set[str]] = {}
    for name, of in full_scrape:
        labels.setdefault(name, set()).update(label for label, _ in of)
    for name in re.findall(r"{{(\w+)}}", LEGENDS):
        assert any(name in known for known in labels.values()) or name == "instance", name
    for expression in EXPRESSIONS:
        found = list(selectors(promql.parse(expression)))
        assert found, expression
        for each in found:
            assert each.name in labels, expression
            assert {matcher.name for matcher in each.matchers.matchers} <= labels[each.name], expression


@pytest.mark.parametrize("alert", [each for each in Alert if each is not Alert.SUPERVISOR_DEAD])
def test_each_alert_of_a_job_has_a_rule_that_selects_it(alert: Alert) -> None:
    (rule,) = (rule for rule in RULES if rule.runbook.endswith(f" {alert}"))
    assert rule.expression == f'statecore_job_alert_firing{{alert="{alert}"}} == 1'


def test_rules_have_what_prometheus_wants_and_no_more() -> None:
    assert set(RULES_FILE) == {"groups"}
    assert len({group["name"] for group in RULES_FILE["groups"]}) == len(RULES_FILE["groups"])
    for group in RULES_FILE["groups"]:
        assert set(group) == {"name", "rules"}
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= set(rule) <= {
                "alert", "expr", "labels", "annotations", "for", "keep_firing_for",
            }  # fmt: skip
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule.lasts is None or promql.parse_duration(rule.lasts)


def test_the_dashboard_shows_every_metric_of_a_job_but_those_that_only_name_things() -> None:
    shown = {re.sub(r"_(seconds|bytes|total)$", "", name) for name in re.findall(r"statecore_\w+", " ".join(QUERIES))}
    assert {each.name.replace(".", "_") for each in JOB_MEASURES} - shown == {
        "statecore_job_epoch", "statecore_job_lineage", "statecore_job_max_parallelism", "statecore_job_backlog_size",
    }  # fmt: skip


def test_the_panels_of_the_dashboard_have_their_own_place_and_ask_the_chosen_source() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    for one, other in combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert apart or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
    for panel in panels:
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["title"] and panel["description"] and panel["targets"]
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert set(variables) == {"datasource", "job_name"}
    used = set(re.findall(r"\$(?!__)(\w+)", " ".join(t["expr"] for p in panels for t in p.get("targets", ()))))
    assert used == {"job_name"}


def test_each_exported_metric_is_in_the_documentation_and_none_besides(full_scrape: Series) -> None:
    page = (REPO / "docs" / "monitoring.md").read_text()
    rows = "".join(re.findall(r"^\| (`statecore_.*?) \|", page, re.MULTILINE))
    exported = {
        re.sub(r"_(bucket|sum|count|created)$", "", name) for name, _ in full_scrape if "target_info" not in name
    }
    assert set(re.findall(r"`(statecore_\w+)`", rows)) == exported
