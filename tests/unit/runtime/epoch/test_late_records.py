"""A side output for late records fits the records, or the job is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore import KeyedProcessFunction, OutputTag
from statecore.errors import JobDefinitionError, StatecoreError
from statecore.model import parse_row
from statecore.runtime import Job
from statecore.runtime.epoch.operator import operator_spec
from statecore.snapshot.checkpoints import CheckpointStore


class Nothing(KeyedProcessFunction):
    """Does nothing."""

    def process_element(self, value: Any, ctx: Any) -> None:
        return None


def described(late: Any, event_time: str | None = "at") -> Job:
    job = Job()
    stream = job.source("in", read=lambda spark: spark.range(1), event_time=event_time)
    stream.key_by("k").process(Nothing(), output="n int", uid="op", late=late)
    return job


def specified(late: OutputTag, folder: Path) -> Any:
    (plan,) = described(late).operators
    columns = parse_row("k string, at timestamp, m map<string,int>")
    store = CheckpointStore.at(str(folder))
    return operator_spec(plan, [plan], lambda _: columns, store, 128, allow_non_restored_state=False)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no event time": (lambda: described(OutputTag("late", "k string"), None), "source 'in' has no event time"),
    "the name of a tag": (lambda: described("late"), "late='late' for operator 'op'; expected an OutputTag"),
    "columns that cannot be read": (lambda: described(OutputTag("late", "k strong")), "strong"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_late_records_that_cannot_be_told_are_refused_where_the_job_is_described(case: str) -> None:
    describe, message = REFUSED[case]
    with pytest.raises(StatecoreError, match=message):
        describe()


@pytest.mark.parametrize(
    "columns",
    ["k string", "at timestamp, k string, m map<string,int>", "k string, at timestamp_ntz, m map<string,int>"],
)
def test_the_columns_of_late_records_must_be_those_of_the_records(columns: str, tmp_path: Path) -> None:
    with pytest.raises(JobDefinitionError, match=r"late output 'late' of operator 'op' .* expected those of its input"):
        specified(OutputTag("late", columns), tmp_path)


def test_columns_may_be_written_in_any_way(tmp_path: Path) -> None:
    late = OutputTag("late", "struct<k: STRING, at: timestamp, m: MAP<string, integer>>")
    assert specified(late, tmp_path).late == late
