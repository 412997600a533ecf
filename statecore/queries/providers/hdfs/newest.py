"""Keeps the newest record of each key, of the records of several files, without a step for each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from statecore.queries.providers.hdfs.records import Records
from statecore.queries.rows.byte_columns import ByteColumn

Array: TypeAlias = npt.NDArray[Any]

_WORD = 8
_PRIME = np.uint64(0x9E3779B185EBCA87)
_SHIFT = np.uint64(29)


def newest_of_each_key(files: Sequence[Records]) -> Records:
    """Return the rows that remain after records are applied in order.

    Args:
        files: Records of each file, oldest first.

    Returns:
        The newest record of each key, in the order of the records, without removals.

    """
    records = _joined(files)
    kept = np.ones(len(records), np.bool_)
    # Keys of one hash are rare unless they are equal; only those are compared byte by byte.
    suspects = np.flatnonzero(_is_shared(_hashes(records.keys)))
    newest = dict(zip(records.keys[suspects].values(), suspects.tolist(), strict=True))
    kept[suspects] = False
    kept[np.fromiter(newest.values(), np.int64, len(newest))] = True
    return records[kept & ~records.removals]


def _joined(files: Sequence[Records]) -> Records:
    if len(files) == 1:
        return files[0]
    data = np.concatenate([each.keys.data for each in files])
    moved = np.cumsum([0, *(len(each.keys.data) for each in files[:-1])])

    def joined(columns: list[ByteColumn]) -> ByteColumn:
        starts = np.concatenate([each.starts + by for each, by in zip(columns, moved, strict=True)])
        return ByteColumn(data, starts, np.concatenate([each.sizes for each in columns]))

    return Records(joined([each.keys for each in files]), joined([each.values for each in files]))


def _is_shared(hashes: Array) -> Array:
    """Return which hashes occur more than once."""
    order = np.argsort(hashes, kind="stable")
    equal = hashes[order[1:]] == hashes[order[:-1]]
    shared = np.zeros(len(hashes), np.bool_)
    shared[order[1:][equal]] = True
    shared[order[:-1][equal]] = True
    return shared


def _hashes(keys: ByteColumn) -> Array:
    """Return a hash of each key, word by word of all keys at once."""
    hashes = keys.sizes.astype(np.uint64)
    matrix = keys.matrix()
    if matrix is not None and matrix.shape[1] % _WORD == 0:
        for column in np.ascontiguousarray(matrix).view("<u8").T:
            hashes = _mixed(hashes, column)
        return hashes
    words = np.lib.stride_tricks.sliding_window_view(np.concatenate((keys.data, np.zeros(_WORD, np.uint8))), _WORD)
    rows = np.arange(len(keys))
    at = 0
    while len(rows := rows[keys.sizes[rows] > at]):
        # The last word may reach into what follows the key: another order of equal keys must not tell them apart.
        rest = np.minimum(keys.sizes[rows] - at, _WORD)
        word = np.where(np.arange(_WORD) < rest[:, None], words[keys.starts[rows] + at], 0).view("<u8")[:, 0]
        hashes[rows] = _mixed(hashes[rows], word)
        at += _WORD
    return hashes


def _mixed(hashes: Array, words: Array) -> Array:
    mixed = (hashes ^ words) * _PRIME
    mixed ^= mixed >> _SHIFT
    return mixed
