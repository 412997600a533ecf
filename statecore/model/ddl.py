"""Parses Spark's DDL with sqlglot; PySpark needs a running session for that.

Types that open file formats cannot store without loss (variant, void, intervals, time) raise UnsupportedTypeError, as
does text that is not DDL.
"""

from __future__ import annotations

import re
from functools import lru_cache

import sqlglot
from sqlglot import ErrorLevel, exp

from statecore.errors import UnsupportedTypeError
from statecore.model.types import (
    BINARY_COLLATION,
    MAX_DECIMAL_PRECISION,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StringType,
    StructType,
)

_SUPPORTED = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, "
    "timestamp_ntz, array<…>, map<…,…>, struct<name:type,…>"
)


@lru_cache(maxsize=4096)
def parse_type(ddl: str) -> DataType:
    """Parse one type."""
    tree = _read("array", ddl)
    if tree is None or len(tree.expressions) != 1:
        raise _refusal(ddl)
    return _convert(tree.expressions[0], ddl)


@lru_cache(maxsize=1024)
def parse_schema(ddl: str) -> tuple[Field, ...]:
    """Parse the columns of a row."""
    tree = _read("struct", ddl)
    if tree is None:
        raise UnsupportedTypeError(
            f"found the schema {ddl!r}; expected columns with a name and a type, separated by commas, as in "
            f"'k string, total bigint', of the types {_SUPPORTED}; put unusual names in backticks"
        )
    return _convert_fields(tree, ddl)


@lru_cache(maxsize=1024)
def parse_row(ddl: str) -> tuple[Field, ...]:
    """Parse columns, a struct, or one type, which becomes the column ``value``."""
    if _read("array", ddl) is None:
        return parse_schema(ddl)
    data_type = parse_type(ddl)
    return data_type.fields if isinstance(data_type, StructType) else (Field("value", data_type),)


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
                f"found two fields named {seen[folded]!r} and {field.name!r} in {ddl!r}; expected names that "
                "differ in more than case; rename one"
            )
        seen[folded] = field.name
    return fields


def _convert_field(part: exp.Expression, ddl: str) -> Field:
    if not isinstance(part, exp.ColumnDef) or not isinstance(part.args.get("kind"), exp.DataType):
        raise UnsupportedTypeError(
            f"found {_sql(part)!r} where a field belongs, in {ddl!r}; expected a name and a type, as in "
            f"'a:int'; the types are {_SUPPORTED}"
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
                f"found {_sql(constraint)!r} at the field {part.name!r} in {ddl!r}; expected nothing but "
                "NOT NULL, COLLATE and COMMENT after a type; remove it"
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
        f"found the type {ddl!r}; expected one of {_SUPPORTED}; {_remedy((part or ddl).strip().lower())}"
    )


_REMEDIES = {
    r".*\bvariant\b": "keep a variant as string: to_json(…), and parse_json(…) when reading",
    r".*\bnot null": "remove NOT NULL here, which belongs after a field of a struct or a column",
    r".*\b(void|null)\b": "give the column a type: CAST(NULL AS …)",
    r"interval|time(\(|$)": "keep a duration or a time of day as bigint, e.g. in microseconds",
    r"timestamp": "write timestamp (an instant, in UTC) or timestamp_ntz (no time zone), without precision",
    r"decimal": f"choose a precision from 1 to {MAX_DECIMAL_PRECISION} and a scale no larger than that",
    r"map<": "name a key and a value type, and keep maps out of the key",
    r"(var)?char": "give the length, or write string",
}


def _remedy(part: str) -> str:
    remedies = (remedy for pattern, remedy in _REMEDIES.items() if re.match(pattern, part))
    return next(remedies, "correct the spelling, or cast the column to one of these")
