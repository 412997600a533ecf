"""Folds numbers into one number per key, all keys at once, with the same result as reducing row by row.

It knows three Python functions: ``operator.add``, ``min`` and ``max``, on integers and doubles. A key is left out when
the vectorized result could differ: an intermediate overflow, NaN, signed zeros.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statecore.model.leaves import INTEGER_BITS
from statecore.state.batches import Mask, Positions

Numbers = npt.NDArray[Any]
_INTEGERS, _DOUBLES = np.iinfo(np.int64), np.inf

# Rounding makes sums of absolute values slightly too small.
_CERTAIN = 0.999


@dataclass(frozen=True, slots=True)
class Folding:
    """A reduce function over columns.

    Attributes:
        start: The neutral element, for a key without a value.
        bits: Width of the integers; 0 for doubles.

    """

    start: int | float
    bits: int
    _add: bool
    _at: Callable[[Numbers, Positions, Numbers], None]

    def column(self, values: pa.Array) -> Numbers | None:
        """Return a column without nulls as numbers; None for another type, whose values are added row by row."""
        integers = bool(self.bits) and pa.types.is_signed_integer(values.type)
        doubles = not self.bits and values.type in (pa.float32(), pa.float64())
        if not (integers or doubles):
            return None
        numbers: Numbers = values.to_numpy(zero_copy_only=False).astype(np.int64 if self.bits else np.float64)
        return numbers

    def fold(self, stored: Sequence[Any] | Numbers, values: Numbers, index: Positions) -> tuple[Numbers, Mask]:
        """Fold values in, in order; return the new value of each key, and for which keys it is certain.

        ``stored`` holds the old value of each key, or ``start``. ``index`` is the position of each value's key.
        """
        folded = np.array(stored, dtype=values.dtype)
        certain = self._certain(folded, values, index)
        with np.errstate(all="ignore"):
            self._at(folded, index, values)
        return folded, certain

    def _certain(self, stored: Numbers, values: Numbers, index: Positions) -> Mask:
        certain = np.ones(len(stored), np.bool_)
        if not self.bits:
            if not self._add:
                certain &= ~_odd(stored)
                certain[index[_odd(values)]] = False
            return certain
        bound = float(1 << (self.bits - 1))
        certain[index[(values < -bound) | (values >= bound)]] = False
        if self._add:
            reach = np.abs(stored.astype(np.float64))
            np.add.at(reach, index, np.abs(values.astype(np.float64)))
            certain &= reach < bound * _CERTAIN
        return certain


def folding(reduce: Callable[[Any, Any], Any], ddl: str) -> Folding | None:
    """Return a reduce function over columns of a canonical Spark type; None when rows must be reduced in Python."""
    bits = INTEGER_BITS.get(ddl, 0)
    if not bits and ddl != "double":
        return None
    if reduce is operator.add:
        # 0.0 + -0.0 is 0.0, while -0.0 leaves every double as it is.
        return Folding(0 if bits else -0.0, bits, True, np.add.at)
    if reduce is min:
        return Folding(_INTEGERS.max if bits else _DOUBLES, bits, False, np.minimum.at)
    if reduce is max:
        return Folding(_INTEGERS.min if bits else -_DOUBLES, bits, False, np.maximum.at)
    return None


def _odd(numbers: Numbers) -> Mask:
    """Return for which doubles the result of ``min`` and ``max`` depends on the order."""
    odd: Mask = np.isnan(numbers) | ((numbers == 0) & np.signbit(numbers))
    return odd
