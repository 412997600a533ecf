"""Dead letters: records that a function failed on, as rows of a side output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from statecore.errors import ConfigurationError
from statecore.functions import BatchProcessFunction
from statecore.model import OutputTag
from statecore.state.contexts import Emitter
from statecore.state.tables import Key

COLUMNS: Mapping[str, str] = {
    "error": "string",
    "uid": "string",
    "key": "string",
    "epoch": "bigint",
    "timestamp_ms": "bigint",
    "record": "string",
}
"""What a dead letter may have; ``key`` and ``record`` are JSON, ``timestamp_ms`` is the record's event time."""


def check_on_error(tag: object, function: object) -> None:
    """Raise ConfigurationError unless a function may have dead letters, and the tag has columns of theirs."""
    if not isinstance(tag, OutputTag):
        raise ConfigurationError(f"found on_error={tag!r}; expected an OutputTag; give OutputTag(name, columns)")
    if isinstance(function, BatchProcessFunction):
        raise ConfigurationError(
            f"found on_error={tag.name!r} for {type(function).__name__}, which takes batches; expected a function over "
            "records, because a failure on a batch does not say on which record; catch it in process_batch and put the "
            "rows out to a side output"
        )
    asked = {field.name: field.type.ddl() for field in tag.fields}
    if not asked.items() <= COLUMNS.items():
        raise ConfigurationError(
            f"found the side output {tag.name!r} of {tag.value_type} for on_error; expected some of the columns "
            f"{', '.join(map(' '.join, COLUMNS.items()))}; declare the tag with them"
        )


class DeadLetters:
    """Makes the rows of one operator in one epoch.

    Args:
        tag: The side output.
        uid: The operator.
        epoch: The epoch.

    Attributes:
        epoch: The epoch; a harness counts it on.

    """

    def __init__(self, tag: OutputTag, uid: str, epoch: int) -> None:
        self.tag = tag
        self._names = [field.name for field in tag.fields]
        self._uid, self.epoch = uid, epoch

    def row(self, error: Exception, key: Key | None, value: Any, timestamp_ms: int | None) -> tuple[Any, ...]:
        """Return the row for a record; a key of None is that of a function without keys."""
        known = {
            "error": f"{type(error).__name__}: {error}",
            "uid": self._uid,
            "key": None if key is None else _json(list(key)),
            "epoch": self.epoch,
            "timestamp_ms": timestamp_ms,
            "record": _json(value),
        }
        return tuple(known[name] for name in self._names)


class HeldBack:
    """Holds back the outputs of a record until its function has returned."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        """Start buffering one record's outputs, so that a failure can discard them."""
        self._held = []

    def release(self) -> None:
        """Emit the record's outputs."""
        held, self._held = self._held or [], None
        for emit in held:
            emit()

    def drop(self) -> None:
        """Discard the record's outputs."""
        self._held = None

    def emit(self, tag: OutputTag, value: Any, timestamp_ms: int | None) -> None:
        """Receive one row of a side output."""
        if self._held is None:
            self._emitter.emit(tag, value, timestamp_ms)
        else:
            self._held.append(lambda: self._emitter.emit(tag, value, timestamp_ms))

    def emit_all(self, values: Iterable[Any], timestamp_ms: int | None) -> None:
        """Receive rows of the main output."""
        if self._held is None:
            self._emitter.emit_all(values, timestamp_ms)
        else:
            # Consumed now: a generator's function runs only while it is consumed.
            rows = list(values)
            self._held.append(lambda: self._emitter.emit_all(rows, timestamp_ms))

    def emit_batch(self, tag: OutputTag | None, rows: pa.RecordBatch, timestamps_ms: pa.Array) -> None:
        """Receive many rows as columns."""
        self._emitter.emit_batch(tag, rows, timestamps_ms)


def _json(value: Any) -> str:
    return msgspec.json.encode(_plain(value)).decode()


def _plain(value: Any) -> Any:
    """Return a value of a record as JSON can hold it; a struct as an object, a map as a list of its entries."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _plain(each) for name, each in zip(value._fields, value, strict=True)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return [[_plain(key), _plain(each)] for key, each in value.items()]
    if value is None or isinstance(value, str | int | float | bytes | bool | datetime | date | timedelta | Decimal):
        return value
    return repr(value)
