"""Each alert has an entry in the runbook, with its severity."""

from __future__ import annotations

import re

import pytest

from statecore.operations.advice import Alert
from statecore.operations.alerts import SEVERITY
from tests.support.paths import REPO

PAGE = (REPO / "docs" / "alerts.md").read_text()
ENTRIES = dict(re.findall(r"^## (\w+_\w+)\n\n\*\*(\w+)\.\*\*", PAGE, re.MULTILINE))


@pytest.mark.parametrize("alert", Alert)
def test_an_alert_has_an_entry_that_says_how_urgent_it_is(alert: Alert) -> None:
    assert ENTRIES[alert].lower() == SEVERITY[alert]


def test_every_entry_is_an_alert() -> None:
    assert set(ENTRIES) == set(Alert)
