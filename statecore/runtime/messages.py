"""Messages between driver and workers about one epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from statecore.functions import UserFunction
from statecore.model import Field, MapStateDescriptor, OutputTag
from statecore.model.metrics import MetricFigure
from statecore.snapshot.manifest import (
    FieldRef,
    FilePart,
    KeyedFile,
    OperatorFile,
    OperatorState,
    StagedOutput,
    StateSchema,
    SubtaskState,
)
from statecore.storage import FileStore

ANCHOR = "__statecore_anchor"
SUBTASK = "__statecore_subtask"
SLOT = "__statecore_slot"
KEY_GROUP = "__statecore_key_group"
# A row holds a record of the first input, a record of the second or of the broadcast one, or another operator's commit.
MAIN = "__statecore_main"
SECOND = "__statecore_second"
BROADCAST = "__statecore_broadcast"
# For records of a union: which of its streams they come from.
MEMBER = "__statecore_member"
COMMIT = "__statecore_commit"
# For rows of another operator: its attempt, whether it emitted them before or after its watermark advanced, and their
# event time.
ATTEMPT = "__statecore_attempt"
PHASE = "__statecore_phase"
TIMESTAMP = "__statecore_timestamp_ms"
SOURCE = "__statecore_source"
# While rows of another operator are transformed: whether a row is a record.
RECORD = "__statecore_record"
INTERNAL = frozenset(
    {
        ANCHOR, SUBTASK, SLOT, KEY_GROUP, MAIN, SECOND, BROADCAST, MEMBER, COMMIT, ATTEMPT, PHASE, TIMESTAMP, SOURCE,
        RECORD,         "__statecore_out",
    }
)  # fmt: skip
BEFORE_WATERMARK, AFTER_WATERMARK = 0, 1


@dataclass(frozen=True, slots=True)
class StagedSink:
    """A sink whose rows a worker stages."""

    name: str
    tag: str
    fields: tuple[Field, ...]
    store: FileStore


@dataclass(frozen=True, slots=True)
class Crossing:
    """An output that other operators read: its tag name and its schema."""

    tag: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input of an operator.

    Attributes:
        column: The column that its records are in: ``MAIN``, ``SECOND`` or ``BROADCAST``.
        event_times: For each of its streams the column with the event time of a source's records, or None.
        keys: Its key columns.

    """

    column: str
    event_times: tuple[str | None, ...]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """Describes an operator to the workers; the same in every epoch of a generation.

    Attributes:
        inputs: Its one or two inputs.
        reads_operator: Whether an input is another operator's output, which comes with its event time.
        key_fields: The key as state files have it, with the names of the first input; empty without a key.
        broadcast: The broadcast states, none without a broadcast input.
        merged: Whether the records of two inputs come in one order, that of event time.
        late: The tag that takes late records instead of the function, or None.
        crossings: Outputs that other operators read.
        allow_non_restored_state: Whether the function may leave restored state unregistered.
        ordered: Whether the records of an epoch were sorted, so that their order must be kept across keys.
        on_error: The tag that takes records that the function fails on, or None.

    """

    uid: str
    function: UserFunction
    inputs: tuple[InputSpec, ...]
    reads_operator: bool
    key_fields: tuple[FieldRef, ...]
    broadcast: tuple[MapStateDescriptor, ...]
    late: OutputTag | None
    max_parallelism: int
    sinks: tuple[StagedSink, ...]
    crossings: tuple[Crossing, ...]
    store_url: str
    allow_non_restored_state: bool
    ordered: bool = False
    merged: bool = False
    on_error: OutputTag | None = None

    @property
    def has_two_inputs(self) -> bool:
        """Whether two streams are connected, none of them broadcast."""
        return any(each.column == SECOND for each in self.inputs)


class SubtaskSpec(msgspec.Struct, frozen=True, array_like=True):
    """The state that a subtask starts an epoch from.

    The versions suffice for a subtask that has its state in memory. ``state`` or ``part`` says where its files are: the
    driver gives the files themselves where it has redistributed them, and otherwise their place in the manifest.

    Attributes:
        key_groups: First and last key group.
        heads: Runs of key groups with the token of their newest version, ``""`` for no state yet.
        operator_token: Version of the operator state, ``""`` to read it from its files.
        state: The subtask's files; None to read ``part``, or when there is no state.
        part: The part of the previous manifest that names the subtask's files.

    """

    key_groups: tuple[int, int]
    heads: tuple[tuple[int, int, str], ...]
    operator_token: str
    state: SubtaskState | None = None
    part: FilePart | None = None


@dataclass(frozen=True, slots=True)
class EpochSpec:
    """Describes an epoch to the workers.

    Attributes:
        now_ms: The epoch's time; see ``EpochTimes``.
        watermark_ms: The watermark after the previous epoch; None before the first watermark.
        watermark_before_ms: The watermark one epoch earlier: it applies to rows that another operator emitted before
            its watermark advanced.
        previous: Path of the previous manifest; None before the first.
        restored: The operator in that manifest, without its subtasks; None when it has no state.
        foreign_store: URL of the store with that manifest and its files, when it is not the job's own: all state is
            then rewritten into the job's store. None for the job's own.
        restores: Whether state was redistributed: the epoch is the first of a generation, or of a parallelism. Union
            state is redistributed only then, or its elements would multiply every epoch.
        counts_state: Whether subtasks count the rows of their keyed state.
        subtasks: A ``SubtaskSpec`` per subtask, encoded: every task receives all of them and decodes its own.

    """

    lineage: int
    epoch: int
    now_ms: int
    watermark_ms: int | None
    watermark_before_ms: int | None
    previous: str | None
    restored: OperatorState | None
    foreign_store: str | None
    restores: bool
    counts_state: bool
    subtasks: tuple[bytes, ...]


class KeyShare(NamedTuple):
    """A key as text, its share (0 to 1) of a subtask's work, and its key group."""

    key: str
    share: float
    key_group: int


class KeyGroupShare(NamedTuple):
    """A key group and its share (0 to 1) of a subtask's work."""

    key_group: int
    share: float


class StreamRead(msgspec.Struct, frozen=True, array_like=True):
    """Figures of one stream that a subtask has read.

    Attributes:
        rows: Records.
        late_rows: Records of a source whose event time the watermark had already reached.
        max_event_time_ms: The newest event time among the records of a source; None without one.

    """

    rows: int = 0
    late_rows: int = 0
    max_event_time_ms: int | None = None


class SubtaskCommit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The result of one subtask in an epoch; its last row.

    Attributes:
        uid: The operator.
        attempt: Number that this attempt drew.
        read_from: Attempts of other operators that produced its input rows.
        replaces: Whether ``keyed`` replaces the files of earlier epochs.
        read: What it has read from each stream, input by input (``OperatorPlan.origins``).
        next_event_timer_ms, next_processing_timer_ms: The earliest timers that have not fired; None without any.
        operator: All files of the operator state, or None when it did not change.
        key_groups: Key groups that it owns, 0 without a key.
        cached_key_groups: Key groups whose state was already in memory.
        state_rows: Rows of each keyed state; of a map only in an epoch that counts or restores state.
        key_group_rows: Per keyed state the rows of each key group, in order; None in an epoch that does not count them.
        heavy_keys: Keys with at least a twentieth of its work, by a sample; none without a key.
        heavy_key_groups: Key groups, likewise.
        load_ms, process_ms, write_ms: Duration of the phases.
        read_ms: Time for which it waited for its input rows, after the first ones; not in ``process_ms``.
        metrics: The metrics of the function, in this epoch alone.
        memory_used, memory_limit: The worker's memory, in bytes.
        host_share: Share of its host's memory that all programs there use; None where a container limits the worker.

    """

    uid: str
    subtask: int
    attempt: int
    read_from: tuple[int, ...]
    keyed: tuple[KeyedFile, ...]
    replaces: bool
    operator: tuple[OperatorFile, ...] | None
    operator_token: str
    states: tuple[StateSchema, ...]
    outputs: tuple[StagedOutput, ...]
    read: tuple[StreamRead, ...]
    next_event_timer_ms: int | None
    next_processing_timer_ms: int | None
    key_groups: int
    cached_key_groups: int
    state_rows: dict[str, int]
    key_group_rows: dict[str, tuple[int, ...]] | None
    heavy_keys: tuple[KeyShare, ...]
    heavy_key_groups: tuple[KeyGroupShare, ...]
    load_ms: int
    read_ms: int
    process_ms: int
    write_ms: int
    memory_used: int
    memory_limit: int
    host_share: float | None
    metrics: tuple[MetricFigure, ...] = ()

    @property
    def rows(self) -> int:
        """Records of all its streams."""
        return sum(each.rows for each in self.read)


def crossing_column(spec: OperatorSpec, tag: str) -> str:
    """Return the column of an output among an operator's crossing rows."""
    index = next(index for index, crossing in enumerate(spec.crossings) if crossing.tag == tag)
    return f"__statecore_out_{index}"


COMMIT_DECODER = msgspec.json.Decoder(SubtaskCommit)
SUBTASK_ENCODER = msgspec.msgpack.Encoder()
SUBTASK_DECODER = msgspec.msgpack.Decoder(SubtaskSpec)
