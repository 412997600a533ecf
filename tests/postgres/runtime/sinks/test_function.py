"""FunctionSink beside PostgresSink."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from statecore.errors import SinkError
from statecore.runtime import FunctionSink, PostgresSink
from tests.support.epochs import Calls, Epochs
from tests.support.postgres import Database


@pytest.fixture
def epochs(epochs: Epochs, spark: Any) -> Epochs:
    epochs.spark = spark
    return epochs


def test_rows_that_a_table_can_never_take_go_through_a_function_under_the_same_name(
    epochs: Epochs, database: Database
) -> None:
    table = PostgresSink(database.dsn, "seen")
    committed = epochs.committed(epochs.staged(table, [(1, "a\0b")]))
    with pytest.raises(SinkError, match="a FunctionSink of the same name"):
        epochs.publish(table, committed)
    calls = Calls()
    epochs.publish(FunctionSink(calls), committed)
    assert calls.calls == [(Counter([(1, "a\0b")]), 1, 5)]
    epochs.run(table, [(2, "b")], epoch=6)
    assert database("SELECT * FROM seen") == [(2, "b")]
