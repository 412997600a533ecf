"""Spark DDL types, parsed with sqlglot into a small tree.

PySpark needs a running session to parse DDL; this module does not. Types that open file formats cannot store without
loss (variant, void, intervals, time) raise UnsupportedTypeError, as does text that is not DDL.

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
from functools import lru_cache

import pyarrow as pa
import sqlglot
from sqlglot import ErrorLevel, exp

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

_SUPPORTED = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, "
    "timestamp_ntz, array<…>, map<…,…>, struct<name:type,…>"
)


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
            f"Different strings can be equal under {self.collation}. Cast the key column AS STRING COLLATE "
            f"{BINARY_COLLATION}, after lower() to ignore case."
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
            "Equal maps can hold their entries in different orders. Use an array of structs sorted by key: "
            "array_sort(map_entries(…))."
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


def parse_type(ddl: str) -> DataType:
    """Parse one Spark DDL type, e.g. ``bigint`` or ``struct<a:int,b:array<string>>``."""
    return _parse_type(_text(ddl))


def parse_schema(ddl: str) -> tuple[Field, ...]:
    """Parse the columns of a row, e.g. ``k string, total bigint``."""
    return _parse_schema(_text(ddl))


def parse_row(ddl: str) -> tuple[Field, ...]:
    """Parse a row: columns (``k string, total bigint``), a struct, or one type, which becomes the column ``value``."""
    return _parse_row(_text(ddl))


def arrow_schema(fields: Iterable[Field]) -> pa.Schema:
    """Return the Arrow schema of a row."""
    return pa.schema([field.arrow() for field in fields])


def require_key_type(data_type: DataType) -> None:
    """Raise UnsupportedTypeError for a type that cannot be a key."""
    problem = data_type.key_problem
    if problem is not None:
        raise UnsupportedTypeError(
            f"Found the key type {data_type.ddl()!r}; expected one whose equal values have equal bytes. {problem}"
        )


@lru_cache(maxsize=4096)
def _parse_type(ddl: str) -> DataType:
    tree = _read("array", ddl)
    if tree is None or len(tree.expressions) != 1:
        raise _refusal(ddl)
    return _convert(tree.expressions[0], ddl)


@lru_cache(maxsize=1024)
def _parse_schema(ddl: str) -> tuple[Field, ...]:
    tree = _read("struct", ddl)
    if tree is None:
        raise UnsupportedTypeError(
            f"Found the schema {ddl!r}; expected columns with a name and a type, separated by commas, as in "
            f"'k string, total bigint', of the types {_SUPPORTED}. Put unusual names in backticks."
        )
    return _convert_fields(tree, ddl)


@lru_cache(maxsize=1024)
def _parse_row(ddl: str) -> tuple[Field, ...]:
    if _read("array", ddl) is None:
        return _parse_schema(ddl)
    data_type = _parse_type(ddl)
    return data_type.fields if isinstance(data_type, StructType) else (Field("value", data_type),)


def _text(ddl: object) -> str:
    if not isinstance(ddl, str):
        raise UnsupportedTypeError(
            f"Found {ddl!r} of type {type(ddl).__name__} as a type; expected Spark DDL text such as "
            "'bigint'. For a PySpark type, pass simpleString()."
        )
    return ddl


def _read(wrapper: str, ddl: str) -> exp.DataType | None:
    """Parse ``wrapper<ddl>``, or return None.

    Without the wrapper, sqlglot silently drops a collation and trailing words of a type.
    """
    # sqlglot parses "timestamp without time zone" as the type with one.
    if re.search(r"\btimestamp\s+with", ddl, re.IGNORECASE):
        return None
    try:
        tree = sqlglot.parse_one(f"{wrapper}<{ddl}>", into=exp.DataType, dialect="spark", error_level=ErrorLevel.RAISE)
    except (sqlglot.errors.SqlglotError, RecursionError):
        return None
    return tree if isinstance(tree, exp.DataType) and tree.expressions else None


_ATOMS = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.TINYINT: "tinyint",
    exp.DType.SMALLINT: "smallint",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "bigint",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.BINARY: "binary",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMPTZ: "timestamp",
    exp.DType.TIMESTAMPLTZ: "timestamp",
    exp.DType.TIMESTAMPNTZ: "timestamp_ntz",
}


def _convert(tree: exp.Expression, ddl: str) -> DataType:
    known = {"this", "expressions", "nested", "collate"}
    if not isinstance(tree, exp.DataType) or any(v for k, v in tree.args.items() if k not in known):
        raise _refusal(ddl, _sql(tree))
    kind, inner, collation = tree.this, tree.expressions, tree.args.get("collate")
    if collation is not None and kind not in (exp.DType.TEXT, exp.DType.VARCHAR, exp.DType.CHAR):
        raise _refusal(ddl, _sql(tree))
    if kind in _ATOMS and not inner:
        return AtomicType(_ATOMS[kind])
    if kind == exp.DType.TEXT and not inner:
        return _string(collation)
    if kind in (exp.DType.VARCHAR, exp.DType.CHAR) and len(_numbers(inner)) == 1:
        return _string(collation)
    if kind == exp.DType.DECIMAL and len(_numbers(inner)) == len(inner) <= 2:
        precision, scale = [*_numbers(inner), *(10, 0)[len(inner) :]]
        if 1 <= precision <= MAX_DECIMAL_PRECISION and scale <= precision:
            return DecimalType(precision, scale)
    if kind == exp.DType.ARRAY and len(inner) == 1:
        return ArrayType(_convert(inner[0], ddl))
    if kind == exp.DType.MAP and len(inner) == 2:
        key, value = (_convert(part, ddl) for part in inner)
        if not _holds_map(key):
            return MapType(key, value)
    if kind == exp.DType.STRUCT and inner:
        return StructType(_convert_fields(tree, ddl))
    raise _refusal(ddl, _sql(tree))


def _convert_fields(tree: exp.DataType, ddl: str) -> tuple[Field, ...]:
    fields = tuple(_convert_field(part, ddl) for part in tree.expressions)
    seen: dict[str, str] = {}
    for field in fields:
        if (folded := field.name.casefold()) in seen:
            raise UnsupportedTypeError(
                f"Found two fields named {seen[folded]!r} and {field.name!r} in {ddl!r}; expected names that "
                "differ in more than case. Rename one."
            )
        seen[folded] = field.name
    return fields


def _convert_field(part: exp.Expression, ddl: str) -> Field:
    if not isinstance(part, exp.ColumnDef) or not isinstance(part.args.get("kind"), exp.DataType):
        raise UnsupportedTypeError(
            f"Found {_sql(part)!r} where a field belongs, in {ddl!r}; expected a name and a type, as in "
            f"'a:int'. The types are {_SUPPORTED}."
        )
    kind, nullable = part.args["kind"].copy(), True
    for constraint in part.args.get("constraints") or ():
        rule = constraint.args.get("kind")
        if isinstance(rule, exp.NotNullColumnConstraint) and not rule.args.get("allow_null"):
            nullable = False
        elif isinstance(rule, exp.CollateColumnConstraint):
            kind.set("collate", rule.this)
        elif not isinstance(rule, exp.CommentColumnConstraint):
            raise UnsupportedTypeError(
                f"Found {_sql(constraint)!r} at the field {part.name!r} in {ddl!r}; expected nothing but "
                "NOT NULL, COLLATE and COMMENT after a type. Remove it."
            )
    return Field(part.name, _convert(kind, ddl), nullable)


def _string(collation: exp.Expression | None) -> StringType:
    name = None if collation is None else _sql(collation).replace("`", "").upper()
    return StringType(None if name == BINARY_COLLATION else name)


def _numbers(params: list[exp.Expression]) -> list[int]:
    literals = [param.this for param in params if isinstance(param, exp.DataTypeParam)]
    return [int(literal.this) for literal in literals if isinstance(literal, exp.Literal) and literal.is_int]


def _holds_map(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_holds_map(field.type) for field in data_type.fields)
    return isinstance(data_type, MapType) or (isinstance(data_type, ArrayType) and _holds_map(data_type.element))


def _sql(tree: exp.Expression) -> str:
    return tree.sql().lower()


def _refusal(ddl: str, part: str | None = None) -> UnsupportedTypeError:
    return UnsupportedTypeError(
        f"Found the type {ddl!r}; expected one of {_SUPPORTED}. {_remedy((part or ddl).strip().lower())}"
    )


_REMEDIES = {
    r".*\bvariant\b": "Keep a variant as string: to_json(…), and parse_json(…) when reading.",
    r".*\bnot null": "NOT NULL belongs after a field of a struct or a column; remove it here.",
    r".*\b(void|null)\b": "Give the column a type: CAST(NULL AS …).",
    r"interval|time(\(|$)": "Keep a duration or a time of day as bigint, e.g. in microseconds.",
    r"timestamp": "Write timestamp (an instant, in UTC) or timestamp_ntz (no time zone), without precision.",
    r"decimal": f"Choose a precision from 1 to {MAX_DECIMAL_PRECISION} and a scale no larger than that.",
    r"map<": "Name a key and a value type, and keep maps out of the key.",
    r"(var)?char": "Give the length, or write string.",
}


def _remedy(part: str) -> str:
    found = (remedy for pattern, remedy in _REMEDIES.items() if re.match(pattern, part))
    return next(found, "Correct the spelling, or cast the column to one of these.")


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The only words that sqlglot refuses as unquoted field names.
_RESERVED = {"not", "select"}


def _quoted(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name.lower() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"
