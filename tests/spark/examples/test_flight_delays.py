"""The job's function on all flights, in the harness that needs no Spark, against the batch truth."""

from __future__ import annotations

from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from examples import flight_delays
from examples.demo import feeder
from examples.demo.verdict import Verdict, judge
from statecore.model import parse_row
from statecore.model.types import arrow_schema
from statecore.runtime import Job
from statecore.testing import HarnessSnapshot, KeyedOperatorHarness, physical

EPOCHS = 9
FLOWN = 336_776 - 2_512 - 5_743 - 1_175
Flight = namedtuple("Flight", feeder.SCHEMA.names)  # type: ignore[misc]

TOTALS = pa.schema([("tailnum", pa.string()), ("flights", pa.int64()), ("delay_minutes", pa.int64())])
LAST_DELAYS = pa.schema([("tailnum", pa.string()), ("delays", pa.list_(pa.int32()))])


@dataclass(frozen=True)
class Run:
    """What a run over the flights left: state by key, outputs by tag, and the rejects that still wait."""

    totals: dict[tuple[Any, ...], tuple[int, int]]
    last_delays: dict[tuple[Any, ...], list[int]]
    outputs: dict[str, list[tuple[Any, ...]]]
    buffered: list[tuple[Any, ...]]


def run_epochs(rows: list[Flight], epochs: int) -> Run:
    """Process the rows in epochs, each with a function object of its own, as on a worker."""
    outputs: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    snapshots: list[HarnessSnapshot] = []
    for epoch in range(epochs):
        subtask = KeyedOperatorHarness(
            flight_delays.FlightDelays(), key=lambda flight: (flight.tailnum,), restore_from=snapshots
        )
        for row in rows[len(rows) * epoch // epochs : len(rows) * (epoch + 1) // epochs]:
            subtask.process(row)
        snapshots = [subtask.snapshot()]
        subtask.close()
        outputs[""] += subtask.output
        outputs["rejects"] += subtask.side_output(flight_delays.REJECTS)
    return Run(
        totals=physical(subtask.keyed_backend, "totals"),
        last_delays=physical(subtask.keyed_backend, "last_delays"),
        outputs=outputs,
        buffered=list(snapshots[0].operator["rejects"].elements),
    )


@pytest.fixture(scope="module")
def rows(flights_table: pa.Table) -> list[Flight]:
    columns = [column.to_pylist() for column in flights_table.columns]
    return [Flight(*row) for row in zip(*columns, strict=True)]


@pytest.fixture(scope="module")
def run(rows: list[Flight]) -> Run:
    return run_epochs(rows, EPOCHS)


@pytest.fixture
def verdict_on(flights: Any, frame: Callable[..., Any]) -> Callable[[Run], Verdict]:
    def verdict(run: Run) -> Verdict:
        reject_schema = arrow_schema(parse_row(flight_delays.REJECT))
        return judge(
            flights,
            totals=frame([(*key, *value) for key, value in run.totals.items()], TOTALS),
            last_delays=frame([(*key, value) for key, value in run.last_delays.items()], LAST_DELAYS),
            alerts=frame(run.outputs[""], arrow_schema(parse_row(flight_delays.ALERTS))),
            published_rejects=frame(run.outputs["rejects"], reject_schema),
            buffered_rejects=frame(run.buffered, reject_schema),
        )

    return verdict


def test_all_flights_in_several_epochs_give_exactly_the_truth(run: Run, verdict_on: Callable[[Run], Verdict]) -> None:
    verdict = verdict_on(run)
    assert verdict.exact, verdict
    assert [d.expected_rows for d in verdict.differences] == [4037, 4037, 8_928, 9_430]


def test_the_verdict_sees_one_lost_alert_one_doubled_reject_and_one_minute_too_many(
    run: Run, verdict_on: Callable[[Run], Verdict]
) -> None:
    key, (flown, minutes) = next(iter(run.totals.items()))
    wrong = Run(
        totals={**run.totals, key: (flown, minutes + 1)},
        last_delays=run.last_delays,
        outputs={"": run.outputs[""][1:], "rejects": [*run.outputs["rejects"], run.outputs["rejects"][0]]},
        buffered=run.buffered,
    )
    verdict = verdict_on(wrong)
    assert [(d.missing, d.extra) for d in verdict.differences] == [(1, 1), (0, 0), (1, 0), (0, 1)]


def test_every_flight_is_counted_or_rejected_for_one_reason(run: Run) -> None:
    rejects = [*run.outputs["rejects"], *run.buffered]
    assert Counter(reject[-1] for reject in rejects) == {
        "no tail number": 2_512,
        "cancelled": 5_743,
        "diverted": 1_175,
    }
    assert sum(flown for flown, _ in run.totals.values()) == FLOWN


def test_rejects_leave_the_buffer_a_hundred_at_a_time(run: Run) -> None:
    assert len(run.outputs["rejects"]) == 9_400
    assert len(run.buffered) == 30


def test_outputs_and_state_do_not_depend_on_how_the_epochs_are_cut(rows: list[Flight]) -> None:
    some = rows[:20_000]
    assert run_epochs(some, 1) == run_epochs(some, 37)


def test_a_reject_between_late_legs_does_not_break_the_row(rows: list[Flight]) -> None:
    first: Any = rows[0]
    late = first._replace(tailnum="N1", dep_time=600, arr_delay=16)
    cancelled = late._replace(dep_time=None, arr_delay=None)
    on_time = late._replace(arr_delay=15)
    assert len(run_epochs([late, late, cancelled, late, late], 2).outputs[""]) == 2
    assert len(run_epochs([late, late, on_time, late, late], 2).outputs[""]) == 0


def test_build_wires_one_source_one_operator_and_two_sinks(tmp_path: Any) -> None:
    job = Job({"input": str(tmp_path / "input"), "output": str(tmp_path / "output")})
    flight_delays.build(job)
    (operator,) = job.validated().operators
    assert (operator.uid, operator.first.key_columns) == ("flight_delays", ("tailnum",))
    assert operator.first.order_by == ("sched_dep", "carrier", "flight", "origin")
    assert [(binding.name, binding.tag) for binding in operator.sinks] == [
        ("alerts", ""),
        ("rejects", "rejects"),
    ]
