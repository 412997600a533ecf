"""The arithmetic in docs/performance.md is what the benchmark computes from the figures beside it."""

from __future__ import annotations

import msgspec

from benchmarks.unit_costs import Cluster, UnitCosts, projected
from tests.support.paths import REPO

PAGE = REPO / "docs" / "performance.md"


def tables() -> list[list[tuple[str, ...]]]:
    """Return the tables below the last heading, row by row, without their heads."""
    text = PAGE.read_text().partition("## A terabyte")[2]
    found: list[list[tuple[str, ...]]] = []
    for block in text.split("\n\n"):
        rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in block.strip().splitlines()]
        if block.lstrip().startswith("|"):
            found.append(rows[2:])
    return found


def test_what_a_terabyte_comes_to_follows_from_the_unit_costs_that_are_shown() -> None:
    costs, arithmetic = tables()
    shown = {name.strip("`"): figure.split(" ")[0].replace(",", "") for name, figure, _ in costs}
    assert projected(msgspec.convert(shown, UnitCosts, strict=False), Cluster()) == arithmetic
