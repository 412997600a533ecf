"""Checks that of several writers that create one file at once, exactly one is told that it did.

Commits depend on it. Some servers ignore the condition of a conditional put. Others look whether the file exists and
then write it, so two writers at the same moment may both succeed; a single race often misses that.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence

import msgspec

from statecore.errors import AlreadyExistsError, ConfigurationError, MissingFileError
from statecore.storage.base import FileStore
from statecore.storage.local import LocalFileStore
from statecore.storage.parallel import in_parallel

ROUNDS = 20
"""Races for one name each. A server that passes three races of four passes 20 once in 300 times."""
WRITERS = 8
MARKER = "conditional-puts.json"
"""The file in a store that says which check passed there."""
RACES = "conditional-puts"
"""The folder of the files that writers race for."""


def require_conditional_puts(files: FileStore) -> None:
    """Check a store's conditional puts, once per store: a marker in it says that they passed.

    A file system is not checked: POSIX has it create a link once.

    Raises:
        ConfigurationError: Not exactly one of several concurrent writers created a file.
        StorageError: The storage fails.

    """
    if isinstance(files, LocalFileStore):
        return
    # Compared as a whole: a marker copied with a store to another place, or of another check, does not count.
    passed = msgspec.json.encode({"store": files.url, "rounds": ROUNDS, "writers": WRITERS})
    try:
        if files.read(MARKER) == passed:
            return
    except MissingFileError:
        pass
    require_one_winner(files)
    files.write(MARKER, passed)


def require_one_winner(files: FileStore) -> None:
    """Let writers race for new names in a store, and remove the files.

    Raises:
        ConfigurationError: Not exactly one writer created a file, or the file is not the winner's.
        StorageError: The storage fails.

    """
    token = uuid.uuid4().hex
    paths = [f"{RACES}/{token}/{number:02d}" for number in range(1, ROUNDS + 1)]
    try:
        for path in paths:
            winners = _race(files, path)
            if len(winners) != 1:
                raise _refusal(files, f"{len(winners)} of {WRITERS} concurrent writers that they created a file")
            if files.read(path) != _content(winners[0]):
                raise _refusal(files, f"one of {WRITERS} concurrent writers that it created a file, and kept another's")
    finally:
        files.delete_all(paths)


def _race(files: FileStore, path: str) -> Sequence[int]:
    """Return the numbers of the writers that were told that they created the file."""
    start = threading.Barrier(WRITERS)

    def put(writer: int) -> bool:
        start.wait()
        try:
            files.put_if_absent(path, _content(writer))
        except AlreadyExistsError:
            return False
        return True

    # With a thread for each: all wait for the last one.
    won = in_parallel(put, range(WRITERS), threads=WRITERS)
    return [writer for writer, has_won in enumerate(won) if has_won]


def _content(writer: int) -> bytes:
    return b"%d" % writer


def _refusal(files: FileStore, told: str) -> ConfigurationError:
    return ConfigurationError(
        f"found that {files.url} told {told}; expected exactly one winner, whose bytes stay, because only one of two "
        "drivers may commit an epoch; use a storage, or a newer release of it, that decides conditional puts "
        "(If-None-Match: *) one by one, as S3 does, or a folder"
    )
