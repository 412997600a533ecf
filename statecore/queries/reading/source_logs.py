"""Checks the sources' files below ``sources/<number>``: a copy has them unchanged, so they must be whole.

Most sources keep only their start offset. Spark's file source keeps a log of the files that each batch read: one entry
per batch since the newest ``<entry>.compact``, which contains all earlier ones. If one is missing, the query cannot
restart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.checkpoint import SparkCheckpoint
from statecore.queries.reading.files import files_below, read_checked

_FILE = re.compile(r"sources/(?P<source>[^/]+)/(?:.*/)?(?P<name>[^/.][^/]*)")
_COMPACT = re.compile(r"(\d+)\.compact")
_OF_KAFKA = {"0"}
"""Files of a source of Kafka; a log of files has more, but for its first entry."""


class _FileSourceOffset(msgspec.Struct):
    logOffset: int


def require_whole_sources(checkpoint: SparkCheckpoint) -> None:
    """Check the sources' files against checksums, and the file source's logs for gaps.

    Raises:
        CheckpointDamagedError: A file is missing, or differs from a checksum that lies beside it.
        StorageError: The storage fails.

    """
    names: dict[str, set[str]] = defaultdict(set)
    for entry in files_below(checkpoint.url):
        match = _FILE.fullmatch(entry.path)
        if match is not None and not match["name"].endswith(".crc"):
            read_checked(checkpoint.store, entry.path)
            names[match["source"]].add(match["name"])
    for source, newest in _file_sources(checkpoint, names):
        compact = [int(match[1]) for name in names[source] if (match := _COMPACT.fullmatch(name)) is not None]
        begin = max((each for each in compact if each <= newest), default=0)
        for number in range(begin, newest + 1):
            if not names[source] & {str(number), f"{number}.compact"}:
                raise CheckpointDamagedError(
                    f"found no file {number} in sources/{source} of the checkpoint {checkpoint.url}; expected "
                    f"those from {begin} to {newest}, which list the files that the source has read; restore the "
                    "checkpoint from a clone or a backup"
                )


def _file_sources(checkpoint: SparkCheckpoint, names: Mapping[str, set[str]]) -> Iterator[tuple[str, int]]:
    """Yield the folder of each file source, and the newest entry of its log that a batch has read."""
    log = checkpoint.offsets[checkpoint.pending or checkpoint.batch]
    named = ((name, offset) for name, _, offset in (line.partition(":") for line in log.sources))
    offsets = dict(enumerate(log.sources)) if log.version == 1 else dict(named)
    newest = {str(source): each for source, line in offsets.items() if (each := _log_offset(line)) is not None}
    if log.version > 1 or names.keys() == set(map(str, range(len(log.sources)))):
        yield from ((source, each) for source, each in newest.items() if source in names)
    elif newest:
        # A source that the query uses twice has two lines and one folder; some sources have no folder. So no line is
        # known to be a folder's. But every file source has read the entries up to the least of them.
        yield from ((source, min(newest.values())) for source in names if names[source] != _OF_KAFKA)


def _log_offset(line: str) -> int | None:
    """Return the newest log entry that an offset of the file source names; None for another source."""
    try:
        return msgspec.json.decode(line, type=_FileSourceOffset).logOffset
    except msgspec.MsgspecError:
        return None
