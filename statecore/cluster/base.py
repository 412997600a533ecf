"""What every kind of cluster can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """How large a cluster is.

    Attributes:
        running: Workers there are, those that are starting or stopping included.
        ready: Workers that take work, as the Spark master says.

    """

    running: int
    ready: int


class Cluster(Protocol):
    """A number of Spark workers that can be changed."""

    def size(self) -> ClusterSize:
        """Return how large the cluster is now.

        Raises:
            ClusterError: It cannot be told, for example because the master does not answer.

        """
        ...

    def resize(self, workers: int) -> None:
        """Take the next step towards a number of workers and return at once; call it until ``size`` agrees.

        Raises:
            ClusterError: Workers cannot be started or stopped.

        """
        ...

    def close(self) -> None:
        """Let go of what this object holds; the workers stay."""
        ...


class ClusterDefinition(Protocol):
    """What a cluster is made from; the catalog's record of it is one."""

    @property
    def name(self) -> str:
        """Name of the cluster."""
        ...

    @property
    def kind(self) -> str:
        """Kind of the cluster."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of that kind."""
        ...
