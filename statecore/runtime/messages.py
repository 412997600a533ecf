"""What driver and workers tell each other about one epoch."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from statecore.functions import KeyedProcessFunction
from statecore.model import Field
from statecore.snapshot.manifest import FieldRef, KeyedFile, OperatorFile, StagedOutput, StateSchema
from statecore.storage import FileStore

ANCHOR = "__statecore_anchor"
SUBTASK = "__statecore_subtask"
KEY_GROUP = "__statecore_key_group"
INTERNAL = frozenset({ANCHOR, SUBTASK, KEY_GROUP})


@dataclass(frozen=True, slots=True)
class StagedSink:
    """Where a worker stages the rows of one sink."""

    name: str
    tag: str
    fields: tuple[Field, ...]
    store: FileStore


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """What a worker must know of an operator; the same in every epoch of a generation.

    Attributes:
        event_time: Column with the records' event time, or None.
        allow_non_restored_state: Whether restored state that the function leaves out is no error.

    """

    uid: str
    function: KeyedProcessFunction
    event_time: str | None
    key_fields: tuple[FieldRef, ...]
    max_parallelism: int
    sinks: tuple[StagedSink, ...]
    store_url: str
    allow_non_restored_state: bool


@dataclass(frozen=True, slots=True)
class SubtaskSpec:
    """What one subtask starts an epoch from.

    Attributes:
        key_groups: First and last key group.
        heads: Runs of key groups with the token of their newest version, ``""`` for no state yet.
        operator_token: Version of the operator state, ``""`` to read it from its files.

    """

    key_groups: tuple[int, int]
    heads: tuple[tuple[int, int, str], ...]
    operator_token: str


@dataclass(frozen=True, slots=True)
class EpochSpec:
    """What the workers must know of an epoch.

    Attributes:
        now_ms: The epoch's time, as Spark recorded it.
        watermark_ms: Where event time stood after the epoch before; None before the first watermark.
        previous: Path of the manifest with the operator's state; None when there is none.
        foreign_store: URL of the store in which that manifest and its files lie, when it is not the job's own: then
            all state is written anew into the job's store. None for the job's own.
        restores: Whether state must be redistributed before it is taken up: the epoch is the first of a generation, or
            of a parallelism. Union state is redistributed then alone, or its elements would multiply every epoch.

    """

    lineage: int
    epoch: int
    now_ms: int
    watermark_ms: int | None
    previous: str | None
    foreign_store: str | None
    restores: bool
    subtasks: tuple[SubtaskSpec, ...]


class SubtaskCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one subtask did in an epoch; its last row.

    Attributes:
        replaces: Whether ``keyed`` replaces the files of earlier epochs.
        max_event_time_ms: The newest event time among the records; None without one.
        operator: All files of the operator state, or None when none of it changed.
        cached_key_groups: Key groups whose state was met in memory.
        load_ms, process_ms, write_ms: Duration of the phases.
        memory_used, memory_limit: Bytes, of the worker.

    """

    subtask: int
    keyed: tuple[KeyedFile, ...]
    replaces: bool
    operator: tuple[OperatorFile, ...] | None
    operator_token: str
    states: tuple[StateSchema, ...]
    outputs: tuple[StagedOutput, ...]
    rows: int
    max_event_time_ms: int | None
    cached_key_groups: int
    load_ms: int
    process_ms: int
    write_ms: int
    memory_used: int
    memory_limit: int


COMMIT_DECODER = msgspec.json.Decoder(SubtaskCommit)
