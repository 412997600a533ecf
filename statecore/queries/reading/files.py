"""Lists and reads the files of a checkpoint; verifies them against the checksum files beside them."""

from __future__ import annotations

import os
import re
from pathlib import Path

from statecore.errors import CheckpointDamagedError, ConfigurationError, MissingFileError
from statecore.queries.reading.checksums import (
    agrees_with_hadoops,
    agrees_with_sparks,
    is_compared_with_hadoops,
    is_compared_with_sparks,
    is_state,
)
from statecore.storage import FileEntry, FileStore, open_store, split_url
from statecore.storage.urls import normal_url, parse_url

INCOMPLETE = ".statecore-incomplete"
"""An object of this name says that a checkpoint in S3 is not whole."""

_HIDDEN_CHECKSUM = re.compile(r"(?:.*/)?\.[^/]+\.crc")


def spark_url(url: str) -> str:
    """Return the URL of a checkpoint for Spark: ``s3://`` becomes ``s3a://``; a local path has the scheme ``file:``.

    As in Spark's own metadata, nothing in it is percent-encoded.
    """
    url = normal_url(url)
    if url.startswith("s3://"):
        return f"s3a://{url.removeprefix('s3://')}"
    return f"file:{local_path(url)}"


def is_local(url: str) -> bool:
    """Return whether a URL leads to a local or mounted file system."""
    return not normal_url(url).startswith("s3://")


def local_path(url: str) -> Path:
    """Return the absolute path of a local URL, links resolved.

    Raises:
        ConfigurationError: The URL is not local.

    """
    if not is_local(url):
        raise ConfigurationError(f"found the URL {url}; expected a local path; give a folder of this machine")
    return Path(os.path.realpath(open_store(url).url))


def canonical_url(url: str) -> str:
    """Return the one spelling of a URL: of a local one behind all links, in S3 without empty and relative parts.

    Raises:
        ConfigurationError: The URL is unusable.

    """
    return str(local_path(url)) if is_local(url) else parse_url(normal_url(url)).url


def files_below(url: str) -> list[FileEntry]:
    """Return every file of a checkpoint, with paths relative to its root, sorted by path.

    Raises:
        ConfigurationError: The URL is the root of a file system or bucket.
        StorageError: The storage fails.

    """
    # A store lists folders below its root, so the checkpoint is listed from its parent. Through links: a store
    # refuses those that lead out of its root.
    parent, name = split_url(str(local_path(url)) if is_local(url) else normal_url(url))
    return [
        FileEntry(entry.path.removeprefix(f"{name}/"), entry.size, entry.modified_ms)
        for entry in open_store(parent).list(name)
    ]


def is_hidden_checksum(path: str) -> bool:
    """Return whether a path is that of a checksum file of Hadoop's local file system."""
    return _HIDDEN_CHECKSUM.fullmatch(path) is not None


def checksum_paths(path: str) -> tuple[str, str, str]:
    """Return where checksums of a file would lie: Hadoop's, Spark's, and Hadoop's of Spark's."""
    folder, separator, name = path.rpartition("/")
    return f"{folder}{separator}.{name}.crc", f"{path}.crc", f"{folder}{separator}.{name}.crc.crc"


def read_checked(store: FileStore, path: str) -> bytes:
    """Return the bytes of a file of a checkpoint.

    Raises:
        CheckpointDamagedError: The file is missing, or differs from a checksum that lies beside it.
        StorageError: The storage fails.

    """
    try:
        data = store.read(path)
    except MissingFileError:
        raise CheckpointDamagedError(
            f"found no file {path} in the checkpoint {store.url}; expected it beside the others of its batch; restore "
            "the checkpoint from a clone or a backup"
        ) from None
    _require_agreement(store, path, data)
    return data


def _require_agreement(store: FileStore, path: str, data: bytes) -> None:
    """Check that a file agrees with the checksums beside it: for state, with those that Spark compares, or with one."""
    hadoops, sparks, _ = checksum_paths(path)
    of_hadoop, of_spark = _optional(store, hadoops), _optional(store, sparks)
    agrees = {
        hadoops: None if of_hadoop is None else agrees_with_hadoops(of_hadoop, data),
        sparks: None if of_spark is None else agrees_with_sparks(of_spark, data),
    }
    is_compared = {
        hadoops: of_hadoop is not None and is_local(store.url) and is_compared_with_hadoops(path, of_hadoop),
        sparks: is_compared_with_sparks(path),
    }
    for checksum in (each for each, agreement in agrees.items() if agreement is False):
        # An agreement with the other one proves the bytes: this one is of another attempt at the batch.
        if is_compared[checksum] or not (is_state(path) and True in agrees.values()):
            raise CheckpointDamagedError(
                f"found {path} in the checkpoint {store.url} different from its checksum file {checksum}; expected the "
                f"two to agree, {_advice(path, checksum, is_compared=is_compared[checksum])}"
            )


def _advice(path: str, checksum: str, *, is_compared: bool) -> str:
    restore = "restore the checkpoint from a clone or a backup"
    if is_compared:
        return f"because Spark 4.3 compares them and refuses the file; {restore}"
    if is_state(path) and not is_hidden_checksum(checksum):
        return (
            "although Spark 4.3 reads the file without comparing them: in state checkpoint format 1, a repeated batch "
            f"may leave the checksum of another attempt (SPARK-56461); remove {checksum} if the batch was repeated; "
            f"otherwise {restore}"
        )
    return (
        f"although Spark 4.3 reads the file without comparing them; remove {checksum} if you know that the file is "
        f"right, as after an edit; otherwise {restore}"
    )


def _optional(store: FileStore, path: str) -> bytes | None:
    try:
        return store.read(path)
    except MissingFileError:
        return None
