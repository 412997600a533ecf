from __future__ import annotations

import pytest

from statecore.queries.spark_errors import short_message


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("[A.B] First line,\n  second. SQLSTATE: 42703;\n'Aggregate ['gone]\n+- Relation", "[A.B] First line, second."),
        ("Key differs.\nOld: x.\n\tat org.apache.spark.Task.run(Task.scala:1)", "Key differs. Old: x."),
        ("Failed.\n=== Streaming Query ===\nIdentifier: 7", "Failed."),
        ('org.Failed: \nTraceback (most recent call last):\n  File "a.py", line 1\nValueError: no', "ValueError: no"),
        ("x" * 700, "x" * 600 + "…"),
    ],
)
def test_what_spark_says_is_one_short_line(said: str, words: str) -> None:
    assert short_message(said) == words
