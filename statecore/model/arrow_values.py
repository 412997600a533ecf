"""Converts Python values to Arrow columns and back.

pyarrow converts a struct to a dict. State and rows use named tuples instead, which are cheaper and allow ``v.field``,
so this module converts structs column by column, at any depth. Primitive columns use pyarrow's fast paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import accumulate, chain, pairwise, repeat
from typing import Any

import pyarrow as pa

from statecore.errors import shortened
from statecore.model.leaves import ARROW_UTC
from statecore.model.row_classes import row_items
from statecore.model.values import fields_off, row_class

__all__ = ["from_arrow", "row_class", "to_arrow"]

_EPOCH = datetime(1970, 1, 1, tzinfo=ARROW_UTC)
_TIMESTAMP = pa.timestamp("us", "UTC")

_LOSSY: list[tuple[Callable[[pa.DataType], bool], tuple[type, ...]]] = [
    (pa.types.is_integer, (float, Decimal)),
    (pa.types.is_date, (datetime, int)),
    (pa.types.is_timestamp, (int,)),
    (pa.types.is_string, (bytes,)),
    (pa.types.is_binary, (str,)),
]


def _is_plain(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type) or pa.types.is_map(data_type):
        return False
    return not pa.types.is_list(data_type) or _is_plain(data_type.value_type)


def from_arrow(array: pa.Array) -> list[Any]:
    """Return the values of an array or chunked array: structs as named tuples, maps as dicts, nulls as None."""
    if isinstance(array, pa.ChunkedArray):
        return list(chain.from_iterable(from_arrow(chunk) for chunk in array.chunks))
    data_type = array.type
    if data_type == _TIMESTAMP:
        return _utc_times(array)
    if _is_plain(data_type):
        return array.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_struct(data_type):
        make = row_class(tuple(field.name for field in data_type))
        columns = [from_arrow(column) for column in array.flatten()]
        rows: list[Any] = list(map(make, zip(*columns, strict=True)))
    elif pa.types.is_map(data_type):
        keys, items = from_arrow(array.keys), from_arrow(array.items)
        rows = [dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in _bounds(array)]
    else:
        values = from_arrow(array.values)
        rows = [values[a:b] for a, b in _bounds(array)]
    if array.null_count:
        return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
    return rows


def _utc_times(array: pa.Array) -> list[datetime | None]:
    """Return points in time; pyarrow looks the time zone up for each, which takes five times as long."""
    counts = array.cast(pa.int64())
    times: list[datetime | None] = list(
        map(_EPOCH.__add__, map(timedelta, repeat(0), repeat(0), counts.fill_null(0).to_pylist()))
    )
    if counts.null_count:
        return [time if valid else None for time, valid in zip(times, counts.is_valid().to_pylist(), strict=True)]
    return times


def _bounds(array: pa.Array) -> Iterable[tuple[int, int]]:
    return pairwise(array.offsets.to_pylist())


def to_arrow(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return an array of ``data_type``; the inverse of ``from_arrow``. Structs may be dicts, tuples or dataclasses.

    Raises:
        pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, ValueError, TypeError: A value does not fit.

    """
    if _is_plain(data_type):
        _refuse_loss(values, data_type)
        return pa.array(values, type=data_type)
    missing = [value is None for value in values]
    mask = pa.array(missing) if any(missing) else None
    if pa.types.is_struct(data_type):
        columns = _struct_columns(values, data_type)
        fields = [data_type.field(i) for i in range(data_type.num_fields)]
        arrays = [_field_array(column, field) for column, field in zip(columns, fields, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
    container = dict if pa.types.is_map(data_type) else list | tuple
    kinds = set(map(type, values)) - {type(None)}
    if not all(issubclass(kind, container) for kind in kinds):
        wrong = next(value for value in values if not (value is None or isinstance(value, container)))
        raise TypeError(f"found {wrong!r}; expected a value of type {data_type}")
    present = values if mask is None else [value for value in values if value is not None]
    lengths = map(len, values) if mask is None else (0 if value is None else len(value) for value in values)
    starts: list[int | None] = [0, *accumulate(lengths)]
    if mask is not None:
        # from_arrays represents a null list as a null offset.
        starts[:-1] = [None if gone else at for gone, at in zip(missing, starts, strict=False)]
    marks = pa.array(starts, pa.int32())
    if pa.types.is_map(data_type):
        keys = to_arrow([key for value in present for key in value], data_type.key_type)
        items = to_arrow([item for value in present for item in value.values()], data_type.item_type)
        return pa.MapArray.from_arrays(marks, keys, items).cast(data_type)
    flat = to_arrow(list(chain.from_iterable(present)), data_type.value_type)
    return pa.ListArray.from_arrays(marks, flat).cast(data_type)


def _field_array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    try:
        return to_arrow(values, field.type)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"field {field.name!r}: {error}") from error


def _refuse_loss(values: Iterable[Any], data_type: pa.DataType) -> None:
    """Refuse values that pyarrow would truncate or reinterpret without an error."""
    if pa.types.is_list(data_type):
        lists = [value for value in values if value is not None]
        _refuse(set(map(type, lists)), (str, bytes), data_type)
        _refuse_loss(chain.from_iterable(lists), data_type.value_type)
        return
    for matches, refused in _LOSSY:
        if matches(data_type):
            _refuse(set(map(type, values)), refused, data_type)


def _refuse(types: set[type], refused: tuple[type, ...], data_type: pa.DataType) -> None:
    bad = sorted(kind.__name__ for kind in types if issubclass(kind, refused))
    if bad:
        raise TypeError(f"found a value of type {', '.join(bad)}; expected {data_type}")


def _struct_columns(values: Sequence[Any], data_type: pa.StructType) -> list[Sequence[Any]]:
    names = [data_type.field(i).name for i in range(data_type.num_fields)]
    width = len(names)
    if all(issubclass(kind, tuple) for kind in set(map(type, values))) and set(map(len, values)) == {width}:
        return list(zip(*values, strict=True))
    empty = (None,) * width
    rows: list[tuple[Any, ...]] = []
    for value in values:
        if value is None:
            rows.append(empty)
        elif isinstance(value, dict):
            if value.keys() - set(names):
                raise ValueError(fields_off(value, names))
            rows.append(tuple(value.get(name) for name in names))
        elif isinstance(value, tuple | list) and len(value) == width:
            rows.append(tuple(value))
        elif (items := row_items(value, names)) is not None:
            rows.append(items)
        else:
            raise TypeError(fields_off(value, names) or f"{shortened(value)} is not a tuple or dict of fields")
    return list(zip(*rows, strict=True)) if rows else [()] * width
