"""The two logs of a query: what a batch reads, and that it was committed.

::

    offsets/N                                      commits/N
    v1                                             v1 | v2 | v3
    {"batchWatermarkMs": …, "conf": {…}}           {"nextBatchWatermarkMs": …}
    {"logOffset": 1}          one line a source    v2 adds stateUniqueIds: {operator: [[id of a store, …] a partition]}
    -                         nothing read yet     v3 adds what the sink says

``v2`` of the offset log names its sources (``id:offset``). All that statecore does not change stays as Spark wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
STATE_PARTITIONS = "spark.sql.streaming.internal.stateStore.partitions"
"""Settings that fix the number of state partitions; releases of Spark differ in which they log."""

UniqueIds = Mapping[int, tuple[tuple[str, ...], ...]]
"""Maps each operator to the ids of its stores' newest files, per partition."""

_VERSION = re.compile(r"v([1-9][0-9]{0,8})")
_NEWEST_OFFSETS = 2
_NEWEST_COMMITS = 3
_IDS = "stateUniqueIds"
_NOTHING = "-"


class _OffsetMetadata(msgspec.Struct):
    conf: dict[str, str]
    batchWatermarkMs: int = 0
    batchTimestampMs: int = 0
    controlBatchInfo: dict[str, Any] | None = None


class _CommitBody(msgspec.Struct):
    nextBatchWatermarkMs: int = 0
    stateUniqueIds: dict[int, list[list[str]]] | None = None


@dataclass(frozen=True, slots=True)
class OffsetLog:
    """The offsets of one batch.

    Attributes:
        version: Version of the format.
        metadata: The JSON object of the second line, as Spark wrote it; empty for continuous processing.
        sources: The other lines, as Spark wrote them.

    """

    version: int
    metadata: Mapping[str, Any]
    sources: tuple[str, ...]

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings that the query keeps for life."""
        conf: Mapping[str, str] = self.metadata.get("conf", {})
        return conf

    @property
    def watermark_ms(self) -> int:
        """Event-time watermark of the batch in ms since 1970."""
        return int(self.metadata.get("batchWatermarkMs", 0))

    @property
    def control(self) -> Mapping[str, Any] | None:
        """Spark's description of a control batch, such as a repartition; None for a batch of the query."""
        control: Mapping[str, Any] | None = self.metadata.get("controlBatchInfo")
        return control

    def with_partitions(self, partitions: int) -> OffsetLog:
        """Return the log for another number of state partitions; settings that are absent stay absent."""
        internal = {STATE_PARTITIONS: str(partitions)} if STATE_PARTITIONS in self.conf else {}
        conf = {**self.conf, SHUFFLE_PARTITIONS: str(partitions), **internal}
        return replace(self, metadata={**self.metadata, "conf": conf})

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        metadata = msgspec.json.encode(self.metadata).decode() if self.metadata else ""
        return "\n".join((f"v{self.version}", metadata, *self.sources)).encode()


@dataclass(frozen=True, slots=True)
class CommitLog:
    """The commit of one batch.

    Attributes:
        version: Version of the format; 2 and newer belong to state checkpoint format 2.
        body: The JSON object of the second line, as Spark wrote it.

    """

    version: int
    body: Mapping[str, Any]

    @property
    def unique_ids(self) -> UniqueIds | None:
        """Ids of the newest files of every store, in state checkpoint format 2; Spark 4.0 logs none for format 1."""
        by_operator = self.body.get(_IDS)
        if not by_operator:
            return None
        return {int(each): tuple(map(tuple, partitions)) for each, partitions in by_operator.items()}

    def with_unique_ids(self, ids: UniqueIds | None) -> CommitLog:
        """Return the log with other ids, or without any; the rest stays unchanged.

        Raises:
            ValueError: The version of the log has no room for ids.

        """
        if ids is not None and self.version == 1:
            raise ValueError("found ids of state files for a commit log of version 1, which has none")
        body = {key: value for key, value in self.body.items() if key != _IDS}
        return replace(self, body=body if ids is None else {**body, _IDS: {str(key): ids[key] for key in ids}})

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return f"v{self.version}\n{msgspec.json.encode(self.body).decode()}".encode()


def parse_offsets(data: bytes, where: str) -> OffsetLog:
    """Parse a file of the offset log.

    Raises:
        CheckpointDamagedError: The file is not whole.
        CheckpointRefusedError: Its version is unknown.

    """
    version, lines = _lines(data, where, _NEWEST_OFFSETS)
    if not lines:
        raise _damaged(where, "without its second line", "the line of settings that Spark writes")
    # Continuous processing logs an empty line.
    metadata = json_object(lines[0], where, _OffsetMetadata) if lines[0].strip() else {}
    return OffsetLog(version, metadata, tuple(lines[1:]))


def lacks_sources(log: OffsetLog, before: OffsetLog) -> bool:
    """Return whether the offset log of a batch was cut within its sources, seen from that of the batch before.

    In version 1 the sources have no names, so a query cannot change their number, and Spark refuses another one.
    """
    if log.version > 1 or before.version > 1:
        return False
    lines = zip(log.sources, before.sources, strict=False)
    return len(log.sources) < len(before.sources) or any(
        _is_json(line_before) and not _is_json(line) for line, line_before in lines if line != _NOTHING
    )


def parse_commit(data: bytes, where: str) -> CommitLog:
    """Parse a file of the commit log.

    Raises:
        CheckpointDamagedError: The file is not whole.
        CheckpointRefusedError: Its version is unknown.

    """
    version, lines = _lines(data, where, _NEWEST_COMMITS)
    return CommitLog(version, json_object(lines[0], where, _CommitBody) if lines else {})


def version_of(first_line: str, where: str, newest: int) -> int:
    """Return the version that a file's first line names.

    Raises:
        CheckpointDamagedError: The line is not a version.
        CheckpointRefusedError: The version is unknown.

    """
    match = _VERSION.fullmatch(first_line.strip())
    if match is None:
        raise _damaged(where, f"that begins with {first_line[:40]!r}", f"v1 to v{newest}")
    version = int(match[1])
    if version > newest:
        raise CheckpointRefusedError(
            f"found {where} of version {version}; expected a version up to {newest}, which Spark 4.3 writes; use a "
            "release of statecore for the Spark that wrote it"
        )
    return version


def json_object(text: str, where: str, expected: type[msgspec.Struct]) -> dict[str, Any]:
    """Return a JSON object unchanged; check that it has the fields of ``expected``.

    Raises:
        CheckpointDamagedError: The text is not such an object.

    """
    try:
        fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, Any])
        msgspec.convert(fields, expected, strict=False)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _damaged(where, f"that cannot be read ({error})", "the JSON that Spark writes") from error
    return fields


def decoded(data: bytes, where: str) -> str:
    """Return the text of a file.

    Raises:
        CheckpointDamagedError: The file is empty or not text.

    """
    if not data:
        raise _damaged(where, "that is empty", "the version in its first line")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _damaged(where, "that is not text", "the version in its first line") from None


def _lines(data: bytes, where: str, newest: int) -> tuple[int, list[str]]:
    # As Spark reads lines: a newline at the end begins no further one.
    first, *lines = decoded(data, where).removesuffix("\n").split("\n")
    return version_of(first, where, newest), lines


def _is_json(line: str) -> bool:
    try:
        msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return False
    return True


def _damaged(where: str, found: str, expected: str) -> CheckpointDamagedError:
    return CheckpointDamagedError(
        f"found {where} {found}; expected {expected}; restore the checkpoint from a clone or a backup"
    )
