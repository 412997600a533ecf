"""State handles: frozen references to pieces of state in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from statecore.errors import RedistributionError
from statecore.model.key_groups import KeyGroupRange, is_integer


class DistributionMode(StrEnum):
    """How a rescale redistributes operator state: Flink's three modes."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """The elements of one operator state in one file.

    Attributes:
        mode: Distribution mode of the state.
        offsets: Address of each element in the file, in list order; a broadcast map is one element.

    Raises:
        RedistributionError: The mode is unknown, or an offset is not an integer >= 0.

    """

    mode: DistributionMode
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.mode, DistributionMode):
            raise RedistributionError(
                f"found the distribution mode {self.mode!r}; expected one of "
                f"{[str(mode) for mode in DistributionMode]} as a DistributionMode; wrap it: DistributionMode(text)"
            )
        object.__setattr__(self, "offsets", tuple(self.offsets))
        bad = [offset for offset in self.offsets if not is_integer(offset) or offset < 0]
        if bad:
            raise RedistributionError(
                f"found the offsets {bad!r}; expected integers >= 0; the handle does not come from a "
                "snapshot; read it again from its manifest"
            )


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    """A file with operator state of one subtask.

    Attributes:
        path: Path of the file, relative to the store.
        states: State name → elements; copied and made immutable.

    Raises:
        RedistributionError: The path is not a non-empty string, or a state is not ``StatePartitions``.

    """

    path: str
    states: Mapping[str, StatePartitions] = field(hash=False)

    def __post_init__(self) -> None:
        _check_path(self.path)
        bad = {name: p for name, p in self.states.items() if not isinstance(p, StatePartitions)}
        if bad:
            raise RedistributionError(
                f"found {bad!r} among the states of the handle {self.path!r}; expected StatePartitions; "
                "build them as StatePartitions(mode, offsets)"
            )
        object.__setattr__(self, "states", MappingProxyType(dict(self.states)))

    def __reduce__(self) -> tuple[type[OperatorStateHandle], tuple[str, dict[str, StatePartitions]]]:
        # Handles are sent to Spark's workers, and a mapping proxy cannot be pickled.
        return OperatorStateHandle, (self.path, dict(self.states))


@dataclass(frozen=True, slots=True)
class KeyedStateHandle:
    """The key groups that a subtask reads from a file with keyed state.

    Attributes:
        path: Path of the file, relative to the store.
        key_groups: Key groups to read.

    Raises:
        RedistributionError: The path is not a non-empty string, or the key groups are not a ``KeyGroupRange``.

    """

    path: str
    key_groups: KeyGroupRange

    def __post_init__(self) -> None:
        _check_path(self.path)
        if not isinstance(self.key_groups, KeyGroupRange):
            raise RedistributionError(
                f"found the key groups {self.key_groups!r} in the handle {self.path!r}; expected a KeyGroupRange; "
                "build it as KeyGroupRange(start, end), both inclusive"
            )


def _check_path(path: object) -> None:
    if not isinstance(path, str) or not path:
        raise RedistributionError(
            f"found the path {path!r} in a state handle; expected a non-empty string; "
            "name the file relative to the store"
        )
