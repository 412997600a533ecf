"""Checks the sources' files below ``sources/<number>``: a copy has them unchanged, so they must be whole.

Most sources keep only their start offset. Spark's file source keeps a log of the files that each batch read: one entry
per batch since the newest ``<entry>.compact``, which contains all earlier ones. If one is missing, the query cannot
restart.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from statecore.errors import CheckpointDamagedError
from statecore.queries.reading.checkpoint import SparkCheckpoint
from statecore.queries.reading.files import files_below, read_checked

_FILE = re.compile(r"sources/(?P<source>[^/]+)/(?:.*/)?(?P<name>[^/.][^/]*)")
_COMPACT = re.compile(r"(\d+)\.compact")


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
    for source, newest in _file_sources(checkpoint, set(names)):
        compact = [int(match[1]) for name in names[source] if (match := _COMPACT.fullmatch(name)) is not None]
        begin = max((each for each in compact if each <= newest), default=0)
        for number in range(begin, newest + 1):
            if not names[source] & {str(number), f"{number}.compact"}:
                raise CheckpointDamagedError(
                    f"found no file {number} in sources/{source} of the checkpoint {checkpoint.url}; expected "
                    f"those from {begin} to {newest}, which list the files that the source has read; restore the "
                    "checkpoint from a clone or a backup"
                )


def _file_sources(checkpoint: SparkCheckpoint, folders: set[str]) -> Iterator[tuple[str, int]]:
    """Yield the folder of each file source, and the newest entry of its log that a batch has read."""
    log = checkpoint.offsets[checkpoint.pending or checkpoint.batch]
    if log.version == 1 and folders != set(map(str, range(len(log.sources)))):
        # A source that the query uses twice has two lines and one folder; some sources have no folder.
        return
    for index, line in enumerate(log.sources):
        source, _, offset = (str(index), "", line) if log.version == 1 else line.partition(":")
        try:
            newest = msgspec.json.decode(offset, type=_FileSourceOffset).logOffset
        except msgspec.MsgspecError:
            continue
        if source in folders:
            yield source, newest
