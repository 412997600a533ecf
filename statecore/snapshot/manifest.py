"""The record that commits an epoch, as stored on disk.

::

    {"format": "statecore.manifest", "version": 1,
     "checksum": …,                     SHA-256 of this file with 64 zeros in this place
     "job": "flight_delays", "lineage": 1, "epoch": 42, "generation": 3,
     "artifact": null | {"name": "flight_delays.py", "file": {…}},      the job file that ran
     "root": "..",                      where file paths start, relative to this manifest's folder
     "parent": "manifests/000001-000000000041.json",
     "parallelism": 2, "max_parallelism": 128, "batch_timestamp_ms": …, "committed_ms": …,
     "watermark_ms": null | …,          the watermark after the epoch
     "watermark_before_ms": null | …,   the watermark while the epoch's records were processed
     "next_event_timer_ms": null | …,   the earliest timers that have not fired
     "next_processing_timer_ms": null | …,
     "rows": …, "rows_total": …,        records of this epoch, and since the job's start
     "operators": [{"uid": …, "key_fields": […], "states": […],
                    "own_parallelism": null | 4,        when the job file fixes it
                    "second_key": ["order_id"],         the key's columns in the second of two inputs
                    "subtasks": [{"keyed": [files, oldest first], "operator": [files],
                                  "operator_token": …, "state_rows": {"totals": 4044}}, …]}],
     "outputs": [{"sink": "alerts", "file": {"path": …, "size": …, "sha256": …}, "rows": …}],
     "sources": [{"name": "flights", "positions": ["{…}"],      where a resume continues to read, for humans
                  "topics": {"flights": …}}],                   the ids of its topics, for a source that reads Kafka
     "progress": [{"name": "offsets/42", "file": {…}}, …],      Spark's own bookkeeping, see runtime.epoch.progress
     "savepoint": null | {"name": …, "reason": …, "created_ms": …}}

Checkpoints are stored at ``manifests/<lineage>-<epoch>.json``, savepoints at ``savepoints/<name>/manifest.json``; a
self-contained savepoint has its files beside its manifest (``root`` is ``.``). Unknown versions are refused.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from statecore.errors import ManifestError
from statecore.model import DistributionMode, StateKind, StateTtlConfig, StateVisibility, UpdateType
from statecore.model.metrics import MetricFigure
from statecore.release import RELEASE
from statecore.storage import safe_path

FORMAT = "statecore.manifest"
VERSION = 1
WRITER = f"statecore {RELEASE}"
_NO_CHECKSUM = "0" * 64


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, keyword-only, without unknown fields."""


class FileRef(_Record, frozen=True, kw_only=True):
    """An immutable file: path relative to the root, size in bytes, SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class FilePart(_Record, frozen=True, kw_only=True):
    """A range of a file: first byte, size in bytes, SHA-256 in hex."""

    start: int
    size: int
    sha256: str


class FileKind(StrEnum):
    """What a keyed state file holds: all state of its key groups, or only changes."""

    BASE = "base"
    CHANGELOG = "changelog"


class KeyedFile(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """State of some key groups in one file.

    Attributes:
        state: Name of the state.
        kind: Whether the file replaces older files or adds changes to them.
        token: Version of the state after this file; the attempt that wrote it drew the token.
        key_groups: First and last key group that this reference takes from the file.
        rows: Rows in the whole file.
        footer: The Parquet footer of a base, which has the checksums of its row groups; None for a changelog.

    """

    file: FileRef
    state: str
    kind: FileKind
    token: str
    key_groups: tuple[int, int]
    rows: int
    footer: FilePart | None = None


class PartitionsRef(_Record, frozen=True, kw_only=True):
    """Elements of one operator state, as row numbers of their file."""

    mode: DistributionMode
    offsets: tuple[int, ...]


class OperatorFile(_Record, frozen=True, kw_only=True):
    """Elements of operator states in one file; ``state`` names the one state that the file holds."""

    file: FileRef
    state: str
    partitions: PartitionsRef


class SubtaskState(_Record, frozen=True, kw_only=True):
    """What one subtask restores: its keyed files oldest first, its operator files, its version of operator state.

    Attributes:
        state_rows: Rows of each keyed state, as the subtask counted them; files have a row for each write.

    """

    keyed: tuple[KeyedFile, ...] = ()
    operator: tuple[OperatorFile, ...] = ()
    operator_token: str = ""
    state_rows: dict[str, int] = {}


class FieldRef(_Record, frozen=True, kw_only=True):
    """A named, typed column; the type is Spark DDL."""

    name: str
    type: str


class TtlRef(_Record, frozen=True, kw_only=True):
    """A state's time to live as its descriptor declares it; see ``StateTtlConfig``."""

    ttl_ms: int
    update_type: UpdateType
    visibility: StateVisibility
    cleanup_full_snapshot: bool
    cleanup_incremental: tuple[int, bool] | None

    @classmethod
    def of(cls, ttl: StateTtlConfig) -> TtlRef:
        """Return the record of a descriptor's time to live."""
        return cls(
            ttl_ms=ttl.ttl_ms,
            update_type=ttl.update_type,
            visibility=ttl.visibility,
            cleanup_full_snapshot=ttl.cleanup_full_snapshot,
            cleanup_incremental=ttl.cleanup_incremental,
        )


class StateSchema(_Record, frozen=True, kw_only=True):
    """A registered state: scope, kind and type, which descriptors are checked against.

    Attributes:
        type: Spark DDL of the value, accumulator or element; of a map ``map<k,v>``; of timers ``bigint``.
        strategy: Operator state: how a rescale splits a split list.
        stamped: Keyed state: whether stored values have timestamps, for a time to live.
        windowed: Keyed state: whether some of it belongs to windows.
        mode: Operator state: how it is redistributed.
        ttl: Keyed state: its time to live, if a descriptor declared one.

    """

    name: str
    scope: Literal["keyed", "operator"]
    kind: StateKind
    type: str
    strategy: str | None = None
    stamped: bool = False
    windowed: bool = False
    mode: DistributionMode | None = None
    ttl: TtlRef | None = None


class OperatorState(_Record, frozen=True, kw_only=True):
    """State of one operator, per subtask.

    Attributes:
        key_fields: The columns of its key, in their order, with the names of its first input; empty without a key.
        own_parallelism: Number of its subtasks when the job file fixes it; None for the job's parallelism.
        second_key: The key's columns in the second of two inputs. Left out of the file for other operators, and unknown
            in one of an earlier release: its fingerprint stays what it was.
        metrics: The metrics of its function after the epoch, likewise left out without any.

    """

    uid: str
    key_fields: tuple[FieldRef, ...]
    states: tuple[StateSchema, ...]
    subtasks: tuple[SubtaskState, ...]
    own_parallelism: int | None = None
    second_key: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    metrics: tuple[MetricFigure, ...] | msgspec.UnsetType = msgspec.UNSET


class StagedOutput(_Record, frozen=True, kw_only=True):
    """Rows that the epoch produced for one sink."""

    sink: str
    file: FileRef
    rows: int


class ProgressFile(_Record, frozen=True, kw_only=True):
    """A file of Spark's checkpoint directory, by its name there."""

    name: str
    file: FileRef


class Artifact(_Record, frozen=True, kw_only=True):
    """The job file, as a driver ran it."""

    name: str
    file: FileRef


class SourcePositions(_Record, frozen=True, kw_only=True):
    """The position of a source after the epoch: one offset in Spark's format, listed like elements of a split list.

    Attributes:
        max_event_time_ms: The newest event time read from it so far; None without one.
        topics: The id of each Kafka topic that was read; a topic made anew under its name has another. Left out of
            the file where none is known: the fingerprint of a manifest of an earlier release stays what it was.

    """

    name: str
    positions: tuple[str, ...]
    max_event_time_ms: int | None = None
    topics: dict[str, str] | msgspec.UnsetType = msgspec.UNSET

    @property
    def topic_ids(self) -> dict[str, str]:
        """The id of each topic, as far as known."""
        return {} if isinstance(self.topics, msgspec.UnsetType) else self.topics


class SavepointInfo(_Record, frozen=True, kw_only=True):
    """Marks a manifest as a savepoint."""

    name: str
    reason: str
    created_ms: int


class Manifest(_Record, frozen=True, kw_only=True):
    """One committed epoch, or a savepoint of it. See the module's docstring for the file.

    The checksum exists only in the file: it is computed on write, and empty in memory.
    """

    format: Literal["statecore.manifest"] = "statecore.manifest"
    version: Literal[1] = 1
    checksum: str = ""
    writer: str
    job: str
    lineage: int
    epoch: int
    generation: int
    artifact: Artifact | None = None
    root: Literal["..", "../..", "."]
    parent: str | None
    parallelism: int
    max_parallelism: int
    batch_timestamp_ms: int
    committed_ms: int
    watermark_ms: int | None = None
    watermark_before_ms: int | None = None
    next_event_timer_ms: int | None = None
    next_processing_timer_ms: int | None = None
    rows: int
    rows_total: int
    operators: tuple[OperatorState, ...]
    outputs: tuple[StagedOutput, ...]
    sources: tuple[SourcePositions, ...] = ()
    progress: tuple[ProgressFile, ...]
    savepoint: SavepointInfo | None = None

    @property
    def rows_out(self) -> int:
        """Rows that the epoch produced, over all sinks."""
        return sum(output.rows for output in self.outputs)

    @property
    def rows_of_sinks(self) -> dict[str, int]:
        """Rows that the epoch produced for each sink that has some."""
        rows: Counter[str] = Counter()
        for output in self.outputs:
            rows[output.sink] += output.rows
        return dict(rows)

    @property
    def state_rows(self) -> int:
        """Rows of keyed state, over all operators."""
        return sum(sum(subtask.state_rows.values()) for each in self.operators for subtask in each.subtasks)

    @property
    def state_bytes(self) -> int:
        """Size of all state files; several subtasks may refer to one, which counts once."""
        size: dict[str, int] = {}
        for subtask in (subtask for operator in self.operators for subtask in operator.subtasks):
            size.update((item.file.path, item.file.size) for item in subtask.keyed)
            size.update((item.file.path, item.file.size) for item in subtask.operator)
        return sum(size.values())

    def files(self) -> list[FileRef]:
        """Return every file this manifest keeps alive except staged outputs, which publishing consumes."""
        seen: dict[str, FileRef] = {}
        for operator in self.operators:
            for subtask in operator.subtasks:
                for keyed in subtask.keyed:
                    seen[keyed.file.path] = keyed.file
                for listed in subtask.operator:
                    seen[listed.file.path] = listed.file
        for item in self.progress:
            seen[item.file.path] = item.file
        if self.artifact is not None:
            seen[self.artifact.file.path] = self.artifact.file
        return list(seen.values())


class _OperatorParts(msgspec.Struct):
    uid: str
    subtasks: tuple[msgspec.Raw, ...]


class _Parts(msgspec.Struct):
    operators: tuple[_OperatorParts, ...]


class _Header(msgspec.Struct):
    format: str = ""
    version: int = 0
    checksum: str = ""


_HEADER = msgspec.json.Decoder(_Header)
_MANIFEST = msgspec.json.Decoder(Manifest)
_PARTS = msgspec.json.Decoder(_Parts)
_SUBTASK = msgspec.json.Decoder(SubtaskState)
_PROBE_BYTES = 256
# msgspec raises other errors than DecodeError for a damaged byte inside a string and for endless nesting.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the JSON of a manifest, indented for people, with its checksum."""
    unsigned = msgspec.structs.replace(manifest, checksum=_NO_CHECKSUM)
    data = msgspec.json.format(msgspec.json.encode(unsigned), indent=1)
    return data.replace(_NO_CHECKSUM.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def subtask_parts(data: bytes) -> dict[str, tuple[FilePart, ...]]:
    """Return per operator uid where the file of a manifest holds each subtask's state, for ``decode_subtask``."""
    position, parts = 0, {}
    for operator in _PARTS.decode(data).operators:
        own = []
        for subtask in map(bytes, operator.subtasks):
            # Search for its first bytes, which is faster: no other record begins like a subtask's.
            position = data.index(subtask[:_PROBE_BYTES], position)
            digest = hashlib.sha256(subtask).hexdigest()
            own.append(FilePart(start=position, size=len(subtask), sha256=digest))
            position += len(subtask)
        parts[operator.uid] = tuple(own)
    return parts


def decode_subtask(data: bytes) -> SubtaskState:
    """Read the state of one subtask from its part of a manifest, whose checksum the caller has verified."""
    state = _SUBTASK.decode(data)
    for file in (*(item.file for item in state.keyed), *(item.file for item in state.operator)):
        safe_path(file.path)
    return state


def fingerprint(manifest: Manifest) -> str:
    """Return a text that identifies a manifest, also among manifests at the same path."""
    return hashlib.sha256(encode_manifest(manifest)).hexdigest()


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Read and validate a manifest; the name is its path, for messages.

    Raises:
        ManifestError: The data is not a manifest, has an unknown version, or does not fit the schema or its checksum.
        UnsafePathError: The manifest names a file outside its root.

    """
    try:
        header = _HEADER.decode(data)
    except msgspec.ValidationError as error:
        raise ManifestError(
            f"found {name}, which is not a manifest ({error}); expected format {FORMAT!r} and version {VERSION}; "
            "give the path of a savepoint"
        ) from error
    except _UNREADABLE as error:
        raise ManifestError(
            f"found {name}, which is not JSON ({error}); expected a manifest; it is damaged, use another savepoint"
        ) from error
    if header.format != FORMAT:
        raise ManifestError(
            f"found the format {header.format!r} in {name}; expected {FORMAT!r}; give the path of a savepoint"
        )
    if header.version != VERSION:
        raise ManifestError(
            f"found manifest version {header.version} in {name}; expected version {VERSION}; "
            "read it with the release of statecore that wrote it, or a newer one"
        )
    _check_checksum(data, header.checksum, name)
    try:
        manifest = msgspec.structs.replace(_MANIFEST.decode(data), checksum="")
        problem = next(_contradictions(manifest), None)
        if problem is not None:
            raise msgspec.ValidationError(problem)
    except _UNREADABLE as error:
        raise ManifestError(
            f"found {name}, which does not fit manifest version {header.version}: {error}; expected a manifest written "
            "by statecore; it was edited or damaged, use another savepoint"
        ) from error
    for file in [*manifest.files(), *(output.file for output in manifest.outputs)]:
        safe_path(file.path)
    for item in manifest.progress:
        safe_path(item.name)
    return manifest


def _check_checksum(data: bytes, checksum: str, name: str) -> None:
    # Over the bytes, not over their meaning, so that every flipped bit is detected.
    actual = hashlib.sha256(data.replace(checksum.encode(), _NO_CHECKSUM.encode(), 1)).hexdigest()
    if len(checksum) != len(_NO_CHECKSUM) or actual != checksum:
        raise ManifestError(
            f"found {name} with the SHA-256 {actual}; expected {checksum!r}, as recorded in the file; "
            "it was edited or damaged, use another savepoint"
        )


_OPERATOR_KINDS = {
    DistributionMode.SPLIT: StateKind.LIST,
    DistributionMode.UNION: StateKind.LIST,
    DistributionMode.BROADCAST: StateKind.MAP,
}


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield contradictions that the schema cannot detect: a restore would lose state, or fail far from here."""
    if not 1 <= manifest.parallelism <= manifest.max_parallelism:
        yield f"parallelism {manifest.parallelism} of at most {manifest.max_parallelism}"
    for operator in manifest.operators:
        count, parallelism = len(operator.subtasks), operator.own_parallelism or manifest.parallelism
        if count != parallelism or not 1 <= count <= manifest.max_parallelism:
            yield f"{count} subtasks of operator {operator.uid!r} at parallelism {parallelism}"
        known = {(state.scope, state.name) for state in operator.states}
        modes = {state.name: state.mode for state in operator.states if state.scope == "operator"}
        for state in operator.states:
            if state.scope == "operator" and (state.mode is None or state.kind is not _OPERATOR_KINDS[state.mode]):
                yield f"the operator state {state.name!r} as {state.kind} with the mode {state.mode}"
            if state.kind is StateKind.MAP and not state.type.startswith("map<"):
                yield f"the map state {state.name!r} of the type {state.type!r}"
        for subtask in operator.subtasks:
            for keyed in subtask.keyed:
                start, end = keyed.key_groups
                if not 0 <= start <= end < manifest.max_parallelism:
                    yield f"key groups {start} to {end} of {manifest.max_parallelism} in {keyed.file.path!r}"
                footer = keyed.footer
                if footer is not None and (footer.start < 0 or footer.start + footer.size != keyed.file.size):
                    yield f"a footer of {footer.size} bytes at byte {footer.start} of {keyed.file.path!r}"
            named = {("keyed", keyed.state) for keyed in subtask.keyed}
            named |= {("operator", listed.state) for listed in subtask.operator}
            for scope, name in sorted(named - known):
                yield f"files of the {scope} state {name!r}, which operator {operator.uid!r} does not declare"
            for listed in subtask.operator:
                if listed.partitions.mode is not modes[listed.state]:
                    yield f"{listed.partitions.mode} elements of the {modes[listed.state]} state {listed.state!r}"
