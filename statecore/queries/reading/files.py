r"""Lists and reads the files of a checkpoint; verifies them against the checksum files beside them.

Two kinds of checksum files lie beside a file ``N``; each is optional:

- ``.N.crc``, by Hadoop's local file system: the bytes ``crc\0``, the size of a chunk, a CRC-32 for each chunk, all
  integers big-endian;
- ``N.crc``, by Spark 4.1 and newer: JSON with the size of the file and its CRC-32C.

Spark refuses to read a file that differs from one of them.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import google_crc32c
import msgspec

from statecore.errors import CheckpointDamagedError, ConfigurationError, MissingFileError
from statecore.storage import FileEntry, FileStore, open_store, split_url
from statecore.storage.urls import normal_url, parse_url

INCOMPLETE = ".statecore-incomplete"
"""An object of this name says that a checkpoint in S3 is not whole."""

_MAGIC = b"crc\0"
_HEADER_BYTES = 8
_CHECKSUM_BYTES = 4
_CHECKSUMS = 1 << 8 * _CHECKSUM_BYTES
_HIDDEN_CHECKSUM = re.compile(r"(?:.*/)?\.[^/]+\.crc")


class _SparksChecksum(msgspec.Struct):
    mainFileSize: int
    value: int


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
    for problem in _problems(store, path, data):
        raise CheckpointDamagedError(
            f"found {path} in the checkpoint {store.url} {problem}; expected the bytes that Spark wrote; restore the "
            "checkpoint from a clone or a backup"
        )
    return data


def _problems(store: FileStore, path: str, data: bytes) -> Iterator[str]:
    of_hadoop, of_spark = (_optional(store, each) for each in checksum_paths(path)[:2])
    if of_hadoop is not None and not _agrees(of_hadoop, data):
        yield "different from its checksum file of Hadoop"
    if of_spark is not None:
        try:
            recorded = msgspec.json.decode(of_spark, type=_SparksChecksum)
        except msgspec.MsgspecError:
            yield "beside a checksum file that is not Spark's"
        else:
            if recorded.mainFileSize != len(data):
                yield f"with {len(data):,} bytes, and {recorded.mainFileSize:,} in its checksum file"
            # Java writes it as a signed number.
            elif recorded.value % _CHECKSUMS != google_crc32c.value(data):
                yield "different from its checksum file of Spark"


def _optional(store: FileStore, path: str) -> bytes | None:
    try:
        return store.read(path)
    except MissingFileError:
        return None


def _agrees(checksums: bytes, data: bytes) -> bool:
    chunk = int.from_bytes(checksums[len(_MAGIC) : _HEADER_BYTES])
    if not checksums.startswith(_MAGIC) or chunk == 0:
        return False
    actual = b"".join(
        zlib.crc32(data[start : start + chunk]).to_bytes(_CHECKSUM_BYTES) for start in range(0, len(data), chunk)
    )
    return actual == checksums[_HEADER_BYTES:]
