"""Converts outputs of functions to the declared columns; jobs and test harnesses share these checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from statecore.errors import OutputTypeError, shortened
from statecore.model import ArrayType, DataType, Field, MapType, StructType, arrow_schema
from statecore.model.arrow_values import to_arrow
from statecore.model.row_classes import is_row_class
from statecore.model.values import MisfitError, value_type

_MISFITS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


def convert_to_schema(values: Sequence[Any], fields: Sequence[Field], purpose: str) -> pa.StructArray:
    """Return outputs as rows of the declared columns; with one column, a bare value is also a row.

    Raises:
        OutputTypeError: An output does not fit; the message names the first one, and its field.

    """
    row_type = pa.struct(list(arrow_schema(fields)))
    if len(fields) == 1:
        is_row = {kind: issubclass(kind, tuple | list | dict) or is_row_class(kind) for kind in set(map(type, values))}
        values = [value if is_row[type(value)] else (value,) for value in values]
    try:
        rows = _rows(values, row_type, fields)
    except _MISFITS as error:
        raise _first_misfit(values, row_type, fields, purpose, error) from error
    if rows.null_count:
        raise OutputTypeError(
            f"found the output None {purpose}; expected the columns {_declared(fields)}; put out nothing, or a tuple "
            "or dict of these columns"
        )
    return rows


def cast_to_schema(rows: pa.RecordBatch, fields: Sequence[Field], purpose: str) -> pa.RecordBatch:
    """Return rows with exactly the declared columns, in their order; a cast must not lose information.

    Raises:
        OutputTypeError: The columns differ, or one does not fit.

    """
    schema = arrow_schema(fields)
    if not rows.schema.equals(schema):
        if rows.schema.names != schema.names:
            raise OutputTypeError(
                f"found the columns {', '.join(rows.schema.names)} emitted {purpose}; expected {_declared(fields)}; "
                "name the columns as the output schema does, in its order"
            )
        columns = [_cast(column, field, fields, purpose) for column, field in zip(rows.columns, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    for path in _missing_values(rows.to_struct_array(), fields):
        raise OutputTypeError(
            f"found null in the column {path!r} of a batch emitted {purpose}, which does not fit: it is NOT NULL; "
            f"expected the columns {_declared(fields)}; fill the column, or declare it without NOT NULL"
        )
    return rows


def _cast(column: pa.Array, field: pa.Field, fields: Sequence[Field], purpose: str) -> pa.Array:
    try:
        return column.cast(field.type)
    except _MISFITS as error:
        raise OutputTypeError(
            f"found a batch emitted {purpose} that does not fit: field {field.name!r}: found {column.type}: {error}; "
            f"expected the columns {_declared(fields)}; cast them with pyarrow.compute.cast, or declare other types"
        ) from error


def _rows(values: Sequence[Any], row_type: pa.DataType, fields: Sequence[Field]) -> pa.StructArray:
    rows = to_arrow(values, row_type)
    for path in _missing_values(rows, fields):
        raise ValueError(f"field {path!r}: found None; expected a value")
    return rows


def _missing_values(rows: pa.StructArray, fields: Sequence[Field], path: str = "") -> Iterator[str]:
    """Yield the NOT NULL fields that are null in a row that is not; Arrow checks none of them."""
    for field, column in zip(fields, rows.flatten(), strict=True):
        place = f"{path}{field.name}"
        if not field.nullable and column.null_count > rows.null_count:
            yield place
        yield from _missing_within(column, field.type, place)


def _missing_within(column: pa.Array, data_type: DataType, path: str) -> Iterator[str]:
    match data_type:
        case StructType(fields) if _has_required(data_type):
            yield from _missing_values(column, fields, f"{path}.")
        case ArrayType(element) if _has_required(element):
            yield from _missing_within(column.flatten(), element, f"{path}[]")
        case MapType(_, value) if _has_required(value):
            yield from _missing_within(column.items, value, f"{path}[]")


def _has_required(data_type: DataType) -> bool:
    match data_type:
        case StructType(fields):
            return any(not field.nullable or _has_required(field.type) for field in fields)
        case ArrayType(element):
            return _has_required(element)
        case MapType(_, value):
            return _has_required(value)
    return False


def _first_misfit(
    values: Sequence[Any], row_type: pa.DataType, fields: Sequence[Field], purpose: str, misfit: Exception
) -> OutputTypeError:
    for value in values:
        try:
            _rows([value], row_type, fields)
        except _MISFITS as error:
            return OutputTypeError(
                f"found the output {shortened(value)} {purpose}, which does not fit: {_why(value, fields, error)}; "
                f"expected the columns {_declared(fields)}; emit a tuple, dict or dataclass of these columns, or "
                "declare others"
            )
    # Each output fits, but not all of them together: too much data for one column, for example.
    return OutputTypeError(f"{misfit}; expected outputs {purpose} that fit one batch; emit fewer or smaller ones")


def _why(value: Any, fields: Sequence[Field], error: Exception) -> str:
    """Return field, expected and found; Arrow's own words name Arrow's types, and not always the value."""
    try:
        value_type(StructType(tuple(fields)).ddl()).conform(value)
    except MisfitError as misfit:
        if misfit.path:
            fields_off = f" ({misfit.fields})" if misfit.fields else ""
            return f"field {misfit.path!r}: found {shortened(misfit.value)}, expected {misfit.expected}{fields_off}"
        if misfit.fields:
            return misfit.fields
    return str(error)


def _declared(fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name} {field.type.ddl()}{'' if field.nullable else ' not null'}" for field in fields)
