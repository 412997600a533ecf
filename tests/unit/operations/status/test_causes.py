"""The kind of cause of an error, by the text that the catalog has of it; each kind stands in the runbook."""

from __future__ import annotations

import re

import pytest

from statecore.catalog import GenerationRecord
from statecore.operations.status.causes import (
    CLUSTER,
    CODE,
    DAMAGE,
    MEMORY,
    OTHER,
    SINK,
    SOURCE,
    STORAGE,
    Cause,
    cause_of,
)
from statecore.operations.status.runbook import runbook

CAUSES: dict[str, Cause] = {
    "orders.py:13 in check: ValueError: negative amount": CODE,
    "orders.py:13: FunctionError: found an error in 'count' on Line(text='No space left on device')": CODE,
    "JobDefinitionError: found two sinks named 'out'; expected one; rename one": CODE,
    "MaxParallelismError: found 128 key groups; expected 64; rewrite": CODE,
    "SourceError: found AccessDenied when reading s3://in/7.parquet; expected it; mend it": SOURCE,
    "AnalysisException: [PATH_NOT_FOUND] Path does not exist: file:/in": SOURCE,
    "SinkError: found No space left on device; expected room; look": SINK,
    "StorageError: found s3://store: AccessDenied; expected to write; look": STORAGE,
    "OSError: [Errno 28] No space left on device: '/store/state/7'": STORAGE,
    "orders.py:13 in add: OSError: [Errno 28] No space left on device": STORAGE,
    "MissingFileError: found no state/7.arrow; expected it; restore it": DAMAGE,
    "CheckpointDamagedError: found no state/0/1/4.delta; expected it; restore it": DAMAGE,
    "CheckpointRefusedError: found a limit; expected none; leave it out": OTHER,
    "CommitConflictError: found epoch 7 committed by another driver; expected none; wait": OTHER,
    "MissingExtraError: found no confluent_kafka; expected it; install it": OTHER,
    "found the driver ended, its JVM killed by SIGKILL; expected it to run; see its log": MEMORY,
    "Py4JJavaError: java.lang.OutOfMemoryError: Java heap space": MEMORY,
    "SparkException: All masters are unresponsive! Giving up.": CLUSTER,
    "found the driver ended with exit code 1; expected it to run; see its log": OTHER,
}


def failed(error: str | None) -> GenerationRecord:
    return GenerationRecord("orders", 1, "failed", 2, 0, 0, 1, error, "/logs/1.log", None, None)


@pytest.mark.parametrize("error", CAUSES)
def test_an_error_has_the_cause_of_its_kind_and_else_of_its_words(error: str) -> None:
    assert cause_of(failed(error)) == CAUSES[error]


def test_a_driver_that_fell_silent_is_the_clusters_and_one_without_a_word_is_not_guessed_at() -> None:
    assert cause_of(failed("no heartbeat for 21000 ms while running; see /logs/1.log")) == CLUSTER
    assert cause_of(failed(None)) == OTHER


def test_the_runbook_has_a_row_for_each_cause_that_can_be_told() -> None:
    rows = re.findall(r"^\| (\w+)[:|\s].*\|$", runbook()["crash_loop"], re.MULTILINE)
    assert set(rows) - {"cause"} == {cause.name for cause in CAUSES.values()} - {OTHER.name}
