"""What waits in a file source: the files that its folder has and no committed epoch has read.

Spark itself does not tell (4.3). The listing is the source's own, by the same class and the same options; what was read
stands in the source's log::

    sources/<i>/<n>            what offset n took: "v1", then one JSON object a file, with its path and time
    sources/<i>/<n>.compact    the same of all offsets up to n, in their order
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from statecore.errors import StorageError
from statecore.runtime.backlog.meters import UNKNOWN, Pending

SEPARATOR = "\0"
_COMPACT = ".compact"
# As Hadoop describes a file; a path may have anything in it, so the last match counts.
_STATUS = re.compile(r"path=(.*); isDirectory=false; length=(\d+);.*? modification_time=(\d+);", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file that is there."""

    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class FileSourceOptions:
    """What decides whether a file is read.

    Attributes:
        max_age_ms: A file that is older than the newest one read by more than this is never read; None for no limit.
        by_name: Whether files of one name are one file, whatever folder they are in.

    """

    max_age_ms: int | None
    by_name: bool

    def identity(self, path: str) -> str:
        """Return what a file is known by, for a path as Hadoop writes it."""
        # A local path comes with one slash, or three.
        return path.rsplit("/", 1)[-1] if self.by_name else re.sub(r"^file:/+", "/", path)


class FileMeter:
    """The files of a file source.

    Args:
        listing: Gives the files that are there, by path as Hadoop writes it.
        options: The source's.
        log: The source's folder in Spark's checkpoint directory.

    """

    def __init__(self, listing: Callable[[], Mapping[str, ListedFile]], options: FileSourceOptions, log: Path) -> None:
        self._listing = listing
        self._options = options
        self._log = log
        self._lock = threading.Lock()
        self._offset = self._read_up_to = -1
        self._read: dict[str, int] = {}
        self._files_read = 0
        self._pending: dict[str, int] | None = None

    def measure(self) -> None:
        """List the folder."""
        listed = {self._options.identity(path): file for path, file in self._listing().items()}
        with self._lock:
            self._catch_up()
            oldest_ms = self._forget_old()
            self._pending = {
                path: file.size
                for path, file in listed.items()
                if path not in self._read and file.modified_ms >= oldest_ms
            }

    def committed(self, position: str) -> None:
        """Take the files of committed epochs out of those that wait."""
        with self._lock:
            self._offset = int(json.loads(position)["logOffset"])
            if self._pending is not None:
                self._catch_up()

    def pending(self) -> Pending:
        """Return files and bytes; how many records are in them is not known."""
        with self._lock:
            if self._pending is None:
                return UNKNOWN
            return Pending(bytes=sum(self._pending.values()), files=len(self._pending), files_read=self._files_read)

    def _catch_up(self) -> None:
        """Read what the log says of the offsets since the last call."""
        if self._offset <= self._read_up_to:
            return
        for path, modified_ms in logged_files(self._log, self._read_up_to, self._offset):
            known_by = self._options.identity(path)
            self._files_read += known_by not in self._read
            self._read[known_by] = modified_ms
            if self._pending is not None:
                self._pending.pop(known_by, None)
        self._read_up_to = self._offset

    def _forget_old(self) -> int:
        """Forget files that are never read again; return how old the others may be."""
        if self._options.max_age_ms is None:
            return 0
        oldest_ms = max(self._read.values(), default=0) - self._options.max_age_ms
        self._read = {path: modified_ms for path, modified_ms in self._read.items() if modified_ms >= oldest_ms}
        return oldest_ms


def logged_files(log: Path, after: int, up_to: int) -> Iterator[tuple[str, int]]:
    """Yield the files that a source's log has of the offsets ``after`` (exclusive) to ``up_to`` (inclusive).

    Args:
        log: Folder of the log.
        after: -1 for all.
        up_to: The newest offset.

    Yields:
        Path, as Hadoop writes it, and modification time in milliseconds; the newest file first, some perhaps twice.

    """
    entries = {int(file.name.removesuffix(_COMPACT)): file for file in log.iterdir() if _is_entry(file)}
    for offset in sorted(entries, reverse=True):
        if after < offset <= up_to:
            for line in reversed(entries[offset].read_text().splitlines()[1:]):
                found = json.loads(line)
                if found["batchId"] <= after:
                    # A compaction holds the whole history, and only its end is news.
                    return
                yield unquote(found["path"]), found["timestamp"]


def _is_entry(file: Path) -> bool:
    return file.name.removesuffix(_COMPACT).isdigit()


def parsed_listing(text: str) -> dict[str, ListedFile]:
    """Return the files of a listing, by path.

    Args:
        text: What Hadoop's ``FileStatus`` says of each file, with a zero character between two.

    Raises:
        StorageError: It reads otherwise than expected.

    """
    files = {}
    for status in text.split(SEPARATOR):
        found = _STATUS.search(status)
        if found is None:
            raise StorageError(
                f"found {status!r} in the listing of a source; expected a path, a length and a modification time; "
                "run the Spark release this package is pinned to"
            )
        files[found[1]] = ListedFile(int(found[2]), int(found[3]))
    return files
