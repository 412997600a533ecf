"""Copies files of a checkpoint unchanged, by the cheapest way between the two stores.

============  ============================================
local, local  a hard link; a copy where the file system has none between the two
S3, S3        a copy within S3, without this machine
else          an upload or a download
============  ============================================
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statecore.errors import MissingFileError, StorageError
from statecore.queries.progress import Report, quiet
from statecore.queries.reading.files import is_local, local_path
from statecore.storage import FileEntry
from statecore.storage.parallel import all_in_parallel, in_parallel
from statecore.storage.urls import Place, normal_url, parse_url

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_LARGEST_PUT = 5 * 2**30
"""S3's limit for an upload in one part."""


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of a copy.

    Attributes:
        files: Number of files.
        bytes: Their size.
        linked: How many of them are hard links.

    """

    files: int
    bytes: int
    linked: int

    def __add__(self, other: Brought) -> Brought:
        """Return the sum."""
        return Brought(self.files + other.files, self.bytes + other.bytes, self.linked + other.linked)


def bring(source: str, target: str, files: Sequence[FileEntry], report: Report = quiet) -> Brought:
    """Copy files from one root to the same paths below another.

    A local file is durable once its folder and, for a copy, the file itself are synced, which is left to the caller.

    Raises:
        MissingFileError: A file is gone.
        StorageError: The storage fails.

    """
    work = _way(source, target)
    linked = 0
    if is_local(target):
        _make_folders(local_path(target), files)
    for done, is_link in enumerate(in_parallel(lambda entry: work(entry.path), files), start=1):
        linked += is_link
        report(done, len(files))
    return Brought(len(files), sum(entry.size for entry in files), linked)


def create(source: Path, target: str, files: Sequence[FileEntry]) -> None:
    """Upload local files to a place in S3 that has none of them.

    Raises:
        AlreadyExistsError: It has one: another writer is at work there.
        StorageError: The storage fails.

    """
    from statecore.storage.s3 import S3FileStore

    store = S3FileStore(parse_url(normal_url(target)))

    def put(entry: FileEntry) -> None:
        if entry.size <= _LARGEST_PUT:
            store.put_if_absent(entry.path, source / entry.path)
        else:
            # boto3 sends no condition with an upload in parts.
            bring(str(source), target, [entry])

    all_in_parallel(put, files)


def _make_folders(root: Path, files: Sequence[FileEntry]) -> None:
    for folder in sorted({entry.path.rpartition("/")[0] for entry in files}):
        (root / folder).mkdir(parents=True, exist_ok=True)


def _way(source: str, target: str) -> Callable[[str], bool]:
    """Return a function that copies the file at a path and returns whether it became a hard link."""
    if is_local(source) and is_local(target):
        here, there = local_path(source), local_path(target)
        return lambda path: _link_or_copy(here / path, there / path)
    if is_local(source):
        here, place = local_path(source), parse_url(normal_url(target))
        return lambda path: _sent(
            lambda s3: s3.upload_file(str(here / path), place.bucket, _key(place, path)), here / path
        )
    origin = parse_url(normal_url(source))
    if is_local(target):
        there = local_path(target)
        return lambda path: _sent(
            lambda s3: s3.download_file(origin.bucket, _key(origin, path), str(there / path)), f"{origin.url}/{path}"
        )
    place = parse_url(normal_url(target))
    return lambda path: _sent(
        lambda s3: s3.copy({"Bucket": origin.bucket, "Key": _key(origin, path)}, place.bucket, _key(place, path)),
        f"{origin.url}/{path}",
    )


def _key(place: Place, path: str) -> str:
    return "/".join((*place.parts, path))


def _link_or_copy(source: Path, target: Path) -> bool:
    try:
        # Nobody edits a file of a checkpoint: Spark renames new files into place. So a link is as good as a copy.
        with suppress(OSError):
            os.link(source, target)
            return True
        shutil.copyfile(source, target)
        return False
    except FileNotFoundError:
        raise _gone(source) from None
    except OSError as error:
        raise StorageError(
            f"found {error.strerror or error} on the way from {source} to {target}; expected to link or copy the file; "
            "free space, or grant this process's user access"
        ) from error


def _sent(work: Callable[[S3Client], None], where: object) -> bool:
    # Imported on demand: boto3 is slow to import.
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    from statecore.storage.s3_client import client
    from statecore.storage.s3_errors import storage_error

    try:
        work(client())
    except FileNotFoundError:
        raise _gone(where) from None
    except (ClientError, BotoCoreError) as error:
        raise storage_error(error, str(where)) from error
    except (Boto3Error, OSError) as error:
        raise StorageError(
            f"found {error} for {where}; expected to upload or download it; remove the cause, then retry"
        ) from error
    return False


def _gone(where: object) -> MissingFileError:
    return MissingFileError(
        f"found no file {where} any more; expected the files of the checkpoint to stay; stop the query, then try again"
    )
