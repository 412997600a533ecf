"""State that follows from the tables of a savepoint: the timers of windows and joins, and the sessions of a key.

A function that acts in timers never looks again at state without any: a window whose key gets no further record would
stay for good. Which timers a window or a join needs is known from its definition; those of other functions are given
as a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from statecore.windows import GlobalWindows, WindowAssigner, WindowFunction
from statecore.windows.assigners import GLOBAL_WINDOW, SessionWindows
from statecore.windows.sessions import SESSIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Rows = tuple[StateSchema, "DataFrame"]
"""A state, and its rows with the columns of a base file."""

_BOUNDS = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True, slots=True)
class Given:
    """What tables give of an operator's keyed state.

    Attributes:
        uid: The operator.
        function: Its function.
        keys: The key columns.
        states: Each state with its rows.
        timers: The table of timers, or None.

    """

    uid: str
    function: UserFunction
    keys: Sequence[str]
    states: Sequence[tuple[StateDescriptor, DataFrame]]
    timers: DataFrame | None


def windows_of(function: UserFunction) -> WindowFunction | None:
    """Return the windows of a function; None of one without."""
    if isinstance(function, CoGroupWindowFunction):
        return function.both_sides
    return function if isinstance(function, WindowFunction) else None


def in_global_window(df: DataFrame) -> DataFrame:
    """Return state of keys as state of the window that ``GlobalWindows`` has."""
    start, end = (F.lit(bound).cast("bigint") for bound in GLOBAL_WINDOW)
    return df.withColumns({"window_start": start, "window_end": end})


def implied(given: Given) -> list[Rows]:
    """Return the state that follows from what is given.

    Raises:
        ConfigurationError: The function acts in timers and there is no table of them, or it takes none; a state is not
            one of a window function; or windows are none that the function's records could be in.

    """
    windows = windows_of(given.function)
    if windows is not None or isinstance(given.function, IntervalJoinFunction):
        if given.timers is not None:
            raise ConfigurationError(
                f"found a table of timers for operator {given.uid!r}, which has windows or joins; expected none, "
                "because they follow from its state; leave it out"
            )
        return list(_of_join(given) if windows is None else _of_windows(given, windows))
    for descriptor, rows in given.states:
        if WINDOW_START in rows.columns:
            raise ConfigurationError(
                f"found windows for state {descriptor.name!r} of operator {given.uid!r}; expected none, because its "
                "function is no window function; drop window_start and window_end"
            )
    if given.timers is None:
        if fires_timers(given.function):
            raise ConfigurationError(
                f"found no table of timers for operator {given.uid!r}; expected one, because its function acts in "
                f"on_timer, and state without a timer may stay for good; pass timers={{{given.uid!r}: …}}, a DataFrame "
                "with the key columns and event_time_ms or processing_time_ms; it may be empty"
            )
        return []
    return list(_given_timers(given, given.timers))


def earliest_ms(states: Sequence[Rows], *, processing_time: bool) -> int | None:
    """Return the earliest timer of a time domain in ms; None without any."""
    found = [
        rows.select(F.min(F.array_min(VALUE))).collect()[0][0]
        for schema, rows in states
        if schema.kind is StateKind.TIMERS and (schema.name == PROCESSING_TIMERS) == processing_time
    ]
    return min((each for each in found if each is not None), default=None)


def _of_windows(given: Given, function: WindowFunction) -> Iterator[Rows]:
    for descriptor, rows in given.states:
        what = f"state {descriptor.name!r} of operator {given.uid!r}"
        contents = function.contents
        if (descriptor.name, descriptor.kind) != (contents.name, contents.kind):
            raise ConfigurationError(
                f"found the {descriptor.kind} {what}, a window function; expected only its contents, the "
                f"{contents.kind} state {contents.name!r}; give that"
            )
        if isinstance(function.windows, GlobalWindows):
            continue
        if WINDOW_START not in rows.columns:
            raise ConfigurationError(
                f"found no windows for {what}; expected window_start and window_end, because its function keeps state "
                "per window; add these columns, in ms, the end exclusive"
            )
        if isinstance(function.windows, SessionWindows):
            _require_apart(rows, given.keys, what)
            yield _sessions(rows, given.keys)
        else:
            _require_assigned(function.windows, rows, what)
        # As in Flink, a window is not cleared at the end of time.
        timer = F.least(F.col(WINDOW_END) + function.first_timer_ms, F.lit(MAX_TIMESTAMP_MS))
        timers = rows.where(timer < MAX_TIMESTAMP_MS)
        yield _timers(WINDOW_TIMERS, timers.select(*_columns([*given.keys, *_BOUNDS]), F.array(timer).alias(VALUE)))


def _of_join(given: Given) -> Iterator[Rows]:
    """One timer per key is enough: when it fires, the next one is registered."""
    assert isinstance(given.function, IntervalJoinFunction)
    kept_ms = given.function.kept_ms
    dues = None
    for descriptor, rows in given.states:
        if descriptor.name not in kept_ms or descriptor.kind is not StateKind.MAP:
            raise ConfigurationError(
                f"found the {descriptor.kind} state {descriptor.name!r} of operator {given.uid!r}, an interval join; "
                f"expected only its buffers, the map states {sorted(kept_ms)}, from event time in ms to records; give "
                "those"
            )
        due = (F.col(MAP_KEY) + kept_ms[descriptor.name]).alias(VALUE)
        own = rows.select(*_columns(given.keys), due)
        dues = own if dues is None else dues.union(own)
    if dues is not None:
        first = dues.groupBy(*_columns(given.keys)).agg(F.array(F.min(VALUE)).alias(VALUE))
        yield _timers(EVENT_TIMERS, first)


def _given_timers(given: Given, timers: DataFrame) -> Iterator[Rows]:
    domains = [name for name in DOMAINS if name in timers.columns]
    wrong = [name for name in domains if timers.schema[name].dataType.simpleString() != "bigint"]
    if not domains or wrong:
        raise ConfigurationError(
            f"found the columns {timers.columns} for the timers of operator {given.uid!r}; expected "
            f"{' or '.join(DOMAINS)} of type bigint beside the key; select, rename or cast them"
        )
    for name in domains:
        times = F.array_sort(F.collect_set(column(name)))
        rows = timers.where(column(name).isNotNull()).groupBy(*_columns(given.keys)).agg(times.alias(VALUE))
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


def _require_apart(rows: DataFrame, keys: Sequence[str], what: str) -> None:
    from pyspark.sql import Window as Frame

    frame = Frame.partitionBy(*_columns(keys)).orderBy(*_BOUNDS)
    before = rows.select(*_columns([*keys, *_BOUNDS]), F.lag(WINDOW_END).over(frame).alias("_before"))
    bad = before.where((F.col(WINDOW_START) >= F.col(WINDOW_END)) | (F.col(WINDOW_START) < F.col("_before"))).first()
    if bad is not None:
        raise ConfigurationError(
            f"found the session {bad[WINDOW_START]} to {bad[WINDOW_END]} of the key "
            f"{ {name: bad[name] for name in keys} } for {what}; expected sessions of a key one after the other, the "
            "end exclusive; merge those that overlap"
        )


def _require_assigned(windows: WindowAssigner, rows: DataFrame, what: str) -> None:
    """Windows are few: keys share them."""
    for start, end in rows.select(*_BOUNDS).distinct().toLocalIterator():
        if start is None or end is None or Window(start, end) not in windows.assign(start):
            raise ConfigurationError(
                f"found the window {start} to {end} for {what}; expected one of {windows!r}, because no record would "
                "get into another; correct the columns, in ms, the end exclusive, or the job's windows"
            )


def _columns(names: Sequence[str]) -> list[Column]:
    return [column(name) for name in names]
