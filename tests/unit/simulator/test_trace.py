"""Traces: what arrived until when, and files that do not fit."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ConfigurationError
from statecore.simulator import Trace, parse_trace
from tests.support.examples import examples

RATES = st.lists(st.one_of(st.just(0.0), st.floats(1, 1e5)), min_size=1, max_size=8)


def test_each_rate_holds_until_the_next_line_and_the_last_line_ends_the_trace() -> None:
    trace = parse_trace("t_s,rows_per_s\n0,100\n10,0\n\n20,5.5\n30,7\n", "t.csv")
    assert trace.end_s == 30
    assert [trace.arrived(at_s) for at_s in (0, 5, 10, 20, 22, 30, 99)] == [0, 500, 1000, 1000, 1011, 1055, 1055]
    assert [trace.when(rows) for rows in (0, 999, 1000, 1011)] == [0, 9.99, 20, 22]
    assert trace.when(1055) == math.inf


def test_a_trace_may_begin_later_than_0() -> None:
    trace = parse_trace("t_s,rows_per_s\n100,1\n200,0\n", "t.csv")
    assert (trace.end_s, trace.arrived(50), trace.began_s) == (100, 50, 100)


@examples(100)
@given(rates=RATES, share=st.floats(0, 1))
def test_when_is_the_inverse_of_arrived(rates: list[float], share: float) -> None:
    trace = Trace(list(range(0, 10 * len(rates) + 1, 10)), rates)
    rows = share * trace.arrived(trace.end_s)
    at_s = trace.when(rows)
    assert at_s == math.inf or trace.arrived(at_s) == pytest.approx(rows, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "found nothing; expected the header t_s,rows_per_s"),
        ("time,rate\n0,1\n", 1, "found time,rate"),
        ("t_s,rows_per_s\n0,1\n1,x\n", 3, "found 1,x; expected two numbers"),
        ("t_s,rows_per_s\n0,1\n1\n", 3, "expected two numbers"),
        ("t_s,rows_per_s\n0,1\n1,-2\n", 3, "at least 0"),
        ("t_s,rows_per_s\n0,1\nnan,2\n", 3, "a finite time"),
        ("t_s,rows_per_s\n5,1\n5,2\n", 3, "found time 5; expected a later time than 5"),
        ("t_s,rows_per_s\n5,1\n", 2, "at least two lines"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_with_its_line(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse_trace(text, "t.csv")
    assert f"t.csv, line {line}: " in str(refused.value) and said in str(refused.value)
