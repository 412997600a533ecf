"""Spark DDL types, as a small tree.

The parser is loaded with the first type that is parsed: sqlglot takes as long to load as Arrow.

::

    DataType
    ├── AtomicType     boolean tinyint smallint int bigint float double binary date timestamp timestamp_ntz
    ├── DecimalType    decimal(precision,scale)
    ├── StringType     string, or string collate X; varchar(n) and char(n) are strings, as in Spark
    ├── ArrayType      array<element>
    ├── MapType        map<key,value>
    └── StructType     struct<name:type,…>, each a Field
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from statecore.errors import UnsupportedTypeError

MAX_DECIMAL_PRECISION = 38
BINARY_COLLATION = "UTF8_BINARY"

_ARROW_ATOMS = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


class DataType(ABC):
    """A Spark type that state supports."""

    __slots__ = ()

    @abstractmethod
    def ddl(self) -> str:
        """Return the canonical DDL; it parses to an equal type."""

    @abstractmethod
    def arrow(self) -> pa.DataType:
        """Return Spark's Arrow type for this type."""

    @property
    def key_problem(self) -> str | None:
        """Why the type cannot be a key, and what to do; None when it can."""
        return None


@dataclass(frozen=True, slots=True)
class AtomicType(DataType):
    """A type without parameters, by its Spark name, e.g. ``bigint``."""

    name: str

    def ddl(self) -> str:
        """Return the name."""
        return self.name

    def arrow(self) -> pa.DataType:
        """Return the Arrow type; a timestamp counts microseconds, in UTC."""
        return _ARROW_ATOMS[self.name]


@dataclass(frozen=True, slots=True)
class DecimalType(DataType):
    """A decimal number: 1 to 38 digits in all, ``scale`` of them after the point."""

    precision: int
    scale: int

    def ddl(self) -> str:
        """Return e.g. ``decimal(10,2)``."""
        return f"decimal({self.precision},{self.scale})"

    def arrow(self) -> pa.DataType:
        """Return the 128-bit decimal."""
        return pa.decimal128(self.precision, self.scale)


@dataclass(frozen=True, slots=True)
class StringType(DataType):
    """Text; without a collation it compares by its bytes."""

    collation: str | None = None

    def ddl(self) -> str:
        """Return ``string``, with its collation if it has one."""
        return f"string collate {self.collation}" if self.collation else "string"

    def arrow(self) -> pa.DataType:
        """Return the Arrow string; the collation is dropped, because it affects comparison only."""
        return pa.string()

    @property
    def key_problem(self) -> str | None:
        """A collation makes different strings equal."""
        if self.collation is None:
            return None
        return (
            f"different strings can be equal under {self.collation}; cast the key column AS STRING COLLATE "
            f"{BINARY_COLLATION}, after lower() to ignore case"
        )


@dataclass(frozen=True, slots=True)
class ArrayType(DataType):
    """An array of elements of one type."""

    element: DataType

    def ddl(self) -> str:
        """Return e.g. ``array<int>``."""
        return f"array<{self.element.ddl()}>"

    def arrow(self) -> pa.DataType:
        """Return the Arrow list."""
        return pa.list_(self.element.arrow())

    @property
    def key_problem(self) -> str | None:
        """The problem of the element."""
        return self.element.key_problem


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """A map."""

    key: DataType
    value: DataType

    def ddl(self) -> str:
        """Return e.g. ``map<string,bigint>``."""
        return f"map<{self.key.ddl()},{self.value.ddl()}>"

    def arrow(self) -> pa.DataType:
        """Return the Arrow map."""
        return pa.map_(self.key.arrow(), self.value.arrow())

    @property
    def key_problem(self) -> str | None:
        """Equal maps can differ in entry order."""
        return (
            "equal maps can hold their entries in different orders; use an array of structs sorted by key: "
            "array_sort(map_entries(…))"
        )


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct or a column of a row; its name is without backticks."""

    name: str
    type: DataType
    nullable: bool = True

    def ddl(self) -> str:
        """Return e.g. ``total:bigint``, with the name in backticks if needed."""
        return f"{_quoted(self.name)}:{self.type.ddl()}{'' if self.nullable else ' not null'}"

    def arrow(self) -> pa.Field:
        """Return the Arrow field."""
        return pa.field(self.name, self.type.arrow(), self.nullable)


@dataclass(frozen=True, slots=True)
class StructType(DataType):
    """Named fields, in order."""

    fields: tuple[Field, ...]

    def ddl(self) -> str:
        """Return e.g. ``struct<a:int,b:string>``."""
        return f"struct<{','.join(field.ddl() for field in self.fields)}>"

    def arrow(self) -> pa.DataType:
        """Return the Arrow struct, with all fields nullable.

        NOT NULL applies to the fields of a non-null struct. Arrow and Parquet would apply it to a null struct as well,
        so it is checked when values are written instead.
        """
        return pa.struct([pa.field(field.name, field.type.arrow()) for field in self.fields])

    @property
    def key_problem(self) -> str | None:
        """The first problem among the fields."""
        return next((problem for field in self.fields if (problem := field.type.key_problem)), None)


def arrow_schema(fields: Iterable[Field]) -> pa.Schema:
    """Return the Arrow schema of a row."""
    return pa.schema([field.arrow() for field in fields])


def require_key_type(data_type: DataType) -> None:
    """Raise UnsupportedTypeError for a type that cannot be a key."""
    problem = data_type.key_problem
    if problem is not None:
        raise UnsupportedTypeError(
            f"found the key type {data_type.ddl()!r}; expected one whose equal values have equal bytes; {problem}"
        )


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The only words that sqlglot refuses as unquoted field names.
_RESERVED = {"not", "select"}


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"
