"""Every figure of the catalog is explained."""

from __future__ import annotations

import dataclasses
import re

import pytest

from statecore.catalog import EpochRecord, KeyGroupsRecord, OperatorFigures, SourceBacklog, epochs
from statecore.runtime.backlog import monitor as backlog
from statecore.runtime.epoch import sampling
from tests.support.paths import REPO

PAGE = (REPO / "docs" / "metrics.md").read_text()


def part(heading: str) -> str:
    found = re.search(rf"^## {heading}.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[0]


@pytest.mark.parametrize(
    ("heading", "kind", "known"),
    [
        ("Backlog", SourceBacklog, {"name"}),
        ("Epochs", EpochRecord, set()),
        ("Subtasks", OperatorFigures, set()),
        ("Key groups", KeyGroupsRecord, {"job", "lineage", "epoch", "uid", "committed_ms"}),
    ],
)
def test_every_figure_stands_in_its_table(heading: str, kind: type, known: set[str]) -> None:
    rows = re.findall(r"^\| (`.*?) \|", part(heading), re.MULTILINE)
    explained = set(re.findall(r"`(\w+)`", " ".join(rows)))
    assert {field.name for field in dataclasses.fields(kind)} - known <= explained


def test_intervals_and_retention_are_the_ones_in_force() -> None:
    assert f"every {backlog.INTERVAL_S:g} seconds" in PAGE
    assert f"every {sampling.INTERVAL_S:g} seconds" in PAGE
    assert f"{epochs.KEPT_EPOCHS:,} epochs with" in PAGE
    assert f"{epochs.KEPT_SUBTASKS:,} epochs of subtasks, {epochs.KEPT_KEY_GROUPS} samples" in PAGE
    assert epochs.KEPT_BACKLOGS_MS == 24 * 3_600_000 and "one day" in PAGE
