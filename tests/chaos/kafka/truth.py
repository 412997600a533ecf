"""What the topic has, compared with what the job was fed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable

from stack.kafka import Record
from tests.chaos.outputs import few
from tests.chaos.truth import Verdict

Row = tuple[str, int, int]
"""Key, number, and how many records of its key the job had seen with it."""


class Numbered:
    """Records by key, numbered, in the order in which a ``read_committed`` consumer sees them.

    Attributes:
        fed: How many records the job was fed.
        found: How many the topic has.

    """

    def __init__(self) -> None:
        self._expected, self._found = Counter[Row](), Counter[Row]()
        self._fed_of, self._last_of = Counter[str](), dict[str, Row]()
        self._partition_of: dict[str, int] = {}
        self._disorder: list[str] = []

    @property
    def fed(self) -> int:
        return self._expected.total()

    @property
    def found(self) -> int:
        return self._found.total()

    def feed(self, records: Iterable[tuple[str, int]]) -> None:
        """Note what the job is fed."""
        for k, n in records:
            self._fed_of[k] += 1
            self._expected[k, n, self._fed_of[k]] += 1

    def find(self, records: Iterable[Record]) -> None:
        """Note what the topic has."""
        for record in records:
            value = json.loads(record.value or b"null")
            row = value["k"], value["n"], value["seen"]
            k = (record.key or b"").decode()
            self._found[row] += 1
            last = self._last_of.get(k)
            if k != row[0] or (last is not None and last[2] >= row[2]):
                self._disorder.append(f"record {row} of key {k!r} follows on {last}")
            if self._partition_of.setdefault(k, record.partition) != record.partition:
                self._disorder.append(f"key {k!r} is in partitions {self._partition_of[k]} and {record.partition}")
            self._last_of[k] = row

    def verdict(self) -> Verdict:
        """Compare both as multisets, and tell where the order of a key is broken."""
        missing, surplus = self._expected - self._found, self._found - self._expected
        differences = list[str]()
        if missing or surplus:
            differences.append(f"records of the topic: too many {few(surplus)}, missing {few(missing)}")
        if self._disorder:
            differences.append(f"{len(self._disorder)} times the order of a key is broken: {self._disorder[:5]}")
        return Verdict(differences, missing.total(), surplus.total())
