"""Casts the output of a batch function to the declared columns."""

from __future__ import annotations

import pyarrow as pa

from statecore.errors import StateTypeError


def cast_to_schema(rows: pa.RecordBatch, schema: pa.Schema, purpose: str) -> pa.RecordBatch:
    """Return rows with exactly the declared types; a lossy cast is refused.

    Raises:
        StateTypeError: The columns have other names or another order, or a value does not fit.

    """
    if rows.schema.equals(schema):
        return rows
    declared = ", ".join(f"{field.name} {field.type}" for field in schema)
    if rows.schema.names != schema.names:
        raise StateTypeError(
            f"found the columns {', '.join(rows.schema.names)} put out {purpose}; expected {declared}; name the "
            "columns as the output schema does, in its order"
        )
    try:
        return rows.cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError) as error:
        raise StateTypeError(
            f"found an output {purpose} that does not fit: {error}; expected the columns {declared}; cast them with "
            "pyarrow.compute.cast, or declare other types"
        ) from error
