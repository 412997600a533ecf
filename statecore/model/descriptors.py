"""State descriptors: name, type and TTL of a state, validated on construction."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

import pyarrow as pa

from statecore.errors import ConfigurationError
from statecore.model.key_groups import is_integer
from statecore.model.parsing import parse_row, parse_type
from statecore.model.redistribution import CONTIGUOUS, INTERLEAVED
from statecore.model.row_classes import row_ddl
from statecore.model.ttl import MAX_TIMESTAMP_MS
from statecore.model.types import Field, require_key_type


class StateKind(StrEnum):
    """The kind of a state."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


class UpdateType(StrEnum):
    """Accesses that restart the TTL, as in Flink."""

    DISABLED = "disabled"
    ON_CREATE_AND_WRITE = "on_create_and_write"
    ON_READ_AND_WRITE = "on_read_and_write"


class StateVisibility(StrEnum):
    """Whether a read may return an expired value that is not removed yet, as in Flink."""

    NEVER_RETURN_EXPIRED = "never_return_expired"
    RETURN_EXPIRED_IF_NOT_CLEANED_UP = "return_expired_if_not_cleaned_up"


@dataclass(frozen=True, slots=True)
class StateTtlConfig:
    """Time to live of state, measured in the epoch's time (its batch timestamp).

    Attributes:
        ttl: Time to live, at least one millisecond; ``timedelta.max`` means the longest possible.
        update_type: Accesses that restart the TTL; ``DISABLED`` turns the TTL off.
        visibility: Whether an expired value may be read once more.
        cleanup_full_snapshot: Leave expired state out of snapshots.
        cleanup_incremental: ``(size, for_every_record)``: check ``size`` keys at each state access, and also for every
            record if ``for_every_record``. None turns it off.

    Raises:
        ConfigurationError: A setting is out of bounds.

    """

    ttl: timedelta
    update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE
    visibility: StateVisibility = StateVisibility.NEVER_RETURN_EXPIRED
    cleanup_full_snapshot: bool = False
    cleanup_incremental: tuple[int, bool] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.ttl, timedelta) or self.ttl < timedelta(milliseconds=1):
            raise ConfigurationError(
                f"found the time to live {self.ttl!r}; expected a timedelta of at least one millisecond; "
                "for state that never expires, omit the descriptor's ttl"
            )
        _check_member("update_type", self.update_type, UpdateType)
        _check_member("visibility", self.visibility, StateVisibility)
        if not isinstance(self.cleanup_full_snapshot, bool):
            raise ConfigurationError(
                f"found cleanup_full_snapshot={self.cleanup_full_snapshot!r}; expected True or False; pass a bool"
            )
        if self.cleanup_incremental is not None:
            _check_incremental(self.cleanup_incremental)

    @property
    def enabled(self) -> bool:
        """Whether the TTL is on."""
        return self.update_type is not UpdateType.DISABLED

    @property
    def ttl_ms(self) -> int:
        """The time to live in whole milliseconds."""
        return MAX_TIMESTAMP_MS if self.ttl == timedelta.max else self.ttl // timedelta(milliseconds=1)


class AggregateFunction(ABC):
    """Folds values into an accumulator for aggregating state, as in Flink."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """Return an empty accumulator, of the descriptor's ``accumulator_type``."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Return the accumulator with ``value`` folded in."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """Return the result that ``get`` of the state returns."""

    @abstractmethod
    def merge(self, a: Any, b: Any) -> Any:
        """Merge two accumulators into one."""

    def add_batch(self, values: pa.Array, accumulators: pa.Array, index: pa.Array) -> pa.Array | None:
        """Fold in many values at once, with the same result as ``add`` value by value.

        Args:
            values: The values, without nulls.
            accumulators: One accumulator per key, of the descriptor's ``accumulator_type``.
            index: Position (bigint) of each value's accumulator; every position occurs at least once.

        Returns:
            The accumulators in their order, or None to call ``add`` for every value instead.

        """
        return None


class StateDescriptor(ABC):
    """Base of all descriptors: name, kind, canonical type and TTL."""

    __slots__ = ()

    kind: ClassVar[StateKind]
    name: str
    ttl: StateTtlConfig | None
    renames: Mapping[str, str]

    @abstractmethod
    def type_ddl(self) -> str:
        """Return the canonical DDL of the stored type: equal for equal types, whatever their spelling."""


@dataclass(frozen=True, slots=True)
class ValueStateDescriptor(StateDescriptor):
    """Describes value state: one value per key.

    Attributes:
        name: Name, of letters, digits and ``_ . -`` because files are named after it.
        value_type: Spark DDL.
        ttl: Time to live; None for none.
        renames: Old dotted path of a renamed field → its new name, to read older state; see ``StateMigrationError``.

    Raises:
        ConfigurationError: A name or setting is invalid, or (``UnsupportedTypeError``) a type.

    """

    kind: ClassVar[StateKind] = StateKind.VALUE
    name: str
    value_type: str
    ttl: StateTtlConfig | None = None
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)

    def type_ddl(self) -> str:
        """Return the canonical value type."""
        return parse_type(self.value_type).ddl()


@dataclass(frozen=True, slots=True)
class ListStateDescriptor(StateDescriptor):
    """Describes list state, keyed or of an operator.

    Attributes:
        name: Name, of letters, digits and ``_ . -`` because files are named after it.
        element_type: Spark DDL.
        ttl: Time to live; None for none.
        renames: Old dotted path of a renamed field → its new name, to read older state; see ``StateMigrationError``.
        strategy: How a rescale divides a split list of an operator: ``contiguous`` or ``interleaved``.

    Raises:
        ConfigurationError: A name or setting is invalid, or (``UnsupportedTypeError``) a type.

    """

    kind: ClassVar[StateKind] = StateKind.LIST
    name: str
    element_type: str
    ttl: StateTtlConfig | None = None
    strategy: str = CONTIGUOUS
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        if self.strategy not in (CONTIGUOUS, INTERLEAVED):
            raise ConfigurationError(
                f"found the strategy {self.strategy!r} for the list state {self.name!r}; expected {CONTIGUOUS!r} or "
                f"{INTERLEAVED!r}; omit it for {CONTIGUOUS!r}"
            )

    def type_ddl(self) -> str:
        """Return the canonical element type."""
        return parse_type(self.element_type).ddl()


@dataclass(frozen=True, slots=True)
class MapStateDescriptor(StateDescriptor):
    """Describes map state, keyed or broadcast.

    Attributes:
        name: Name, of letters, digits and ``_ . -`` because files are named after it.
        key_type: Spark DDL of a type that can be a key.
        value_type: Spark DDL.
        ttl: Time to live of each entry; None for none.
        renames: Old dotted path of a renamed field → its new name, to read older state; see ``StateMigrationError``.

    Raises:
        ConfigurationError: A name or setting is invalid, or (``UnsupportedTypeError``) a type.

    """

    kind: ClassVar[StateKind] = StateKind.MAP
    name: str
    key_type: str
    value_type: str
    ttl: StateTtlConfig | None = None
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        require_key_type(parse_type(self.key_type))

    def type_ddl(self) -> str:
        """Return the canonical map type."""
        return f"map<{parse_type(self.key_type).ddl()},{parse_type(self.value_type).ddl()}>"


@dataclass(frozen=True, slots=True)
class ReducingStateDescriptor(StateDescriptor):
    """Describes reducing state: one value per key, combined with each added value.

    Attributes:
        name: Name, of letters, digits and ``_ . -`` because files are named after it.
        value_type: Spark DDL.
        reduce: ``reduce(a, b)`` combines two values into one.
        ttl: Time to live; None for none.
        renames: Old dotted path of a renamed field → its new name, to read older state; see ``StateMigrationError``.

    Raises:
        ConfigurationError: A name or setting is invalid, or (``UnsupportedTypeError``) a type.

    """

    kind: ClassVar[StateKind] = StateKind.REDUCING
    name: str
    value_type: str
    reduce: Callable[[Any, Any], Any] = field(kw_only=True)
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        if not callable(self.reduce):
            raise ConfigurationError(
                f"found reduce={self.reduce!r} for the reducing state {self.name!r}; expected a function of "
                "two values; pass reduce=lambda a, b: …"
            )

    def type_ddl(self) -> str:
        """Return the canonical value type."""
        return parse_type(self.value_type).ddl()


@dataclass(frozen=True, slots=True)
class AggregatingStateDescriptor(StateDescriptor):
    """Describes aggregating state: one accumulator per key, which takes each added value.

    Attributes:
        name: Name, of letters, digits and ``_ . -`` because files are named after it.
        accumulator_type: Spark DDL of the accumulator, which is stored.
        aggregate: The aggregate function.
        ttl: Time to live; None for none.
        renames: Old dotted path of a renamed field → its new name, to read older state; see ``StateMigrationError``.

    Raises:
        ConfigurationError: A name or setting is invalid, or (``UnsupportedTypeError``) a type.

    """

    kind: ClassVar[StateKind] = StateKind.AGGREGATING
    name: str
    accumulator_type: str
    aggregate: AggregateFunction = field(kw_only=True)
    ttl: StateTtlConfig | None = field(default=None, kw_only=True)
    renames: Mapping[str, str] = field(default_factory=dict, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        if not isinstance(self.aggregate, AggregateFunction):
            raise ConfigurationError(
                f"found aggregate={self.aggregate!r} for the aggregating state {self.name!r}; expected an "
                "instance of AggregateFunction; subclass it, and pass an object, not the class"
            )

    def type_ddl(self) -> str:
        """Return the canonical accumulator type."""
        return parse_type(self.accumulator_type).ddl()


@dataclass(frozen=True, slots=True, init=False)
class OutputTag:
    """Names a side output and its type.

    Attributes:
        name: Name, of letters, digits and ``_ . -`` because files are named after it.
        value_type: Spark DDL: columns (``k string, total bigint``), a struct, or one type.

    Args:
        name: The name.
        value_type: The DDL, or a dataclass or NamedTuple that declares the columns.

    Raises:
        ConfigurationError: The name is invalid, or (``UnsupportedTypeError``) the type.

    """

    name: str
    value_type: str

    def __init__(self, name: str, value_type: str | type) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "value_type", row_ddl(value_type))
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
            f"found the {what} name {name!r}; expected letters, digits, '_', '.' and '-' only, and at least "
            "one, since files are named after it; rename it"
        )


def _check(descriptor: StateDescriptor) -> None:
    _check_name(descriptor.name, "state")
    if descriptor.name.startswith("__"):
        raise ConfigurationError(
            f"found the state name {descriptor.name!r}; expected one that does not begin with '__', which is reserved "
            "for the library's own state; rename it"
        )
    if descriptor.ttl is not None and not isinstance(descriptor.ttl, StateTtlConfig):
        raise ConfigurationError(
            f"found ttl={descriptor.ttl!r} for the state {descriptor.name!r}; expected a StateTtlConfig; "
            "wrap it: StateTtlConfig(ttl=timedelta(…))"
        )
    descriptor.type_ddl()  # parses every type of the descriptor and raises for unsupported ones


def _check_member(setting: str, value: object, enum: type[StrEnum]) -> None:
    if not isinstance(value, enum):
        raise ConfigurationError(
            f"found {setting}={value!r}; expected one of {[member.name for member in enum]}; "
            f"pass a member of {enum.__name__}"
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
            f"found cleanup_incremental={setting!r}; expected (keys to check per access, also for every "
            "record), an integer >= 0 and a bool; pass for example (5, False)"
        )
