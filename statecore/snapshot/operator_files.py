"""Operator state in files.

An Arrow IPC file (zstd) with one column ``element``; row ``i`` is the element at offset ``i``, so a state handle names
elements by row number. A broadcast state is one element, the map of its entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from statecore.errors import StateTypeError
from statecore.model import DistributionMode, MapType, key_encoder, parse_type
from statecore.model.arrow_values import from_arrow, to_arrow

ELEMENT = "element"


def elements_table(elements: Sequence[Any], element_type: pa.DataType, state: str) -> pa.Table:
    """Return all elements of one state as a table; StateTypeError for an element that does not fit its type."""
    try:
        array = to_arrow(elements, element_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise StateTypeError(
            f"found an element of operator state {state!r} that does not fit: {error}; "
            f"expected elements of type {element_type}; convert them before they are added"
        ) from error
    return pa.Table.from_arrays([array], schema=pa.schema([pa.field(ELEMENT, element_type)]))


def encode_elements(table: pa.Table) -> bytes:
    """Return the file of a table of elements."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def decode_elements(data: bytes, offsets: Sequence[int], element_type: str, mode: DistributionMode) -> list[Any]:
    """Return the elements at ``offsets``, in that order and in stored form; ``element_type`` is Spark DDL."""
    with pa.ipc.open_file(pa.BufferReader(data)) as reader:
        table = reader.read_all()
    column = table.take(pa.array(offsets, pa.int64())).column(ELEMENT)
    if mode is not DistributionMode.BROADCAST:
        return from_arrow(column)
    declared = parse_type(element_type)
    assert isinstance(declared, MapType)
    return _broadcast_entries(column, declared)


def _broadcast_entries(column: pa.ChunkedArray, declared: MapType) -> list[dict[Any, Any]]:
    """Return maps with canonical keys, as in memory: a dict could not look up some of the keys otherwise."""
    encode = key_encoder([declared.key.ddl()])
    maps = []
    for entries in column:
        keys = [key for (key,) in map(encode, zip(from_arrow(entries.values.field(0)), strict=True))]
        maps.append(dict(zip(keys, from_arrow(entries.values.field(1)), strict=True)))
    return maps
