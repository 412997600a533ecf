"""The record that commits an epoch, as it lies on disk.

::

    {"format": "statecore.manifest", "version": 1,
     "job": "flight_delays", "lineage": 1, "epoch": 42, "generation": 3,
     "root": "..",                      where file paths start, seen from this manifest's folder
     "parent": "manifests/000001-000000000041.json",
     "parallelism": 2, "max_parallelism": 128, "batch_timestamp_ms": …, "committed_ms": …,
     "rows": …, "rows_total": …,        records of this epoch, and since the job began
     "operators": [{"uid": …, "key_fields": […], "states": […],
                    "subtasks": [{"keyed": [files, oldest first], "operator": [files]}, …]}],
     "outputs": [{"sink": "alerts", "file": {"path": …, "size": …, "sha256": …}, "rows": …}],
     "progress": [{"name": "offsets/42", "file": {…}}, …],      Spark's own bookkeeping, see runtime.progress
     "savepoint": null | {"name": …, "reason": …, "created_ms": …}}

Checkpoints lie at ``manifests/<lineage>-<epoch>.json``, savepoints at ``savepoints/<name>/manifest.json``. One
reader per version: a version this library does not know is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

import msgspec

from statecore.errors import ManifestError
from statecore.model import DistributionMode
from statecore.storage import safe_path

FORMAT = "statecore.manifest"
VERSION = 1


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all records: immutable, by keyword, nothing unknown accepted."""


class FileRef(_Record, frozen=True, kw_only=True):
    """An immutable file: path relative to the root, size in bytes, SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class FileKind(StrEnum):
    """What a keyed state file holds: all of its key groups' state, or only what one epoch changed."""

    BASE = "base"
    CHANGELOG = "changelog"


class KeyedFile(_Record, frozen=True, kw_only=True):
    """State of some key groups in one file.

    Attributes:
        state: Name of the state.
        kind: Whether the file replaces what came before it or changes it.
        token: Version of the state after this file; the attempt that wrote it drew the token.
        key_groups: First and last key group that this reference takes from the file.
        rows: Rows in the whole file.

    """

    file: FileRef
    state: str
    kind: FileKind
    token: str
    key_groups: tuple[int, int]
    rows: int


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
    """What one subtask restores: its keyed files oldest first, its operator files, its version of operator state."""

    keyed: tuple[KeyedFile, ...] = ()
    operator: tuple[OperatorFile, ...] = ()
    operator_token: str = ""


class FieldRef(_Record, frozen=True, kw_only=True):
    """A named, typed column; the type is Spark DDL."""

    name: str
    type: str


class StateSchema(_Record, frozen=True, kw_only=True):
    """A registered state: scope, kind and type in words that a descriptor can be checked against."""

    name: str
    scope: Literal["keyed", "operator"]
    kind: str
    type: str
    strategy: str | None = None


class OperatorState(_Record, frozen=True, kw_only=True):
    """State of one operator, per subtask."""

    uid: str
    key_fields: tuple[FieldRef, ...]
    states: tuple[StateSchema, ...]
    subtasks: tuple[SubtaskState, ...]


class StagedOutput(_Record, frozen=True, kw_only=True):
    """Rows that the epoch made for one sink."""

    sink: str
    file: FileRef
    rows: int


class ProgressFile(_Record, frozen=True, kw_only=True):
    """A file of Spark's checkpoint directory, by its name there."""

    name: str
    file: FileRef


class SavepointInfo(_Record, frozen=True, kw_only=True):
    """What makes a manifest a savepoint."""

    name: str
    reason: str
    created_ms: int


class Manifest(_Record, frozen=True, kw_only=True):
    """One committed epoch, or a savepoint of it. See the module's docstring for the file."""

    format: Literal["statecore.manifest"] = "statecore.manifest"
    version: Literal[1] = 1
    writer: str
    job: str
    lineage: int
    epoch: int
    generation: int
    root: Literal["..", "../.."]
    parent: str | None
    parallelism: int
    max_parallelism: int
    batch_timestamp_ms: int
    committed_ms: int
    rows: int
    rows_total: int
    operators: tuple[OperatorState, ...]
    outputs: tuple[StagedOutput, ...]
    progress: tuple[ProgressFile, ...]
    savepoint: SavepointInfo | None = None

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
        return list(seen.values())


class _Header(msgspec.Struct):
    format: str = ""
    version: int = 0


_HEADER = msgspec.json.Decoder(_Header)
_MANIFEST = msgspec.json.Decoder(Manifest)
# A damaged byte inside a string, and nesting without end, are no DecodeError to msgspec.
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the JSON of a manifest, indented for people."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode_manifest(data: bytes, name: str) -> Manifest:
    """Read and validate a manifest.

    Args:
        data: JSON text.
        name: Where it came from, for messages.

    Raises:
        ManifestError: It is no manifest, of an unknown version, or does not fit the schema.
        UnsafePathError: It names a file outside its root.

    """
    try:
        header = _HEADER.decode(data)
    except msgspec.ValidationError as error:
        raise ManifestError(
            f"found {name}, which is no manifest ({error}); expected format {FORMAT!r} and version {VERSION}; "
            "give the path of a savepoint"
        ) from error
    except _UNREADABLE as error:
        raise ManifestError(
            f"found {name}, which is no JSON ({error}); expected a manifest; it is damaged, use another savepoint"
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
    try:
        manifest = _MANIFEST.decode(data)
        problem = next(_contradictions(manifest), None)
        if problem is not None:
            raise msgspec.ValidationError(problem)
    except _UNREADABLE as error:
        raise ManifestError(
            f"found {name}, which does not fit manifest version {VERSION}: {error}; expected what statecore wrote; "
            "it was edited or damaged, use another savepoint"
        ) from error
    for file in [*manifest.files(), *(output.file for output in manifest.outputs)]:
        safe_path(file.path)
    for item in manifest.progress:
        safe_path(item.name)
    return manifest


def _contradictions(manifest: Manifest) -> Iterator[str]:
    """Yield what the schema cannot see: a restore would lose state, or fail far from here."""
    if not 1 <= manifest.parallelism <= manifest.max_parallelism:
        yield f"parallelism {manifest.parallelism} of at most {manifest.max_parallelism}"
    for operator in manifest.operators:
        count = len(operator.subtasks)
        if count != manifest.parallelism:
            yield f"{count} subtasks of operator {operator.uid!r} at parallelism {manifest.parallelism}"
        known = {(state.scope, state.name) for state in operator.states}
        for subtask in operator.subtasks:
            for keyed in subtask.keyed:
                start, end = keyed.key_groups
                if not 0 <= start <= end < manifest.max_parallelism:
                    yield f"key groups {start} to {end} of {manifest.max_parallelism} in {keyed.file.path!r}"
            named = {("keyed", keyed.state) for keyed in subtask.keyed}
            named |= {("operator", listed.state) for listed in subtask.operator}
            for scope, state in sorted(named - known):
                yield f"files of the {scope} state {state!r}, which operator {operator.uid!r} does not declare"
