"""compare() must see every way in which rows can go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from examples.demo.verdict import Difference, compare

SCHEMA = pa.schema([("tailnum", pa.string()), ("flights", pa.int64()), ("delays", pa.list_(pa.int32()))])
ROWS = [("N1", 3, [1, 2, 3]), ("N2", 1, [7]), ("N2", 1, [7]), (None, 4, [None, 20, 30])]


@pytest.mark.parametrize(
    ("actual", "missing", "extra"),
    [
        pytest.param(list(reversed(ROWS)), 0, 0, id="equal in another order"),
        pytest.param(ROWS[1:], 1, 0, id="a row lost"),
        pytest.param([*ROWS[:2], ROWS[3]], 1, 0, id="one of two equal rows lost"),
        pytest.param([*ROWS, ROWS[0]], 0, 1, id="a row doubled"),
        pytest.param([*ROWS, ROWS[1]], 0, 1, id="a doubled row tripled"),
        pytest.param([("N1", 3, [1, 3, 2]), *ROWS[1:]], 1, 1, id="array order changed"),
        pytest.param([("N1", 2, [1, 2, 3]), *ROWS[1:]], 1, 1, id="a number changed"),
        pytest.param([("", 4, [None, 20, 30]), *ROWS[:3]], 1, 1, id="null became empty"),
        pytest.param([ROWS[0], ROWS[0], *ROWS[2:]], 1, 1, id="one lost and another doubled"),
        pytest.param([], 4, 0, id="all lost"),
    ],
)
def test_compare_counts_missing_and_extra_rows(
    frame: Callable[..., Any], actual: list[tuple[Any, ...]], missing: int, extra: int
) -> None:
    found, wanted = frame(actual, SCHEMA), frame(ROWS, SCHEMA)
    difference = compare(found, wanted, "rows")
    assert (difference.missing, difference.extra) == (missing, extra)
    assert (difference.expected_rows, difference.actual_rows) == (len(ROWS), len(actual))
    assert difference.exact == (missing == extra == 0)
    assert bool(difference.examples) != difference.exact
    assert (wanted.exceptAll(found).count(), found.exceptAll(wanted).count()) == (missing, extra)


def test_compare_of_nothing_with_nothing_is_exact(frame: Callable[..., Any]) -> None:
    assert compare(frame([], SCHEMA), frame([], SCHEMA), "rows") == Difference("rows", 0, 0, 0, 0)


def test_at_most_five_examples_are_given_and_they_say_what_differs(frame: Callable[..., Any]) -> None:
    wanted = [(f"N{i}", i, [i]) for i in range(8)]
    difference = compare(frame([], SCHEMA), frame(wanted, SCHEMA), "rows")
    assert len(difference.examples) == 5
    assert difference.examples[0] == "expected 1x, found 0x: tailnum=N0, flights=0, delays=[0]"


def test_a_missing_column_or_another_type_is_refused(frame: Callable[..., Any]) -> None:
    good = frame(ROWS, SCHEMA)
    with pytest.raises(ValueError, match=r"found flights: None in 'rows'; expected flights: bigint"):
        compare(good.drop("flights"), good, "rows")
    with pytest.raises(ValueError, match=r"found flights: int in 'rows'; expected flights: bigint"):
        compare(good.withColumn("flights", good.flights.cast("int")), good, "rows")


def test_further_columns_of_the_actual_rows_do_not_count(frame: Callable[..., Any]) -> None:
    good = frame(ROWS, SCHEMA)
    assert compare(good.selectExpr("1 AS lineage", "*"), good, "rows").exact
