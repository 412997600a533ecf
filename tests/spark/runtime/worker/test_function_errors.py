"""A function's own error reaches the catalog with its line, uid, subtask, epoch, key and record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench
from tests.support.jobs import failing

# The line of the job file that raised, and what is said of it.
FAILURES = {
    "element": (
        'int("thirteen")',
        r"epoch 0, key \('k11',\), record Row\(k='k11', n=13\): ValueError: invalid literal for int\(\) with .*",
    ),
    "timer": (
        "raise LookupError",
        r"epoch \d, key \('k0',\), processing_time timer 1000: LookupError: no price at 1000",
    ),
    "batch": ("PRICES[k]", r"epoch 0, last key \('k21',\), batch of 2 rows: KeyError: 'k21'"),
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
def test_the_error_of_a_function_says_where_it_was_and_on_what(spark: Any, bench: Bench, fails_in: str) -> None:
    code, told = FAILURES[fails_in]
    error = failed(bench, fails_in, {"element": [13], "timer": [0], "batch": [0, 3]}[fails_in])
    lines = Path(failing.__file__).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if code in line)
    expected = rf"failing\.py:{number} in \w+: FunctionError: uid 'failing', subtask 0, {told}"
    assert re.fullmatch(expected, error), error


def test_an_output_that_its_sink_cannot_take_is_named_itself(spark: Any, bench: Bench) -> None:
    error = failed(bench, "output", [13])
    assert re.search(
        r"FunctionError: uid 'failing', subtask 0, epoch 0: OutputTypeError: found the output \('k11', 'thirteen'\) "
        r"for sink 'seen', which does not fit: field 'n': .*; expected the columns k string, n bigint; ",
        error,
    ), error
