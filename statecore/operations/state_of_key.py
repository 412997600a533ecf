"""The state of one key, for people: of a job's newest epoch or of a savepoint, with hidden columns left out."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import msgspec

from statecore.catalog import JobRecord
from statecore.errors import ConfigurationError
from statecore.model import ArrayType, DataType, Field, MapType, StateKind, StringType, StructType, parse_type
from statecore.redaction import HIDDEN
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.lookup import StateOfKey, keyed_states, parse_key, state_of_key
from statecore.snapshot.manifest import Manifest, OperatorState
from statecore.snapshot.restore import find_operator
from statecore.snapshot.settings import DriverSettings

MOST_SHOWN = 100
"""Elements of a list, or entries of a map, that people are shown."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a key has in a state, or in one window of it.

    Attributes:
        window_start_ms, window_end_ms: The window, with the end exclusive; None for state of the key alone.
        value: As JSON has it: an object for a struct, and for a map with text as keys; pairs for another map; text for
            bytes (hexadecimal), decimals, times, NaN and infinities; ``***`` for what is hidden.
        left_out: How many elements of a list, or entries of a map, are not in the value.

    """

    state: str
    kind: StateKind
    type: str
    window_start_ms: int | None
    window_end_ms: int | None
    value: Any
    left_out: int = 0


class KeyContents(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a key at an epoch."""

    job: str
    uid: str
    key: dict[str, Any]
    lineage: int
    epoch: int
    committed_ms: int
    watermark_ms: int | None
    contents: list[Content]


def look_up(
    job: JobRecord,
    key: str,
    uid: str | None = None,
    *,
    state: str | None = None,
    savepoint: str | None = None,
    most: int | None = None,
) -> KeyContents:
    """Return the state of a key at a job's newest committed epoch, or in a savepoint.

    Args:
        job: The job; its setting ``statecore.state.hidden`` names columns whose values are hidden.
        key: The key's text; see ``statecore.snapshot.lookup.parse_key``.
        uid: The operator; None if one alone has keyed state.
        state: Name of a state; None for all.
        savepoint: Path or URL of a savepoint; None for the newest epoch.
        most: How many elements of a list, or entries of a map, to return at most; None for all.

    Raises:
        ConfigurationError: There is no epoch yet, or no such key or state; or the job is a query of Spark's own.
        ManifestError: There is no such operator.
        MissingFileError, CorruptFileError: The savepoint or a file is missing or damaged.

    """
    if job.checkpoint is not None:
        raise ConfigurationError(
            f"found {job.name}, a query of Spark's own; expected a job of statecore, whose files are read without "
            f'Spark; read its state with Spark: spark.read.format("statestore").load("{job.checkpoint}")'
        )
    hidden = {name.casefold() for name in DriverSettings.from_conf(job.conf).hidden}
    if savepoint is not None:
        store, _, manifest = open_savepoint(savepoint)
    else:
        store = CheckpointStore.at(job.store)
        newest = store.newest()
        if newest is None:
            raise ConfigurationError(
                f"found no committed epoch of {job.name} in {job.store}; expected one; look again once "
                f"`statecore status {job.name}` shows an epoch"
            )
        manifest = newest
    operator = _only(manifest) if uid is None else find_operator(manifest.operators, uid, store.files.url)
    values = parse_key(operator, key)
    found = state_of_key(store, manifest, operator, values, keyed_states(operator, state))
    columns = StructType(tuple(Field(field.name, parse_type(field.type)) for field in operator.key_fields))
    return KeyContents(
        job=manifest.job,
        uid=operator.uid,
        key=_plain(values, columns, hidden),
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        committed_ms=manifest.committed_ms,
        watermark_ms=manifest.watermark_ms,
        contents=[_content(each, hidden, most) for each in found],
    )


def _only(manifest: Manifest) -> OperatorState:
    """Return the only operator with keyed state."""
    keyed = [each for each in manifest.operators if any(state.scope == "keyed" for state in each.states)]
    if len(keyed) != 1:
        raise ConfigurationError(
            f"found the operators {[operator.uid for operator in keyed]} with keyed state; expected one of them to be "
            "named; give its uid"
        )
    return keyed[0]


def _content(found: StateOfKey, hidden: Collection[str], most: int | None) -> Content:
    state, declared = found.state, parse_type(found.state.type)
    is_list = state.kind in (StateKind.LIST, StateKind.TIMERS)
    value, left_out = found.value, 0
    if most is not None and (is_list or isinstance(declared, ArrayType | MapType)):
        left_out = max(0, len(value) - most)
        value = dict(islice(value.items(), most)) if isinstance(value, Mapping) else list(islice(value, most))
    return Content(
        state=state.name,
        kind=state.kind,
        type=state.type,
        window_start_ms=None if found.window is None else found.window.start,
        window_end_ms=None if found.window is None else found.window.end,
        value=_shown(state.name, value, ArrayType(declared) if is_list else declared, hidden),
        left_out=left_out,
    )


def _shown(name: str, value: Any, declared: DataType, hidden: Collection[str]) -> Any:
    return HIDDEN if name.casefold() in hidden else _plain(value, declared, hidden)


def _plain(value: Any, declared: DataType, hidden: Collection[str]) -> Any:
    """Return a value as JSON has it."""
    match value:
        case None | bool() | str() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
    match declared:
        case StructType():
            fields = zip(declared.fields, value, strict=True)
            return {field.name: _shown(field.name, part, field.type, hidden) for field, part in fields}
        case ArrayType():
            return [_plain(part, declared.element, hidden) for part in value]
        case MapType():
            entries = [
                (_plain(key, declared.key, hidden), _plain(part, declared.value, hidden)) for key, part in value.items()
            ]
            return dict(entries) if isinstance(declared.key, StringType) else [list(each) for each in entries]
    raise AssertionError(declared)
