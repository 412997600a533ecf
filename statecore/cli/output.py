"""How things are said: tables and times for people, JSON for programs, progress for those who wait."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from statecore.catalog import SourceBacklog
from statecore.errors import StatecoreError

NOTHING = "–"
"""Stands where nothing is known."""

_NUMBERS = {
    "subtask", "key groups", "files", "rows", "bytes", "elements", "lineage", "epoch", "parallelism",
    "of the average", "rows/s", "lag", "committed",
}  # fmt: skip

Report = Callable[[int, int], None]
"""Is told what is done and how much there is."""


def complain(error: StatecoreError) -> None:
    """Print an error to stderr."""
    print(f"error: {error}", file=sys.stderr)


def note(line: str) -> None:
    """Print to stderr what a person may want to know and a program does not."""
    print(line, file=sys.stderr)


def print_json(value: Any) -> None:
    """Print a value for programs, on one line."""
    print(msgspec.json.encode(value).decode())


def console() -> Console:
    """Return where tables go: a screen folds them to its width, a pipe gets every row on one line."""
    return Console(width=None if sys.stdout.isatty() else 10_000)


def table(*headings: str) -> Table:
    """Return an empty table."""
    made = Table(title_justify="left")
    for heading in headings:
        # Never cut: a path with an ellipsis in it leads nowhere.
        made.add_column(heading, justify="right" if heading in _NUMBERS else "left", overflow="fold")
    return made


def facts() -> Table:
    """Return an empty table of names and what they stand for, without lines."""
    made = Table(show_header=False, box=None)
    made.add_column()
    made.add_column(overflow="fold")
    return made


def utc(ms: int) -> str:
    """Return a time for people."""
    # Event time may lie before the year 1, by the lateness that is allowed.
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{ms} ms since 1970"


def span(ms: int) -> str:
    """Return a length of time in the two largest units that it has."""
    seconds = max(0, ms) // 1000
    units = [("d", seconds // 86_400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60)]
    first = next((index for index, (_, count) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count} {unit}" for unit, count in units[first : first + 2] if count) or "0 s"


def waiting(backlog: SourceBacklog) -> str:
    """Return what waits, in each unit in which it is known."""
    known = [f"{backlog.records:,} records"] if backlog.records is not None else []
    if backlog.files is not None:
        known.append(f"{backlog.files:,} files")
    if backlog.bytes is not None:
        known.append(decimal(backlog.bytes))
    return ", ".join(known) or NOTHING


def lag(backlog: SourceBacklog) -> str:
    """Return how far event time is behind, as hours, minutes and seconds."""
    ms = backlog.event_time_lag_ms
    return NOTHING if ms is None else str(timedelta(seconds=ms // 1000))


@contextmanager
def progress(doing: str) -> Iterator[Report]:
    """Show on a screen how far something is; give what to call with what is done and how much there is."""
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def spinner(doing: str) -> Iterator[None]:
    """Show on a screen that something is waited for which cannot tell how far it is."""
    with Console(stderr=True).status(doing):
        yield
