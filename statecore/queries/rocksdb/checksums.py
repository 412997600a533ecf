"""Files that Spark reads without a look at the checksums beside them."""

from __future__ import annotations

import re

from statecore.queries.files import read_checked
from statecore.queries.stores import StateStore
from statecore.storage import FileStore
from statecore.storage.parallel import all_in_parallel

_FILE = re.compile(r"(?P<version>\d+)(?:_[^./]+)?\.(?P<kind>zip|changelog)")


def check_changelogs(files: FileStore, store: StateStore, version: int) -> None:
    """Compare the changelogs that a version of the state needs with the checksums beside them.

    Spark notices a changelog that is not whole, but not one that takes the place of another. Snapshots and tables it
    compares itself.

    Args:
        files: The checkpoint.
        store: The state store.
        version: Version of the state: a batch's number + 1.

    Raises:
        CheckpointDamagedError: A changelog differs from a checksum.
        StorageError: The storage fails.

    """
    paths = [path for partition in range(store.partitions) for path in _needed(files, store.folder(partition), version)]
    all_in_parallel(lambda path: read_checked(files, path), paths)


def _needed(files: FileStore, folder: str, version: int) -> list[str]:
    """Return the changelogs after the newest snapshot of a partition."""
    names = (entry.path.removeprefix(f"{folder}/") for entry in files.list(folder))
    found = [match for name in names if (match := _FILE.fullmatch(name)) and int(match["version"]) <= version]
    snapshot = max((int(each["version"]) for each in found if each["kind"] == "zip"), default=0)
    return [f"{folder}/{each[0]}" for each in found if each["kind"] == "changelog" and int(each["version"]) > snapshot]
