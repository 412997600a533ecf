"""Queries of Spark's own: read, copy, rescale and prove their checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statecore.queries.partitions import with_partitions

__all__ = ["with_partitions"]


def __getattr__(name: str) -> Any:
    """Import what is public on first use: much of this package needs no Spark."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from statecore.queries import partitions

    return getattr(partitions, name)
