"""The keys of a batch, and the key of each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.model import key_encoder
from statecore.model.arrow_values import from_arrow, to_arrow
from statecore.model.key_hash import is_canonical
from statecore.model.values import row_class
from statecore.state.tables import Key

# Rows to convert to Python values at a time.
_CHUNK_ROWS = 8192

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BatchKeys:
    """The distinct keys of a batch, sorted by key group.

    Attributes:
        scopes: The keys in canonical form.
        key_groups: The key group of each key.
        index: The position of its key, for each row of the batch.
        columns: The keys as columns, named like the key's fields.

    """

    scopes: list[Key]
    key_groups: Positions
    index: Positions
    columns: pa.RecordBatch

    @classmethod
    def of(cls, fields: pa.RecordBatch, key_types: Sequence[str], key_groups: pa.Array) -> BatchKeys:
        """Return the keys of rows, from the key's fields and the key group of each row."""
        quick = is_canonical(key_types)
        codes = _codes_of_columns(fields) if quick else _codes_of_tuples(fields, key_types)
        groups = key_groups.to_numpy().astype(np.int64)
        first = _first_rows(codes)
        first = first[np.argsort(groups[first], kind="stable")]
        rank = np.empty_like(first)
        rank[codes[first]] = np.arange(len(first))
        columns = fields.take(pa.array(first))
        scopes = list(zip(*map(from_arrow, columns.columns), strict=True))
        if not quick:
            scopes = list(map(key_encoder(key_types), scopes))
            types = [field.type for field in fields.schema]
            arrays = list(map(to_arrow, zip(*scopes, strict=True), types))
            columns = pa.RecordBatch.from_arrays(arrays, schema=fields.schema)
        return cls(scopes, groups[first], rank[codes], columns)

    def runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield (key group, its first position, the position after its last)."""
        starts = np.flatnonzero(np.diff(self.key_groups)) + 1
        for start, end in pairwise([0, *starts.tolist(), len(self.scopes)] if self.scopes else []):
            yield int(self.key_groups[start]), start, end

    def only(self, wanted: Mask) -> tuple[BatchKeys, Mask]:
        """Return the wanted keys with their rows, and a mask of these rows."""
        rows = wanted[self.index]
        return self._part(wanted, rows), rows

    def of_rows(self, rows: Mask) -> BatchKeys:
        """Return the keys of some of the rows."""
        wanted = np.zeros(len(self.scopes), np.bool_)
        wanted[self.index[rows]] = True
        return self._part(wanted, rows)

    def _part(self, wanted: Mask, rows: Mask) -> BatchKeys:
        position = np.cumsum(wanted) - 1
        scopes = [self.scopes[at] for at in np.flatnonzero(wanted).tolist()]
        columns = self.columns.filter(pa.array(wanted))
        return BatchKeys(scopes, self.key_groups[wanted], position[self.index[rows]], columns)


def records_by_key(
    rows: pa.RecordBatch, keys: BatchKeys, times: pa.Array | None
) -> Iterator[tuple[Key, int, Any, int | None]]:
    """Yield key, key group, value and event time of each row, grouped by key."""
    order = np.argsort(keys.index, kind="stable")
    make = row_class(tuple(rows.schema.names))

    def records(start: int) -> Iterator[tuple[Key, int, Any, int | None]]:
        chunk = order[start : start + _CHUNK_ROWS]
        positions = keys.index[chunk]
        own = pa.array(chunk)
        values = map(make, zip(*map(from_arrow, rows.take(own).columns), strict=True))
        at = repeat(None, len(chunk)) if times is None else times.take(own).to_pylist()
        scopes = map(keys.scopes.__getitem__, positions.tolist())
        return zip(scopes, keys.key_groups[positions].tolist(), values, at, strict=True)

    return chain.from_iterable(map(records, range(0, rows.num_rows, _CHUNK_ROWS)))


def _codes_of_columns(fields: pa.RecordBatch) -> Positions:
    """Return a number for each row: equal keys share it, and it counts from 0 in order of first appearance."""
    codes, count = np.zeros(fields.num_rows, np.int64), 1
    for column in fields.columns:
        encoded = column.dictionary_encode("encode")
        combined = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        # Renumber after each field: the product then never exceeds the square of the row count.
        renumbered = pa.array(combined).dictionary_encode() if count > 1 else encoded
        codes, count = renumbered.indices.to_numpy().astype(np.int64), len(renumbered.dictionary)
    return codes


def _codes_of_tuples(fields: pa.RecordBatch, key_types: Sequence[str]) -> Positions:
    """Number the rows likewise for keys that are equal only in their canonical form."""
    keys = map(key_encoder(key_types), zip(*map(from_arrow, fields.columns), strict=True))
    seen: dict[Key, int] = {}
    return np.array([seen.setdefault(key, len(seen)) for key in keys], np.int64)


def _first_rows(codes: Positions) -> Positions:
    """Return the first row of each code."""
    first = np.empty(int(codes.max()) + 1, np.int64)
    # The last assignment to an index wins.
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first
