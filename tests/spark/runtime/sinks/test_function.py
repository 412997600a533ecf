"""FunctionSink: a function of (DataFrame, lineage, epoch), called on real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import SinkError
from statecore.runtime import FunctionSink
from tests.support.epochs import Calls, Epochs


@pytest.fixture
def epochs(epochs: Epochs, spark: Any) -> Epochs:
    epochs.spark = spark
    return epochs


def test_the_function_gets_rows_lineage_and_epoch_once(epochs: Epochs) -> None:
    calls = Calls()
    sink = FunctionSink(calls)
    outputs = epochs.staged(sink, [(1, "a"), (2, None)]) + epochs.staged(sink, [(1, "a")])
    epochs.staged(sink, [(9, "a lost attempt")])
    committed = epochs.committed(outputs)
    for _ in range(3):
        epochs.publish(sink, committed)
    epochs.run(sink, [(3, "b")], 2, 5)
    assert calls.calls == [(Counter({(1, "a"): 2, (2, None): 1}), 1, 5), (Counter([(3, "b")]), 2, 5)]
    assert [entry.path for entry in epochs.store.files.list("_published")] == ["_published/seen/2-5"]
    assert epochs.store.files.list("_staged") == []


def test_an_epoch_without_rows_is_no_call(epochs: Epochs) -> None:
    calls = Calls()
    epochs.run(FunctionSink(calls), [])
    assert calls.calls == []


def test_a_function_that_fails_is_called_again_when_the_epoch_is_published_again(epochs: Epochs) -> None:
    calls = Calls()
    calls.failures = 1
    sink = FunctionSink(calls)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
    with pytest.raises(SinkError, match=r"found ValueError .* sink 'seen' .*far side is down; expected .*; .*fix"):
        epochs.publish(sink, committed)
    for _ in range(2):
        epochs.publish(sink, committed)
    assert calls.calls == [(Counter([(1, "a")]), 1, 5)] * 2


def test_a_driver_killed_before_the_marker_leaves_the_epoch_to_be_done_again(epochs: Epochs) -> None:
    calls = Calls()
    sink = FunctionSink(calls)
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))

    def killed(dataframe: Any, lineage: int, epoch: int) -> None:
        calls(dataframe, lineage, epoch)
        raise KeyboardInterrupt

    sink_alone = FunctionSink(killed)
    with pytest.raises(KeyboardInterrupt):
        epochs.publish(sink_alone, committed)
    epochs.publish(sink, committed)
    assert len(calls.calls) == 2


def test_the_dataframe_has_the_types_that_the_job_declares(epochs: Epochs) -> None:
    schema = (
        "b boolean, y tinyint, n int, f float, d decimal(9,2), t timestamp, l timestamp_ntz, x binary, "
        "a array<struct<k:string,v:bigint>>, m map<string,array<double>>"
    )
    found = []

    def f(dataframe: Any, lineage: int, epoch: int) -> None:
        found.append((dataframe.schema, dataframe.collect()))

    epochs.run(FunctionSink(f), [(True, 1, 2, 0.5, None, None, None, b"x", [("k", 1)], {"a": [0.5]})], schema=schema)
    ((found_schema, (row,)),) = found
    assert found_schema == epochs.spark.createDataFrame([], schema).schema
    assert (row.n, row.a[0].v, row.m) == (2, 1, {"a": [0.5]})


def test_a_flipped_byte_in_a_staged_file_fails_the_function(epochs: Epochs) -> None:
    sink = FunctionSink(Calls())
    committed = epochs.committed(epochs.staged(sink, [(1, "a")]))
    file = Path(epochs.store.describe(committed.outputs[0].file.path))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(SinkError, match=f"(?s)found {file} .*SHA-256"):
        epochs.publish(sink, committed)
