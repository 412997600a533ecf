"""Parses the types and schemas that users write. sqlglot, which is slow to import, is loaded at the first of them."""

from __future__ import annotations

from statecore.errors import UnsupportedTypeError
from statecore.model.types import DataType, Field


def parse_type(ddl: str) -> DataType:
    """Parse one Spark DDL type, e.g. ``bigint`` or ``struct<a:int,b:array<string>>``."""
    from statecore.model import ddl as parser

    return parser.parse_type(_text(ddl))


def parse_schema(ddl: str) -> tuple[Field, ...]:
    """Parse the columns of a row, e.g. ``k string, total bigint``."""
    from statecore.model import ddl as parser

    return parser.parse_schema(_text(ddl))


def parse_row(ddl: str) -> tuple[Field, ...]:
    """Parse a row: columns (``k string, total bigint``), a struct, or one type, which becomes the column ``value``."""
    from statecore.model import ddl as parser

    return parser.parse_row(_text(ddl))


def _text(ddl: object) -> str:
    if not isinstance(ddl, str):
        raise UnsupportedTypeError(
            f"found {ddl!r} of type {type(ddl).__name__} as a type; expected Spark DDL text such as "
            "'bigint'; for a PySpark type, pass simpleString()"
        )
    return ddl
