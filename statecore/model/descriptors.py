"""State descriptors: name, type and time to live of one piece of state, checked when they are built."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

import pyarrow as pa

from statecore.errors import ConfigurationError
from statecore.model.key_groups import is_integer
from statecore.model.redistribution import CONTIGUOUS, INTERLEAVED
from statecore.model.ttl import MAX_TIMESTAMP_MS
from statecore.model.types import Field, parse_row, parse_type, require_key_type


class StateKind(StrEnum):
    """What a state holds."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


class UpdateType(StrEnum):
    """Which accesses start the time to live anew."""

    DISABLED = "disabled"
    ON_CREATE_AND_WRITE = "on_create_and_write"
    ON_READ_AND_WRITE = "on_read_and_write"


class StateVisibility(StrEnum):
    """Whether a read may return an expired value that has not been removed yet."""

    NEVER_RETURN_EXPIRED = "never_return_expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return_expired_if_not_cleaned_up"


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """How long state lives, in the epoch's time.

    Attributes:
        ttl: Time to live, at least one millisecond; ``timedelta.max`` stands for the longest there is.
        update_type: Which accesses start it anew; ``DISABLED`` is no time to live at all.
        visibility: Whether an expired value may be read once more.
        cleanup_full_snapshot: Leave expired state out of snapshots.
        cleanup_incremental: ``(size, for every record)``: check that many keys at each state access, and also for
            every record when the second is true.

    Raises:
        ConfigurationError: a setting is out of bounds.

    """

    ttl: timedelta
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup_full_snapshot: bool = False
    cleanup_incremental: tuple[int, bool] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ttl, timedelta) or self.ttl < timedelta(milliseconds=1):
            raise ConfigurationError(
                f"Found the time to live {self.ttl!r}; expected a timedelta of at least one millisecond. "
                "For state that never expires leave the descriptor's ttl out."
            )
        _check_member("update_type", self.update_type, UpdateType)
        _check_member("visibility", self.visibility, StateVisibility)
        if not isinstance(self.cleanup_full_snapshot, bool):
            raise ConfigurationError(
                f"Found cleanup_full_snapshot={self.cleanup_full_snapshot!r}; expected True or False. Pass a bool."
            )
        if self.cleanup_incremental is not None:
            _check_incremental(self.cleanup_incremental)

    @property
    def enabled(self) -> bool:
        """Tell whether there is a time to live."""
        return self.update_type is not UpdateType.DISABLED

    @property
    def ttl_ms(self) -> int:
        """The time to live in whole milliseconds."""
        return MAX_TIMESTAMP_MS if self.ttl == timedelta.max else self.ttl // timedelta(milliseconds=1)


class AggregateFunction(ABC):
    """How an aggregating state folds values into an accumulator, as in Flink."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return an empty accumulator, of the descriptor's ``accumulator_type``."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with ``value`` folded in."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return what a reader of the state gets."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """Return one accumulator for two."""

    def add_batch(self, values: pa.Array, accumulators: pa.Array, index: pa.Array) -> pa.Array | None:
        """Return the accumulators with many values folded in, to what ``add`` would give value by value.

        Args:
            values: What is added, without nulls.
            accumulators: One for each key, of the descriptor's ``accumulator_type``.
            index: For each value the position of its accumulator, bigint; each position is there at least once.

        Returns:
            The accumulators in their order, or None to have ``add`` called for every value.

        """
        return None


class StateDescriptor(ABC):
    """What all descriptors share: a name, a kind, a canonical type and a time to live."""

    __slots__ = ()

    name: str
    ttl: StateTtlConfig | None
    renames: Mapping[str, str]

    @property
    @abstractmethod
    def kind(self) -> StateKind:
        """What the state holds."""

    @abstractmethod
    def type_ddl(self) -> str:
        """Return the canonical DDL of what is stored: equal for equal types, however they were spelled."""


@dataclass(frozen=True, slots=True)
class ValueStateDescriptor(StateDescriptor):
    """One value.

    Attributes:
        name: Its name, of letters, digits and ``_ . -``, since files are named after it.
        value_type: Spark DDL.
        ttl: Its time to live.
        renames: Fields renamed since older state was written, old dotted path to new name; see ``StateMigrationError``.

    Raises:
        ConfigurationError: a name, a setting or (UnsupportedTypeError) a type is wrong.

    """

    name: str
    value_type: str
    ttl: StateTtlConfig | None = None
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def kind(self) -> StateKind:
        """Value."""
        return StateKind.VALUE

    def type_ddl(self) -> str:
        """Return the canonical value type."""
        return parse_type(self.value_type).ddl()


@dataclass(frozen=True, slots=True)
class ListStateDescriptor(StateDescriptor):
    """A list of elements.

    Attributes:
        name: Its name, of letters, digits and ``_ . -``, since files are named after it.
        element_type: Spark DDL.
        ttl: Its time to live.
        renames: Fields renamed since older state was written, old dotted path to new name; see ``StateMigrationError``.
        strategy: How a split list of an operator is cut at a rescale, ``contiguous`` or ``interleaved``.

    Raises:
        ConfigurationError: a name, a setting or (UnsupportedTypeError) a type is wrong.

    """

    name: str
    element_type: str
    ttl: StateTtlConfig | None = None
    strategy: str = CONTIGUOUS
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        if self.strategy not in (CONTIGUOUS, INTERLEAVED):
            raise ConfigurationError(
                f"Found the strategy {self.strategy!r} for the list state {self.name!r}; expected "
                f"{CONTIGUOUS!r} "
                f"or {INTERLEAVED!r}. Leave it out for {CONTIGUOUS!r}."
            )

    @property
    def kind(self) -> StateKind:
        """List."""
        return StateKind.LIST

    def type_ddl(self) -> str:
        """Return the canonical element type."""
        return parse_type(self.element_type).ddl()


@dataclass(frozen=True, slots=True)
class MapStateDescriptor(StateDescriptor):
    """A map from user keys to values.

    Attributes:
        name: Its name, of letters, digits and ``_ . -``, since files are named after it.
        key_type: Spark DDL of a type that can be a key.
        value_type: Spark DDL.
        ttl: Its time to live, for each entry by itself.
        renames: Fields renamed since older state was written, old dotted path to new name; see ``StateMigrationError``.

    Raises:
        ConfigurationError: a name, a setting or (UnsupportedTypeError) a type is wrong.

    """

    name: str
    key_type: str
    value_type: str
    ttl: StateTtlConfig | None = None
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        require_key_type(parse_type(self.key_type))

    @property
    def kind(self) -> StateKind:
        """Map."""
        return StateKind.MAP

    def type_ddl(self) -> str:
        """Return the canonical map type."""
        return f"map<{parse_type(self.key_type).ddl()},{parse_type(self.value_type).ddl()}>"


@dataclass(frozen=True, slots=True)
class ReducingStateDescriptor(StateDescriptor):
    """One value that each added value is folded into.

    Attributes:
        name: Its name, of letters, digits and ``_ . -``, since files are named after it.
        value_type: Spark DDL.
        reduce: ``reduce(a, b)`` returns one value for two.
        ttl: Its time to live.
        renames: Fields renamed since older state was written, old dotted path to new name; see ``StateMigrationError``.

    Raises:
        ConfigurationError: a name, a setting or (UnsupportedTypeError) a type is wrong.

    """

    name: str
    value_type: str
    reduce: Callable[[Any, Any], Any] = field(kw_only=True)
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        if not callable(self.reduce):
            raise ConfigurationError(
                f"Found reduce={self.reduce!r} for the reducing state {self.name!r}; expected a function of "
                "two values. Pass reduce=lambda a, b: … ."
            )

    @property
    def kind(self) -> StateKind:
        """Reducing."""
        return StateKind.REDUCING

    def type_ddl(self) -> str:
        """Return the canonical value type."""
        return parse_type(self.value_type).ddl()


@dataclass(frozen=True, slots=True)
class AggregatingStateDescriptor(StateDescriptor):
    """One accumulator that each added value is folded into.

    Attributes:
        name: Its name, of letters, digits and ``_ . -``, since files are named after it.
        accumulator_type: Spark DDL of the accumulator, which is what is stored.
        aggregate: The function that folds.
        ttl: Its time to live.
        renames: Fields renamed since older state was written, old dotted path to new name; see ``StateMigrationError``.

    Raises:
        ConfigurationError: a name, a setting or (UnsupportedTypeError) a type is wrong.

    """

    name: str
    accumulator_type: str
    aggregate: AggregateFunction = field(kw_only=True)
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        if not isinstance(self.aggregate, AggregateFunction):
            raise ConfigurationError(
                f"Found aggregate={self.aggregate!r} for the aggregating state {self.name!r}; expected an "
                "instance of AggregateFunction. Subclass it, and pass an object, not the class."
            )

    @property
    def kind(self) -> StateKind:
        """Aggregating."""
        return StateKind.AGGREGATING

    def type_ddl(self) -> str:
        """Return the canonical accumulator type."""
        return parse_type(self.accumulator_type).ddl()


@dataclass(frozen=True, slots=True)
class OutputTag:
    """A side output.

    Attributes:
        name: Its name, of letters, digits and ``_ . -``, since files are named after it.
        value_type: Spark DDL: columns (``k string, total bigint``), a struct, or one type.

    Raises:
        ConfigurationError: the name or (UnsupportedTypeError) a type is wrong.

    """

    name: str
    value_type: str

    def __post_init__(self) -> None:
        _check_name(self.name, "side output")
        parse_row(self.value_type)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the side output."""
        return parse_row(self.value_type)


_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def _check_name(name: object, what: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", ".."):
        raise ConfigurationError(
            f"Found the {what} name {name!r}; expected letters, digits, '_', '.' and '-' only, and at least "
            "one, since files are named after it. Rename it."
        )


def _check(descriptor: StateDescriptor) -> None:
    _check_name(descriptor.name, "state")
    if descriptor.name.startswith("__"):
        raise ConfigurationError(
            f"Found the state name {descriptor.name!r}; expected one that does not begin with '__', which is kept for "
            "state of the library itself. Rename it."
        )
    if descriptor.ttl is not None and not isinstance(descriptor.ttl, StateTtlConfig):
        raise ConfigurationError(
            f"Found ttl={descriptor.ttl!r} for the state {descriptor.name!r}; expected a StateTtlConfig. "
            "Wrap it: StateTtlConfig(ttl=timedelta(…))."
        )
    descriptor.type_ddl()  # reads every type of the descriptor, and refuses what it cannot hold


def _check_member(setting: str, value: object, enum: type[StrEnum]) -> None:
    if not isinstance(value, enum):
        raise ConfigurationError(
            f"Found {setting}={value!r}; expected one of {[member.name for member in enum]}. "
            f"Pass a member of {enum.__name__}."
        )


def _check_incremental(setting: object) -> None:
    if not (
        isinstance(setting, tuple)
        and len(setting) == 2
        and is_integer(setting[0])
        and setting[0] >= 0
        and isinstance(setting[1], bool)
    ):
        raise ConfigurationError(
            f"Found cleanup_incremental={setting!r}; expected (keys to check per access, also for every "
            "record), an integer >= 0 and a bool. Pass for example (5, False)."
        )
