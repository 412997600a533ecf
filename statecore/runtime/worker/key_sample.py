"""Samples the keys of a subtask's rows, to find the keys with most of them.

The sample is a reservoir (Vitter, "Random sampling with a reservoir", 1985) that takes its rows part by part: all rows
of an epoch have the same chance, whatever parts they come in, and a part costs nearly the same whatever its size. Of a
part it takes one row at random from each of as many equal stretches. Rows at even distances would cost no less, and
where keys take turns they would always be rows of the same key.

The sample is bounded, so its keys are simply counted; a sketch of all keys would have to see every row. The standard
error of a share is at most 3.1 percentage points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from statecore.model import key_encoder
from statecore.model.arrow_values import from_arrow
from statecore.snapshot.manifest import FieldRef
from statecore.state.tables import Key

SIZE = 256
# NumPy's limit; with so many rows seen, more hardly change the sample.
_MOST_SEEN = 10**9 - 1
# One for all epochs of a worker: a new one costs more than a small part.
_RANDOM = np.random.default_rng()


class KeySample:
    """A sample of the keys of a subtask's rows in an epoch.

    Args:
        fields: The fields of the key.

    """

    def __init__(self, fields: Sequence[FieldRef]) -> None:
        self._encode = key_encoder([field.type for field in fields])
        self._keys: list[tuple[Key, int]] = []
        self._seen = 0

    def add(self, records: pa.StructArray, names: Sequence[str], key_groups: pa.Array) -> None:
        """Sample more rows, without those that are null.

        Args:
            records: The rows.
            names: Their key columns.
            key_groups: Their key groups.

        """
        if records.null_count:
            valid = records.is_valid()
            records, key_groups = records.filter(valid), key_groups.filter(valid)
        more, had = len(records), len(self._keys)
        size = min(SIZE, self._seen + more)
        taken = int(_RANDOM.hypergeometric(more, min(self._seen, _MOST_SEEN), size)) if self._seen else size
        self._seen += more
        if not taken:
            return
        drawn = ((np.arange(taken) + _RANDOM.random(taken)) * (more / taken)).astype(np.int64)
        # Rounding may reach the end.
        rows = pa.array(np.minimum(drawn, more - 1))
        *columns, groups = [from_arrow(each.take(rows)) for each in (*map(records.field, names), key_groups)]
        keys = zip(map(self._encode, zip(*columns, strict=True)), groups, strict=True)
        replaced = had + taken - size
        if replaced:
            for place, key in zip(_RANDOM.choice(had, replaced, replace=False).tolist(), keys, strict=False):
                self._keys[place] = key
        self._keys += keys

    def keys(self, least: float) -> Iterator[tuple[Key, int, float]]:
        """Yield the keys with at least a share (0 to 1) of the rows, each with its key group and its share."""
        size = len(self._keys)
        for (key, key_group), rows in Counter(self._keys).items():
            if rows >= least * size:
                yield key, key_group, rows / size

    def key_groups(self, least: float) -> Iterator[tuple[int, float]]:
        """Yield the key groups with at least a share (0 to 1) of the rows, each with its share."""
        size = len(self._keys)
        for key_group, rows in Counter([key_group for _, key_group in self._keys]).items():
            if rows >= least * size:
                yield key_group, rows / size
