"""State handles: where a piece of state lies. Frozen values, so that they cannot drift in mid-rescale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from statecore.errors import RedistributionError
from statecore.model.key_groups import KeyGroupRange, is_integer


class DistributionMode(StrEnum):
    """How operator state is spread over the subtasks after a restore."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The elements of one operator state in one file.

    Attributes:
        mode: How they are redistributed.
        offsets: Address of each element in the file, in list order; a broadcast map is one element.

    Raises:
        RedistributionError: an unknown mode, or an offset that is not an integer >= 0.

    """

    mode: DistributionMode
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.mode, DistributionMode):
            raise RedistributionError(
                f"Found the distribution mode {self.mode!r}; expected one of "
                f"{[str(mode) for mode in DistributionMode]} as a DistributionMode. Wrap it: "
                "DistributionMode(text)."
            )
        object.__setattr__(self, "offsets", tuple(self.offsets))
        bad = [offset for offset in self.offsets if not is_integer(offset) or offset < 0]
        if bad:
            raise RedistributionError(
                f"Found the offsets {bad!r}; expected integers >= 0. The handle does not come from a "
                "snapshot; read it again from its manifest."
            )


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    """A file with operator state of one subtask.

    Attributes:
        path: The file, relative to the store.
        states: Elements per state name; copied, and immutable from then on.

    Raises:
        RedistributionError: the path is not a non-empty string, or a state is not ``StatePartitions``.

    """

    path: str
    states: Mapping[str, StatePartitions] = field(hash=False)

    def __post_init__(self) -> None:
        _check_path(self.path)
        bad = {name: p for name, p in self.states.items() if not isinstance(p, StatePartitions)}
        if bad:
            raise RedistributionError(
                f"Found {bad!r} among the states of the handle {self.path!r}; expected StatePartitions. "
                "Build them as StatePartitions(mode, offsets)."
            )
        object.__setattr__(self, "states", MappingProxyType(dict(self.states)))

    def __reduce__(self) -> tuple[type[OperatorStateHandle], tuple[str, dict[str, StatePartitions]]]:
        # A mapping proxy can be neither pickled nor copied, and handles travel to Spark's workers.
        return OperatorStateHandle, (self.path, dict(self.states))


@dataclass(frozen=True, slots=True)
class KeyedStateHandle:
    """The part of a file with keyed state that a subtask is to read.

    Attributes:
        path: The file, relative to the store.
        key_groups: The key groups to read from it.

    Raises:
        RedistributionError: the path is not a non-empty string, or the key groups are not a
            ``KeyGroupRange``.

    """

    path: str
    key_groups: KeyGroupRange

    def __post_init__(self) -> None:
        _check_path(self.path)
        if not isinstance(self.key_groups, KeyGroupRange):
            raise RedistributionError(
                f"Found the key groups {self.key_groups!r} in the handle {self.path!r}; expected a "
                "KeyGroupRange. "
                "Build it as KeyGroupRange(start, end), both inclusive."
            )


def _check_path(path: object) -> None:
    if not isinstance(path, str) or not path:
        raise RedistributionError(
            f"Found the path {path!r} in a state handle; expected a non-empty string. "
            "Name the file relative to the store."
        )
