"""Converts outputs of functions to the declared columns; jobs and test harnesses share these checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import pyarrow as pa

from statecore.errors import OutputTypeError, shortened
from statecore.model import Field, arrow_schema
from statecore.model.arrow_values import to_arrow

_MISFITS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


def convert_to_schema(values: Sequence[Any], fields: Sequence[Field], purpose: str) -> pa.StructArray:
    """Return outputs as rows of the declared columns; with one column, a bare value is also a row.

    Raises:
        OutputTypeError: An output does not fit; the message names the first one.

    """
    row_type = pa.struct(list(arrow_schema(fields)))
    if len(fields) == 1:
        values = [value if isinstance(value, tuple | list | dict) else (value,) for value in values]
    try:
        rows = to_arrow(values, row_type)
    except _MISFITS as error:
        _refuse_first(values, row_type, fields, purpose, error)
    if rows.null_count:
        raise OutputTypeError(
            f"found the output None {purpose}; expected the columns {_declared(fields)}; put out nothing, or a tuple "
            "or dict of these columns"
        )
    return rows


def cast_to_schema(rows: pa.RecordBatch, fields: Sequence[Field], purpose: str) -> pa.RecordBatch:
    """Return rows with exactly the declared columns, in their order; a cast must not lose information."""
    schema = arrow_schema(fields)
    if rows.schema.equals(schema):
        return rows
    if rows.schema.names != schema.names:
        raise OutputTypeError(
            f"found the columns {', '.join(rows.schema.names)} emitted {purpose}; expected {_declared(fields)}; name "
            "the columns as the output schema does, in its order"
        )
    try:
        return rows.cast(schema)
    except _MISFITS as error:
        raise OutputTypeError(
            f"found a batch emitted {purpose} that does not fit: {error}; expected the columns {_declared(fields)}; "
            "cast them with pyarrow.compute.cast, or declare other types"
        ) from error


def _refuse_first(
    values: Sequence[Any], row_type: pa.DataType, fields: Sequence[Field], purpose: str, misfit: Exception
) -> NoReturn:
    for value in values:
        try:
            to_arrow([value], row_type)
        except _MISFITS as error:
            raise OutputTypeError(
                f"found the output {shortened(value)} {purpose}, which does not fit: {error}; expected the columns "
                f"{_declared(fields)}; emit a tuple or dict of these columns, or declare others"
            ) from error
    # Each output fits, but not all of them together: too much data for one column, for example.
    raise OutputTypeError(f"{misfit}; expected outputs {purpose} that fit one batch; emit fewer or smaller ones")


def _declared(fields: Sequence[Field]) -> str:
    return ", ".join(f"{field.name} {field.type.ddl()}" for field in fields)
