"""Identifies a state store of a query."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_STORE = "default"


@dataclass(frozen=True, slots=True)
class StateStore:
    """One state store of a stateful operator, in all partitions.

    Attributes:
        operator: Number of the operator, which is the name of its folder below ``state``.
        name: Name of the store: ``default``, or for a join such as ``left-keyToNumValues``.
        partitions: Number of state partitions.
        prefix_columns: Number of leading key columns by which Spark scans; 0 where it does not.

    """

    operator: int
    name: str
    partitions: int
    prefix_columns: int = 0

    def folder(self, partition: int) -> str:
        """Return the folder of a partition's files, relative to the checkpoint."""
        folder = f"state/{self.operator}/{partition}"
        return folder if self.name == DEFAULT_STORE else f"{folder}/{self.name}"
