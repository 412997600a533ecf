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


def elements_table(elements: Sequence[Any], element_type: pa.DataType, state: str) -> pa.Table:
    """Return all elements of one state as a table.

    Raises:
        StateTypeError: An element does not fit the state's type.

    """
    try:
        array = to_arrow(elements, element_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise StateTypeError(
            f"found an element of operator state {state!r} that does not fit: {error}; "
            f"expected elements of type {element_type}; convert them before they are added"
        ) from error
    return pa.Table.from_arrays([array], schema=pa.schema([pa.field(ELEMENT, element_type)]))


def stored_elements(table: pa.Table) -> list[Any]:
    """Return the elements of a table as whoever restores it gets them."""
    return from_arrow(table.column(ELEMENT))


def encode_elements(table: pa.Table) -> bytes:
    """Return the file of a table of elements."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_elements(data: bytes, offsets: Sequence[int]) -> list[Any]:
    """Return the elements at ``offsets``, in that order."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        table = reader.read_all()
    return stored_elements(table.take(pa.array(offsets, pa.int64())))
