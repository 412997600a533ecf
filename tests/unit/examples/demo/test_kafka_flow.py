"""The demo with Kafka, as far as it needs no broker."""

from __future__ import annotations

import json
import sys

import pytest

from examples.demo import __main__ as demo
from examples.demo.kafka_flow import order_of_alerts
from stack.kafka import Record


def alert(tailnum: str, day: int, *, partition: int = 0, flight: int = 1) -> Record:
    row = {"sched_dep": f"2013-01-{day:02}T05:15:00Z", "carrier": "UA", "flight": flight, "origin": "EWR"}
    return Record(partition, tailnum.encode(), json.dumps({"tailnum": tailnum, **row}).encode())


def test_alerts_are_in_order_if_those_of_each_aircraft_are() -> None:
    records = [alert("N1", 1), alert("N2", 9), alert("N1", 2), alert("N1", 2, flight=7), alert("N3", 1, partition=1)]
    found = order_of_alerts(records)
    assert (found.expected_rows, found.actual_rows, found.exact) == (3, 3, True)
    assert order_of_alerts([]).exact


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([alert("N1", 2), alert("N1", 1)], id="the later one first"),
        pytest.param([alert("N1", 1, flight=7), alert("N1", 1, flight=1)], id="within a minute"),
        pytest.param([alert("N1", 1), alert("N1", 2, partition=1)], id="in two partitions, which are read apart"),
        pytest.param([alert("N1", 1), alert("N1", 1)], id="one doubled"),
    ],
)
def test_an_aircraft_without_an_order_is_counted_and_named(records: list[Record]) -> None:
    found = order_of_alerts([*records, alert("N2", 1)])
    assert (found.expected_rows, found.actual_rows, found.missing) == (2, 1, 1)
    assert found.examples == ("expected the alerts of N1 in one partition, in order of departure",)


def test_without_jars_the_demo_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "has_jars", lambda: False)
    monkeypatch.setattr(sys, "argv", ["demo", "--kafka"])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == 2
    assert "expected a Kafka broker; run `make kafka`, which needs Maven" in capsys.readouterr().err


def test_a_demo_is_of_one_kind(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--kafka", "--query"])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == 2
    assert "not allowed with" in capsys.readouterr().err
