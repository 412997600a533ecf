"""Backlog of a file source: listed files that no committed epoch has read.

Spark 4.3 does not report it. The listing uses the source's own class and options; the files already read are in the
source's log::

    sources/<i>/<n>            files of offset n: "v1", then one JSON object per file, with path and modification time
    sources/<i>/<n>.compact    the same for all offsets up to n, in their order
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from statecore.errors import StorageError
from statecore.runtime.backlog.meters import UNKNOWN, Pending

SEPARATOR = "\0"
_COMPACT = ".compact"
# After a listing of this age, more files have probably arrived.
_CURRENT_S = 30.0
# Text of Hadoop's FileStatus. A path may contain anything, so the greedy match takes the last fields.
_STATUS = re.compile(r"path=(.*); isDirectory=false; length=(\d+);.*? modification_time=(\d+);", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """Size in bytes and modification time of a file in the source's folder."""

    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class FileSourceOptions:
    """Options of a file source that decide whether it reads a file.

    Attributes:
        max_age_ms: ``maxFileAge``: the source ignores files that are older than the newest read one by more than this;
            None for no limit.
        by_name: ``fileNameOnly``: files of the same name in different folders count as one.
        ignores_missing: ``ignoreMissingFiles``, of the source or of the session: the stream goes on without files that
            are deleted before it has read them.

    """

    max_age_ms: int | None
    by_name: bool
    ignores_missing: bool

    def identity(self, path: str) -> str:
        """Return the identity of a file, given its path as Hadoop writes it."""
        return path.rsplit("/", 1)[-1] if self.by_name else plain_path(path)


class FileMeter:
    """Meters a file source by a listing, with paths as Hadoop writes them, and by its log in Spark's checkpoint."""

    def __init__(
        self,
        listing: Callable[[], Mapping[str, ListedFile]],
        options: FileSourceOptions,
        log: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listing = listing
        self._options = options
        self._log = log
        self._clock = clock
        self._listed_s = 0.0
        self._lock = threading.Lock()
        self._offset = self._read_up_to = -1
        self._read: dict[str, int] = {}
        self._files_read = 0
        self._pending: dict[str, int] | None = None

    def measure(self) -> None:
        """List the folder."""
        began_s = self._clock()
        listed = {self._options.identity(path): file for path, file in self._listing().items()}
        with self._lock:
            self._listed_s = began_s
            self._catch_up()
            oldest_ms = self._forget_old()
            self._pending = {
                path: file.size
                for path, file in listed.items()
                if path not in self._read and file.modified_ms >= oldest_ms
            }

    def committed(self, position: str) -> None:
        """Remove the files of committed epochs from the pending ones."""
        with self._lock:
            self._offset = int(json.loads(position)["logOffset"])
            if self._pending is not None:
                self._catch_up()

    def pending(self) -> Pending:
        """Return pending files and bytes; their number of records is unknown.

        Once all files of an old listing are read, it is not known whether any wait.
        """
        with self._lock:
            if self._pending is None:
                return UNKNOWN
            if not self._pending and self._clock() - self._listed_s > _CURRENT_S:
                return Pending(files_read=self._files_read)
            return Pending(bytes=sum(self._pending.values()), files=len(self._pending), files_read=self._files_read)

    def _catch_up(self) -> None:
        """Read the log from the last offset seen to the committed one."""
        if self._offset <= self._read_up_to:
            return
        for path, modified_ms in logged_files(self._log, self._read_up_to, self._offset):
            identity = self._options.identity(path)
            self._files_read += identity not in self._read
            self._read[identity] = modified_ms
            if self._pending is not None:
                self._pending.pop(identity, None)
        self._read_up_to = self._offset

    def _forget_old(self) -> int:
        """Drop read files older than ``max_age_ms`` allows; return that age limit as a modification time in ms."""
        if self._options.max_age_ms is None:
            return 0
        oldest_ms = max(self._read.values(), default=0) - self._options.max_age_ms
        self._read = {path: modified_ms for path, modified_ms in self._read.items() if modified_ms >= oldest_ms}
        return oldest_ms


def plain_path(path: str) -> str:
    """Return a path in one form: Hadoop writes file:/path in one place and file:///path in another."""
    return re.sub(r"^file:/+", "/", path)


def logged_files(log: Path, after: int, up_to: int) -> Iterator[tuple[str, int]]:
    """Yield the files in a source's log from offset ``after`` (exclusive) to ``up_to`` (inclusive).

    Yields:
        Path as Hadoop writes it, and modification time in ms; newest offset first; a file may occur twice.

    """
    entries = {int(file.name.removesuffix(_COMPACT)): file for file in log.iterdir() if _is_entry(file)}
    for offset in sorted(entries, reverse=True):
        if after < offset <= up_to:
            for line in reversed(entries[offset].read_text().splitlines()[1:]):
                logged = json.loads(line)
                if logged["batchId"] <= after:
                    # A compacted entry holds the whole history; the caller already has the rest.
                    return
                yield unquote(logged["path"]), logged["timestamp"]


def _is_entry(file: Path) -> bool:
    return file.name.removesuffix(_COMPACT).isdigit()


def parsed_listing(text: str) -> dict[str, ListedFile]:
    """Parse a listing, Hadoop's ``FileStatus.toString()`` of each file separated by NUL, into files by path.

    Raises:
        StorageError: An entry has an unknown format.

    """
    files = {}
    for status in text.split(SEPARATOR):
        match = _STATUS.search(status)
        if match is None:
            raise StorageError(
                f"found {status!r} in the listing of a source; expected a path, a length and a modification time; "
                "install the Spark release that statecore pins"
            )
        files[match[1]] = ListedFile(int(match[2]), int(match[3]))
    return files
