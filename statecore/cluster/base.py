"""The Protocol of a resizable cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Size of a cluster in workers.

    Attributes:
        running: All workers, including those starting or stopping.
        ready: Workers that the Spark master reports as alive.
        smallest: Fewest workers that the cluster allows; None without such a limit.
        largest: Most workers; None without such a limit.

    """

    running: int
    ready: int
    smallest: int | None = None
    largest: int | None = None


class Cluster(Protocol):
    """A resizable set of Spark workers."""

    @property
    def is_local(self) -> bool:
        """Whether the workers are processes on the host of the program that resizes them."""

    def size(self) -> ClusterSize:
        """Return the current size; ClusterError when it is unknown, ClusterBusyError for a while."""

    def resize(self, workers: int) -> None:
        """Take the next step towards a number of workers and return at once; repeat until ``size`` agrees.

        Raises:
            ClusterError: Workers cannot be started or stopped.
            ClusterBusyError: Not now; a later attempt may succeed.

        """

    def close(self) -> None:
        """Release this object's resources; the workers stay."""


class ClusterDefinition(Protocol):
    """Name, kind and settings of a cluster, as the catalog records them."""

    @property
    def name(self) -> str:
        """Name of the cluster."""

    @property
    def kind(self) -> str:
        """Kind of the cluster."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings for the kind's settings class."""
