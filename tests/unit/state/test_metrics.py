"""Metrics of functions: what they count, what is refused, and how they add up over subtasks and epochs."""

from __future__ import annotations

import math
import random
import sys
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from statecore import KeyedProcessFunction, OutputTag
from statecore.errors import ConfigurationError, StateError
from statecore.model.metrics import MetricFigure, MetricKind, after, bucket_of, merged
from statecore.state.metrics import MOST, Metrics
from statecore.testing import KeyedOperatorHarness

Row = namedtuple("Row", ["k", "n"])
COUNTER, GAUGE, HISTOGRAM = MetricKind


class Measured(KeyedProcessFunction):
    def open(self, ctx: Any) -> None:
        self.metrics = ctx.metrics
        self.rows = ctx.metrics.counter("rows")
        self.newest = ctx.metrics.gauge("newest")
        self.sizes = ctx.metrics.histogram("sizes")

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.rows.inc()
        self.newest.set(value.n)
        self.sizes.update(value.n)
        if value.n < 0:
            raise ValueError(value.n)
        if value.n == 13:
            self.metrics.counter("late")
        yield value.k, value.n


def test_a_function_has_its_metrics_by_name() -> None:
    harness = KeyedOperatorHarness(Measured())
    assert [figure.count for figure in harness.metrics.values()] == [0, 0, 0]
    for n in (1, 8, 3):
        harness.process(Row("a", n))
    rows, newest, sizes = harness.metrics.values()
    assert rows == MetricFigure("rows", COUNTER, total=3)
    assert newest == MetricFigure("newest", GAUGE, 1, 3, 3, 3)
    assert sizes == MetricFigure("sizes", HISTOGRAM, 3, 12, 1, 8, ((0, 1), (2, 1), (3, 1)))


def test_a_dead_letter_counts_in_no_metric() -> None:
    harness = KeyedOperatorHarness(Measured(), on_error=OutputTag("bad", "error string"))
    harness.process(Row("a", 5))
    before = harness.metrics
    harness.process(Row("a", -1))
    assert len(harness.side_output(OutputTag("bad", "error string"))) == 1
    assert harness.metrics == before
    harness.process(Row("a", 6))
    assert harness.metrics["rows"].total == 2 and harness.metrics["newest"].total == 6


def test_what_cannot_be_a_metric_is_refused() -> None:
    metrics = Metrics()
    for name in ("", "1st", "a b", "a-b", "ä", 3):
        with pytest.raises(ConfigurationError, match="expected a name of letters, digits and '_'"):
            metrics.counter(name)  # type: ignore[arg-type]
    assert metrics.counter("a") is metrics.counter("a")
    with pytest.raises(ConfigurationError, match=r"found the metric 'a' as counter and as gauge; .*; rename one"):
        metrics.gauge("a")
    for n in (-1, 1.5, math.nan, True, "1"):
        with pytest.raises(StateError, match=r"found inc\(.*\) of a counter; expected an integer of 0 .*; use a gauge"):
            metrics.counter("a").inc(n)  # type: ignore[arg-type]
    for value in (math.nan, math.inf, "3", None, True):
        with pytest.raises(StateError, match="expected a finite number"):
            metrics.gauge("b").set(value)  # type: ignore[arg-type]
        with pytest.raises(StateError, match="expected a finite number"):
            metrics.histogram("c").update(value)  # type: ignore[arg-type]
    assert [figure.count for figure in metrics.figures()] == [0, 0, 0]
    for number in range(MOST - 3):
        metrics.counter(f"n{number}")
    with pytest.raises(ConfigurationError, match="found more than 100 metrics"):
        metrics.counter("one_more")
    with pytest.raises(StateError, match=r"found the metric 'late' asked for while .* expected it in open\(\)"):
        KeyedOperatorHarness(Measured()).process(Row("a", 13))


def test_numbers_of_numpy_and_very_large_ones_stay_numbers_that_a_manifest_can_hold() -> None:
    metrics = Metrics()
    integer: Any = np.int64(3)
    metrics.counter("c").inc(integer)
    metrics.counter("big").inc(2**70)
    metrics.gauge("g").set(np.float64(1.5))
    metrics.gauge("largest").set(sys.float_info.max)
    metrics.histogram("h").update(integer)
    metrics.histogram("h").update(sys.float_info.max)
    metrics.histogram("h").update(sys.float_info.max)
    figures = metrics.figures()
    both = merged([*figures, *figures])
    for each in (*figures, *both, *after(both, both)):
        assert msgspec.json.decode(msgspec.json.encode(each), type=MetricFigure) == each
    histogram = {each.name: each for each in both}["h"]
    assert histogram.total == histogram.quantile(0.99) == sys.float_info.max


def test_a_bucket_holds_what_is_at_most_its_power_of_two() -> None:
    assert [bucket_of(value) for value in (-3, 0, 0.25, 0.3, 1, 1.5, 2, 1000, 1024, 1025)] == [
        None, None, -2, -1, 0, 1, 1, 10, 10, 11,
    ]  # fmt: skip


def histogram(values: list[float]) -> MetricFigure:
    metrics = Metrics()
    made = metrics.histogram("h")
    for value in values:
        made.update(value)
    return metrics.figures()[0]


def test_a_quantile_is_at_most_twice_too_large() -> None:
    values = [random.Random(7).lognormvariate(2, 2) for _ in range(1_000)] + [-1.0, 0.0]
    figure = histogram(values)
    for share in (0.5, 0.9, 0.99, 1):
        exact = sorted(values)[math.ceil(share * len(values)) - 1]
        found = figure.quantile(share)
        assert found is not None and exact <= found <= min(2 * exact, max(values))
    assert histogram([-2, -1, 0]).quantile(0.5) == 0 and histogram([]).quantile(0.5) is None


def test_subtasks_and_epochs_add_up_as_if_one_had_seen_all() -> None:
    parts = [[1.0, 5.0], [], [9.0, 0.0, 0.5], [1e6]]
    (together,) = merged(histogram(part) for part in parts)
    assert together == histogram([value for part in parts for value in part])
    epochs: tuple[MetricFigure, ...] = ()
    for part in parts:
        epochs = after(epochs, [histogram(part)])
    assert epochs == (together,)


def test_over_epochs_a_counter_goes_on_and_a_gauge_has_its_newest_value() -> None:
    def counted(total: int) -> MetricFigure:
        return MetricFigure("c", COUNTER, total=total)

    def gauge(*values: int) -> MetricFigure:
        return merged([MetricFigure("g", GAUGE, 1, value, value, value) for value in values])[0]

    unset = MetricFigure("g", GAUGE)
    first = after((), [counted(3), gauge(4, 9)])
    second = after(first, [counted(0), unset])
    assert second == first and second[1] == MetricFigure("g", GAUGE, 2, 13, 4, 9)
    third = after(second, [counted(2), gauge(1)])
    assert third == (counted(5), gauge(1))
    # One that the function no longer keeps is gone, and another kind begins anew.
    assert after(third, [MetricFigure("c", GAUGE)]) == (MetricFigure("c", GAUGE),)


def test_figures_are_the_same_after_a_way_through_json() -> None:
    figure = histogram([-1, 0.1, 7])
    assert msgspec.json.decode(msgspec.json.encode(figure), type=MetricFigure) == figure
