"""State that goes with the tables of a savepoint: timers of windows and joins, and the list of a key's sessions.

A function that acts in timers never looks again at state without any: a window whose key gets no further record would
stay for good. Which timers a window or a join needs is known from its definition; those of other functions are given
as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import Window as Frame
from pyspark.sql import functions as F

from statecore.errors import ConfigurationError
from statecore.functions import UserFunction
from statecore.joins.interval import IntervalJoinFunction
from statecore.joins.windows import CoGroupWindowFunction
from statecore.model import StateDescriptor, StateKind
from statecore.model.ttl import MAX_TIMESTAMP_MS
from statecore.runtime.offline.tables import DOMAINS
from statecore.runtime.placement import column
from statecore.snapshot.keyed_files import MAP_KEY, VALUE, WINDOW_END, WINDOW_START
from statecore.snapshot.manifest import StateSchema
from statecore.state import Window
from statecore.state.contexts import WINDOW_TIMERS
from statecore.state.process import fires_timers
from statecore.state.timers import EVENT_TIMERS, PROCESSING_TIMERS
from statecore.windows import (
    EventTimeSessionWindows,
    GlobalWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    WindowAssigner,
    WindowFunction,
)
from statecore.windows.assigners import SessionWindows
from statecore.windows.sessions import SESSIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Rows = tuple[StateSchema, "DataFrame"]
"""A state, and its rows with the columns of a base file."""

_BOUNDS = (WINDOW_START, WINDOW_END)
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class KeyedTables:
    """The keyed state of an operator, as a savepoint is made from it.

    Attributes:
        uid: The operator.
        keys: The key columns.
        states: Each state with its rows.
        timers: The table of timers, or None.

    """

    uid: str
    keys: Sequence[str]
    states: Sequence[tuple[StateDescriptor, DataFrame]]
    timers: DataFrame | None


def windows_of(function: UserFunction) -> WindowFunction | None:
    """Return the windows of a function; None of one without."""
    if isinstance(function, CoGroupWindowFunction):
        return function.in_windows
    return function if isinstance(function, WindowFunction) else None


def implied(tables: KeyedTables, function: UserFunction) -> list[Rows]:
    """Return the state that an operator needs besides its tables.

    Raises:
        ConfigurationError: The function acts in timers and there is no table of them, or it takes none; a state is not
            one of a window function or a join; or windows are none that the function's records could be in.

    """
    windows = windows_of(function)
    takes_timers = windows is None and not isinstance(function, IntervalJoinFunction) and fires_timers(function)
    if tables.timers is not None and not takes_timers:
        raise ConfigurationError(
            f"found a table of timers for operator {tables.uid!r}; expected none, because its function has no "
            "on_timer, or is one of windows or a join, whose state says which timers it needs; leave it out, or "
            "correct the uid"
        )
    if windows is not None:
        return list(_of_windows(tables, windows, knows_type=windows is function))
    if isinstance(function, IntervalJoinFunction):
        return list(_of_join(tables, function))
    if tables.timers is not None:
        return list(_given_timers(tables, tables.timers))
    if takes_timers:
        raise ConfigurationError(
            f"found no table of timers for operator {tables.uid!r}; expected one, because its function acts in "
            f"on_timer, and state without a timer may stay for good; pass timers={{{tables.uid!r}: …}}, a DataFrame "
            f"with the key columns and {' or '.join(DOMAINS)}; it may be empty"
        )
    return []


def earliest_ms(states: Sequence[Rows], *, processing_time: bool) -> int | None:
    """Return the earliest timer of a time domain in ms; None without any."""
    found = [
        rows.select(F.min(F.array_min(VALUE))).collect()[0][0]
        for schema, rows in states
        if schema.kind is StateKind.TIMERS and (schema.name == PROCESSING_TIMERS) == processing_time
    ]
    return min((each for each in found if each is not None), default=None)


def _of_windows(tables: KeyedTables, function: WindowFunction, *, knows_type: bool) -> Iterator[Rows]:
    """Of a co-group, the contents' type is known only with the columns of its streams."""
    contents = function.contents
    for descriptor, rows in tables.states:
        what = f"state {descriptor.name!r} of operator {tables.uid!r}"
        same = (descriptor.name, descriptor.kind, descriptor.ttl) == (contents.name, contents.kind, contents.ttl)
        if not same or (knows_type and descriptor.type_ddl() != contents.type_ddl()):
            raise ConfigurationError(
                f"found the {descriptor.kind} {what}, a window function; expected only its contents, the "
                f"{contents.kind} state {contents.name!r}, as the job declares it; give that"
            )
        if isinstance(function.windows, GlobalWindows):
            if function.fires_by_time:
                raise ConfigurationError(
                    f"found {what}, which has GlobalWindows that fire at intervals; expected windows with an end, or a "
                    "trigger that counts, because the state does not say when the next interval ends; begin without "
                    "this state, or change the job"
                )
            continue
        if isinstance(function.windows, SessionWindows):
            _require_apart(function.windows, rows, tables.keys, what)
            yield _sessions(rows, tables.keys)
        else:
            _require_assigned(function.windows, rows, what)
        offset = function.first_timer_after_end_ms
        # As in Flink, a window is not cleared at the end of time.
        ending = rows.where(F.col(WINDOW_END) < MAX_TIMESTAMP_MS - max(offset, 0))
        timers = F.array(F.col(WINDOW_END) + offset).alias(VALUE)
        yield _timers(WINDOW_TIMERS, ending.select(*_columns([*tables.keys, *_BOUNDS]), timers))


def _of_join(tables: KeyedTables, function: IntervalJoinFunction) -> Iterator[Rows]:
    """One timer per key is enough: when it fires, the next one is registered."""
    kept_ms = function.kept_ms
    dues = None
    for descriptor, rows in tables.states:
        by_time = descriptor.kind is StateKind.MAP and descriptor.type_ddl().startswith("map<bigint,array<struct<")
        if descriptor.name not in kept_ms or not by_time:
            raise ConfigurationError(
                f"found the {descriptor.kind} state {descriptor.name!r} of type {descriptor.type_ddl()} of operator "
                f"{tables.uid!r}, an interval join; expected only its buffers, the map states {sorted(kept_ms)}, from "
                "event time in ms as bigint to an array of records; give those"
            )
        due = (F.col(MAP_KEY) + kept_ms[descriptor.name]).alias(VALUE)
        own = rows.select(*_columns(tables.keys), due)
        dues = own if dues is None else dues.union(own)
    if dues is not None:
        first = dues.groupBy(*_columns(tables.keys)).agg(F.array(F.min(VALUE)).alias(VALUE))
        yield _timers(EVENT_TIMERS, first)


def _given_timers(tables: KeyedTables, timers: DataFrame) -> Iterator[Rows]:
    domains = [name for name in DOMAINS if name in timers.columns]
    wrong = [name for name in domains if timers.schema[name].dataType.simpleString() != "bigint"]
    if not domains or wrong or not DOMAINS.keys().isdisjoint(tables.keys):
        raise ConfigurationError(
            f"found the columns {timers.columns} for the timers of operator {tables.uid!r}; expected "
            f"{' or '.join(DOMAINS)} of type bigint beside the key {list(tables.keys)}; select, rename or cast them"
        )
    neither = timers.where(F.coalesce(*_columns(domains)).isNull()).first()
    if neither is not None:
        raise ConfigurationError(
            f"found {neither.asDict()} among the timers of operator {tables.uid!r}; expected a time in each row, in "
            "ms; correct or remove it"
        )
    for name in domains:
        times = F.array_sort(F.collect_set(column(name)))
        rows = timers.where(column(name).isNotNull()).groupBy(*_columns(tables.keys)).agg(times.alias(VALUE))
        yield _timers(DOMAINS[name], rows)


def _timers(name: str, rows: DataFrame) -> Rows:
    windowed = WINDOW_START in rows.columns
    return StateSchema(name=name, scope="keyed", kind=StateKind.TIMERS, type="bigint", windowed=windowed), rows


def _sessions(rows: DataFrame, keys: Sequence[str]) -> Rows:
    """The state of a session lies in the window that it has when it is written."""
    start, end = map(F.col, _BOUNDS)
    each = F.struct(start.alias("start"), end.alias("end"), start.alias("state_start"), end.alias("state_end"))
    listed = F.array_sort(F.collect_list(each)).alias(VALUE)
    schema = StateSchema(name=SESSIONS.name, scope="keyed", kind=StateKind.LIST, type=SESSIONS.type_ddl())
    return schema, rows.groupBy(*_columns(keys)).agg(listed)


def _require_apart(windows: SessionWindows, rows: DataFrame, keys: Sequence[str], what: str) -> None:
    shortest_ms = windows.gap // _MS if isinstance(windows, EventTimeSessionWindows) else 1
    start, end = map(F.col, _BOUNDS)
    frame = Frame.partitionBy(*_columns(keys)).orderBy(*_BOUNDS)
    checked = rows.select(
        *_columns(keys), start, end, (end - start < shortest_ms).alias(VALUE), F.lag(end).over(frame).alias(MAP_KEY)
    )
    bad = checked.where(F.col(VALUE) | (start <= F.col(MAP_KEY))).first()
    if bad is None:
        return
    session = f"the session {bad[WINDOW_START]} to {bad[WINDOW_END]} of the key { {name: bad[name] for name in keys} }"
    if bad[VALUE]:
        raise ConfigurationError(
            f"found {session} for {what}; expected an end at least {shortest_ms} ms after the start, because a session "
            "ends a gap after its last record; correct the bounds, in ms"
        )
    raise ConfigurationError(
        f"found {session} for {what}, which touches or overlaps another; expected sessions of a key apart from each "
        "other, because records merge those that touch; merge them"
    )


def _require_assigned(windows: WindowAssigner, rows: DataFrame, what: str) -> None:
    if isinstance(windows, TumblingEventTimeWindows | SlidingEventTimeWindows):
        # Spark finds one, however many there are.
        every = windows.slide if isinstance(windows, SlidingEventTimeWindows) else windows.size
        size, offset = windows.size // _MS, windows.offset // _MS
        start, end = map(F.col, _BOUNDS)
        rows = rows.where((end != start + size) | (F.pmod(start - offset, F.lit(every // _MS)) != 0)).limit(1)
    for start, end in rows.select(*_BOUNDS).distinct().toLocalIterator():
        if Window(start, end) not in windows.assign(start):
            raise ConfigurationError(
                f"found the window {start} to {end} for {what}; expected one of {windows!r}, because records never "
                "fall into other windows; correct the bounds, in ms with the end exclusive, or the job's windows"
            )


def _columns(names: Sequence[str]) -> list[Column]:
    return [column(name) for name in names]
