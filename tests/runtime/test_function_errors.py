"""A function's own error reaches the catalog with its place: uid, subtask, epoch, key and record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import Bench
from tests.runtime.jobs import failing

pytestmark = pytest.mark.spark

# What the function raised, the line of the job file that did, and what the driver says of it.
FAILURES = {
    "element": (
        "ValueError: invalid literal for int() with base 10: 'thirteen'",
        'yield value.k, int("thirteen")',
        r"key \('k11',\), record Row\(k='k11', n=13\): ValueError: invalid literal",
    ),
    "timer": (
        "LookupError: no price at 1000",
        'raise LookupError(f"no price at {timestamp_ms}")',
        r"key \('k0',\), processing_time timer 1000: LookupError: no price at 1000",
    ),
    "batch": ("KeyError: 'k21'", "PRICES[k]", r"key \('k21',\), batch of 2 rows: KeyError: 'k21'"),
}


def failed(bench: Bench, fails_in: str, numbers: list[int]) -> str:
    """Run the job until it fails, and return the error that the catalog holds."""
    bench.register(artifact=Path(failing.__file__), parallelism=1, settings={"fails_in": fails_in})
    bench.feed(numbers=numbers)
    with bench.running():
        bench.wait_failed()
    error = bench.generation().error
    assert error is not None
    return error


@pytest.mark.parametrize("fails_in", FAILURES)
def test_the_error_of_a_function_comes_first_and_then_where_it_was(spark: Any, bench: Bench, fails_in: str) -> None:
    raised, line, told = FAILURES[fails_in]
    error = failed(bench, fails_in, {"element": [13], "timer": [0], "batch": [0, 3]}[fails_in])
    place = re.search(rf"FunctionError: uid 'failing', subtask 0, epoch 0, {told}", error)
    assert place, error
    assert 0 <= error.index(line) < error.index(raised) < place.start()
    assert f'{Path(failing.__file__).name}", line ' in error[: place.start()]


def test_an_output_that_its_sink_cannot_take_is_named_itself(spark: Any, bench: Bench) -> None:
    error = failed(bench, "output", [13])
    assert re.search(
        r"FunctionError: uid 'failing', subtask 0, epoch 0: OutputTypeError: found the output \('k11', 'thirteen'\) "
        r"for sink 'seen', which does not fit: field 'n': .*; expected the columns k string, n bigint; ",
        error,
    ), error
