"""How long the steps of a change wait in a test of one that waits in vain."""

from __future__ import annotations

import pytest

from statecore.operations.changes import STEPS
from tests.support.waiting import PATIENCE_S


def only_impatient(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Leave one step the time that its caller gives it, however short; the others take as long as the machine needs."""
    for each in STEPS.values():
        if each.name != step:
            monkeypatch.setattr(each, "patience_ms", lambda _: int(PATIENCE_S * 1000))
