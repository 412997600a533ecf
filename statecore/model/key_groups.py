"""Key groups: the units of keyed state, and the subtask that owns each.

The arithmetic is Flink's ``KeyGroupRangeAssignment``. With G key groups and parallelism p::

    range of subtask i   [ceil(i * G / p), ceil((i + 1) * G / p) - 1]
    owner of group g     floor(g * p / G)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from statecore.errors import InvalidParallelismError

MAX_KEY_GROUPS = 32768
"""Upper limit of max parallelism, as in Flink."""

_SMALLEST_DEFAULT = 128


@dataclass(frozen=True, slots=True)
class KeyGroupRange:
    """Contiguous key groups of one subtask.

    Attributes:
        start: First key group, inclusive.
        end: Last key group, inclusive.

    Raises:
        InvalidParallelismError: ``start`` is negative, or ``end`` is smaller than ``start``.

    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not (is_integer(self.start) and is_integer(self.end)) or not 0 <= self.start <= self.end:
            raise InvalidParallelismError(
                f"found the key-group range [{self.start!r}, {self.end!r}]; expected integers with "
                "0 <= start <= end (both inclusive); an empty range is written as None"
            )

    def __len__(self) -> int:
        return self.end - self.start + 1

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group <= self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def intersect(self, other: KeyGroupRange) -> KeyGroupRange | None:
        """Return the key groups both ranges hold, or None when they share none."""
        start, end = max(self.start, other.start), min(self.end, other.end)
        return KeyGroupRange(start, end) if start <= end else None


def default_max_parallelism(parallelism: int) -> int:
    """Return Flink's default max parallelism: the next power of two of 1.5 times the parallelism, 128 to 32768.

    Raises:
        InvalidParallelismError: ``parallelism`` is outside 1 … 32768.

    """
    check_parallelism(parallelism, MAX_KEY_GROUPS)
    wanted = parallelism + parallelism // 2
    next_power_of_two = 1 << (wanted - 1).bit_length()
    return min(max(next_power_of_two, _SMALLEST_DEFAULT), MAX_KEY_GROUPS)


def key_group_range(max_parallelism: int, parallelism: int, subtask: int) -> KeyGroupRange:
    """Return the key groups that ``subtask`` of ``parallelism`` owns.

    Raises:
        InvalidParallelismError: An argument is out of bounds.

    """
    check_max_parallelism(max_parallelism)
    check_parallelism(parallelism, max_parallelism)
    _check_index("subtask", subtask, parallelism)
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def subtask_for_key_group(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """Return the subtask that owns ``key_group``.

    Raises:
        InvalidParallelismError: An argument is out of bounds.

    """
    check_max_parallelism(max_parallelism)
    check_parallelism(parallelism, max_parallelism)
    _check_index("key group", key_group, max_parallelism)
    return key_group * parallelism // max_parallelism


def check_max_parallelism(max_parallelism: int, of: str = "") -> None:
    """Refuse a max parallelism outside 1 … 32768 with InvalidParallelismError."""
    if not is_integer(max_parallelism) or not 1 <= max_parallelism <= MAX_KEY_GROUPS:
        raise InvalidParallelismError(
            f"found max parallelism {max_parallelism!r}{of}; expected an integer, 1 to {MAX_KEY_GROUPS}; choose it "
            "once, above any parallelism that the job may ever need"
        )


def check_parallelism(parallelism: int, max_parallelism: int, of: str = "") -> None:
    """Refuse a parallelism outside 1 … ``max_parallelism`` with InvalidParallelismError."""
    if not is_integer(parallelism) or not 1 <= parallelism <= max_parallelism:
        raise InvalidParallelismError(
            f"found parallelism {parallelism!r}{of}; expected an integer, 1 to its max parallelism {max_parallelism}; "
            "lower it, or raise max parallelism with the method rewrite"
        )


def is_integer(value: object) -> bool:
    """Return whether ``value`` is an int but not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def _check_index(what: str, index: int, count: int) -> None:
    if not is_integer(index) or not 0 <= index < count:
        raise InvalidParallelismError(
            f"found {what} {index!r}; expected an integer from 0 to {count - 1}; "
            f"check that it belongs to the same parallelism and max parallelism"
        )
