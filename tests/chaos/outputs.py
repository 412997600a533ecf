"""What the sinks of a run have, lineage by lineage, and what they lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from statecore.storage import open_store
from tests.chaos.alone import SINKS, Alone, Rows
from tests.chaos.lineages import Lineages


class Expected:
    """What a lineage has to publish: the rows of its own epochs.

    Args:
        lineages: All.
        lineage: This one.

    """

    def __init__(self, lineages: Lineages, lineage: int) -> None:
        own = lineages.own(lineage)
        self._first, self._last = own[0].epoch, own[-1].epoch
        self._may_lack_last = (lineage, self._last) in lineages.unpublished
        nothing: dict[str, Rows] = {sink: Counter() for sink in SINKS}
        self._before = self._until_last = self._all = nothing

    def after(self, epoch: int, alone: Alone) -> None:
        """Note what the job alone has published after an epoch; call it for each, in order."""
        # To count all rows anew after each epoch would take longer than to make them.
        if epoch not in (self._first - 1, self._last - 1, self._last):
            return
        self._all = alone.published()
        if epoch == self._first - 1:
            self._before = self._until_last = self._all
        elif epoch == self._last - 1:
            self._until_last = self._all

    def of(self, sink: str) -> list[Rows]:
        """Return what a sink may have: an epoch that was left behind unpublished may stay so."""
        whole = self._all[sink] - self._before[sink]
        return [whole, self._until_last[sink] - self._before[sink]] if self._may_lack_last else [whole]


@dataclass
class Tally:
    """How the sinks differ from what they should have.

    Attributes:
        lost: Rows that they lack.
        doubled: Rows that they have too many.
        differences: The same for people.

    """

    lost: int = 0
    doubled: int = 0
    differences: list[str] = field(default_factory=list)

    def compare(self, sinks: Mapping[str, str], expected: Mapping[int, Expected]) -> None:
        """Compare sinks, whose folders' URLs are given by their names, with what each lineage has to publish."""
        for sink in SINKS:
            for lineage in sorted({*expected, *_lineages_in(sinks[sink])}):
                allowed = expected[lineage].of(sink) if lineage in expected else [Counter()]
                self._compare(f"sink {sink!r}, lineage {lineage}", published(sinks[sink], lineage), allowed)

    def _compare(self, where: str, found: Rows, allowed: Iterable[Rows]) -> None:
        differences = [(rows - found, found - rows) for rows in allowed]
        missing, surplus = min(differences, key=lambda each: each[0].total() + each[1].total())
        if missing or surplus:
            self.differences.append(f"rows of {where}: too many {few(surplus)}, missing {few(missing)}")
        self.lost += missing.total()
        self.doubled += surplus.total()


def published(url: str, lineage: int) -> Rows:
    """Return a sink's rows of a lineage, as a reader of its folder sees them."""
    store = open_store(url)
    rows: Rows = Counter()
    for entry in store.list(f"lineage={lineage}"):
        with store.open_input(entry.path) as file:
            rows.update(tuple(row.values()) for row in pq.ParquetFile(file).read().to_pylist())
    return rows


def _lineages_in(url: str) -> set[int]:
    parent, _, name = url.rpartition("/")
    found = (folder.rpartition("/")[2] for folder in open_store(parent).folders(name))
    return {int(folder.removeprefix("lineage=")) for folder in found if folder.startswith("lineage=")}


def few(rows: Counter[Any]) -> str:
    return f"{rows.total()} {list(rows.items())[:5]}"
