"""Output: tables and times for people, JSON for programs, progress for long commands."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from statecore.catalog import SourceBacklog, some_wait
from statecore.errors import StatecoreError
from statecore.operations.status.finding import span
from statecore.repeating import Repeating

NOTHING = "–"
"""Shown for an unknown value."""

_NUMBERS = {
    "subtask", "partition", "key groups", "files", "rows", "bytes", "elements", "lineage", "epoch", "parallelism",
    "of the average", "rows/s", "lag", "committed",
}  # fmt: skip

LINE_S = 10.0
"""Seconds between two lines of progress in a log."""

Report = Callable[[int, int], None]
"""Called with the amount done and the total."""


def complain(error: StatecoreError) -> None:
    """Print an error to stderr."""
    print(f"error: {error}", file=sys.stderr)


def note(line: str) -> None:
    """Print a line for people to stderr; stdout is for the result."""
    print(line, file=sys.stderr)


def print_json(value: Any) -> None:
    """Print a value for programs, on one line."""
    print(msgspec.json.encode(value).decode())


def console() -> Console:
    """Return the console for tables: a screen folds them to its width, a pipe gets every row on one line."""
    return Console(width=None if sys.stdout.isatty() else 10_000)


def table(*headings: str) -> Table:
    """Return an empty table."""
    made = Table(title_justify="left")
    for heading in headings:
        # Folded, never cut: a path with an ellipsis is useless.
        made.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    return made


def facts() -> Table:
    """Return an empty table of names and values, without lines."""
    made = Table(show_header=False, box=None)
    made.add_column()
    made.add_column(overflow="fold")
    return made


def utc(ms: int) -> str:
    """Return a UTC time for people."""
    # Event time minus the allowed lateness may lie before the year 1.
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{ms} ms since 1970"


def waiting(backlog: SourceBacklog) -> str:
    """Return a backlog in every known unit."""
    known = [f"{backlog.records:,} records"] if backlog.records is not None else []
    if backlog.files is not None:
        known.append(f"{backlog.files:,} files")
    if backlog.bytes is not None:
        known.append(decimal(backlog.bytes))
    return ", ".join(known) or NOTHING


def lag(backlog: SourceBacklog) -> str:
    """Return the event-time lag as hours, minutes and seconds; of days, say what makes it."""
    if backlog.event_time_lag_ms is None:
        return NOTHING
    behind = timedelta(seconds=backlog.event_time_lag_ms // 1000)
    if behind.days < 1:
        return str(behind)
    return f"{'replaying, ' if some_wait([backlog]) else ''}events {behind.days:,} days old"


@contextmanager
def progress(doing: str) -> Iterator[Report]:
    """Show how much of some work is done, a bar on a screen; yield the function that updates it."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        with telling(doing) as tell:
            yield lambda done, total: tell(f"{done:,} of {total:,}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def telling(doing: str, usual_ms: int | None = None) -> Iterator[Callable[[str], None]]:
    """Say what is being done and for how long: a spinner on a screen, else a line every ten seconds.

    Args:
        doing: What is being done.
        usual_ms: How long that usually takes; None if it is not known.

    Yields:
        The function that takes how far it is.

    """
    screen, began_s, how_far = Console(stderr=True), time.monotonic(), [""]
    usual = "" if usual_ms is None else f" of usually {span(usual_ms)}"

    def line() -> str:
        took = span(round((time.monotonic() - began_s) * 1000))
        return f"{doing}{': ' if how_far[0] else ''}{how_far[0]}, {took}{usual}"

    def tell(far: str) -> None:
        how_far[0] = far

    if screen.is_terminal:
        with screen.status(doing) as shown, Repeating("spinner", lambda: shown.update(line()), 1.0):
            yield tell
    else:
        with Repeating("progress", lambda: note(line()), LINE_S):
            yield tell
