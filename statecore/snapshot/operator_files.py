"""Operator list state in files.

An Arrow IPC file (zstd) with one column ``element``; row ``i`` is the element at offset ``i``, so a state handle names
elements by row number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from statecore.errors import StateTypeError
from statecore.snapshot.arrow_values import from_arrow, to_arrow

ELEMENT = "element"


def encode_elements(elements: Sequence[Any], element_type: pa.DataType, state: str) -> bytes:
    """Return the file of all elements of one state.

    Raises:
        StateTypeError: An element does not fit the state's type.

    """
    try:
        table = elements_table(elements, element_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise StateTypeError(
            f"found an element of operator state {state!r} that does not fit: {error}; "
            f"expected elements of type {element_type}; convert them before they are added"
        ) from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def elements_table(elements: Sequence[Any], element_type: pa.DataType) -> pa.Table:
    """Return elements as a table of one column."""
    schema = pa.schema([pa.field(ELEMENT, element_type)])
    return pa.Table.from_arrays([to_arrow(elements, element_type)], schema=schema)


def decode_elements(data: bytes, offsets: Sequence[int]) -> list[Any]:
    """Return the elements at ``offsets``, in that order."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        column = reader.read_all().column(ELEMENT)
    return from_arrow(column.take(pa.array(offsets, pa.int64())))
