"""Descriptors of state that the library keeps for a window function, under names that no program can use."""

from __future__ import annotations

from statecore.model import ListStateDescriptor, ReducingStateDescriptor


class LibraryListState(ListStateDescriptor):
    """List state with a reserved name."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Allow the reserved name."""


class LibraryReducingState(ReducingStateDescriptor):
    """Reducing state with a reserved name."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Allow the reserved name."""
