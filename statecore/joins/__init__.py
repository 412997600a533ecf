"""Joins of two keyed streams: over an interval of event time, and over windows, with Flink's semantics."""

from statecore.joins.interval import Interval, IntervalJoinFunction, JoinContext, ProcessJoinFunction
from statecore.joins.windows import CoGroupFunction, CoGroupWindowFunction, JoinFunction

__all__ = [
    "CoGroupFunction",
    "CoGroupWindowFunction",
    "Interval",
    "IntervalJoinFunction",
    "JoinContext",
    "JoinFunction",
    "ProcessJoinFunction",
]
