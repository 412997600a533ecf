"""The files of `monitoring/`, read as Prometheus and Grafana do."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import yaml

from tests.support.paths import REPO

FOLDER = REPO / "monitoring"
RULES_FILE: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yml").read_text())
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())


class Rule(NamedTuple):
    name: str
    expression: str
    severity: str
    runbook: str
    summary: str
    lasts: str | None
    keeps: str | None


RULES = [
    Rule(
        name=rule["alert"],
        expression=rule["expr"],
        severity=rule["labels"]["severity"],
        runbook=rule["annotations"]["runbook"],
        summary=rule["annotations"]["summary"],
        lasts=rule.get("for"),
        keeps=rule.get("keep_firing_for"),
    )
    for group in RULES_FILE["groups"]
    for rule in group["rules"]
]
QUERIES = [
    # Grafana fills these in before it asks.
    target["expr"].replace("$__rate_interval", "5m").replace("$job_name", ".*")
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
LEGENDS = " ".join(t["legendFormat"] for panel in DASHBOARD["panels"] for t in panel.get("targets", ()))
