"""Samples the keys of a subtask's rows, to find the keys with most of them.

The sample is a reservoir (Vitter, "Random sampling with a reservoir", 1985) that takes its rows part by part: all rows
of an epoch have the same chance, whatever parts they come in, and a part costs nearly the same whatever its size. Rows
at even distances would cost no less, and where keys take turns they would always be rows of the same key.

The sample is bounded, so its keys are simply counted; a sketch of all keys (Space-Saving, Metwally et al., 2005) would
have to see every row. The standard error of a share is at most 2.2 percentage points.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statecore.model import key_encoder
from statecore.model.arrow_values import from_arrow
from statecore.runtime.messages import KeyShare
from statecore.snapshot.manifest import FieldRef

SIZE = 512
_LEAST_SHARE = 0.05
_MOST_CHARACTERS = 100
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
        self._names = [field.name for field in fields]
        self._encode = key_encoder([field.type for field in fields])
        self._keys: list[tuple[Any, ...]] = []
        self._seen = 0

    def add(self, records: pa.StructArray, names: Sequence[str]) -> None:
        """Sample more rows, without those that are null.

        Args:
            records: The rows.
            names: Their key columns.

        """
        records = records.drop_null()
        more, had = len(records), len(self._keys)
        size = min(SIZE, self._seen + more)
        taken = int(_RANDOM.hypergeometric(more, min(self._seen, _MOST_SEEN), size))
        self._seen += more
        rows = pa.array(_RANDOM.choice(more, taken, replace=False))
        columns = [from_arrow(records.field(name).take(rows)) for name in names]
        keys = list(map(self._encode, zip(*columns, strict=True)))
        replaced = had + taken - size
        for place, key in zip(_RANDOM.choice(had, replaced, replace=False).tolist(), keys, strict=False):
            self._keys[place] = key
        self._keys += keys[replaced:]

    def heaviest(self) -> tuple[KeyShare, ...]:
        """Return the keys with at least a twentieth of the rows, the heaviest first."""
        counted = Counter(self._keys).most_common(round(1 / _LEAST_SHARE))
        size = len(self._keys)
        return tuple(KeyShare(self._text(key), count / size) for key, count in counted if count >= _LEAST_SHARE * size)

    def _text(self, key: tuple[Any, ...]) -> str:
        """Return a key for people, on one line; a long one is cut, and keeps apart from others by a digest."""
        # PostgreSQL takes no NUL in a text, and a terminal obeys other control characters.
        values = [repr(str(value))[1:-1] for value in key]
        named = zip(self._names, values, strict=True)
        text = values[0] if len(values) == 1 else ", ".join(f"{name}={value}" for name, value in named)
        if len(text) <= _MOST_CHARACTERS:
            return text
        digest = f"…{hashlib.sha256(text.encode()).hexdigest()[:8]}"
        return text[: _MOST_CHARACTERS - len(digest)] + digest
