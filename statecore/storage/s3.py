"""A file store in an S3 bucket or S3-compatible storage."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import BotoCoreError, ClientError

from statecore.errors import AlreadyExistsError, MissingFileError, UnsafePathError
from statecore.storage.base import FileEntry, in_batches, safe_path
from statecore.storage.ranges import RangeReader
from statecore.storage.s3_client import client, delete_objects, get, put_new, require_bucket
from statecore.storage.s3_errors import code_of, storage_error
from statecore.storage.urls import Place

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import HeadObjectOutputTypeDef

_PART_BYTES = 16 * 2**20
_TRANSFER = TransferConfig(multipart_threshold=_PART_BYTES, multipart_chunksize=_PART_BYTES, max_concurrency=8)

_KEYS_IN_REQUEST = 1000  # S3's limit
_WRITER = "statecore-writer"  # metadata key of files created by put_if_absent


class S3FileStore:
    """A ``FileStore`` below a prefix of a bucket.

    boto3 takes endpoint, region, credentials and number of attempts from its usual places. The storage must support
    conditional puts (``If-None-Match: *``), as S3 does.
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return self._place.url

    def write(self, path: str, data: bytes) -> None:
        """Write a file, a large one in parallel parts; it becomes visible with the last part."""
        with self._translated_errors(path):
            client().upload_fileobj(io.BytesIO(data), self._bucket, self._key(path), Config=_TRANSFER)

    def put_if_absent(self, path: str, data: bytes | Path) -> None:
        """Create a file with a conditional put, from data or from a local file of at most 5 GiB.

        boto3 retries a put whose response was lost, and the retry finds the file that the first attempt created. Each
        file therefore carries the id of its writer.
        """
        writer = uuid.uuid4().hex
        with self._translated_errors(path):
            try:
                put_new(self._bucket, self._key(path), data, {_WRITER: writer})
            except ClientError as error:
                if code_of(error) != "PreconditionFailed":
                    raise
                if self._writer_of(path) != writer:
                    raise AlreadyExistsError(
                        f"found {path} already there; expected to create it; another writer was first: discard this "
                        "attempt"
                    ) from None

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        return self._get(path)

    def read_range(self, path: str, start: int, size: int) -> bytes:
        """Return some bytes of a file, with one request."""
        with self._translated_errors(path):
            try:
                return get(self._bucket, self._key(path), Range=f"bytes={start}-{start + size - 1}")
            except ClientError as error:
                if code_of(error) != "InvalidRange":
                    raise
                # The file ends before the range.
                return b""

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for reads at any offset; each read requests its range."""
        head = self._head(path)

        def fetch(start: int, end: int) -> bytes:
            # If the file is replaced between two reads, fail instead of mixing the bytes of both.
            return self._get(path, Range=f"bytes={start}-{end - 1}", IfMatch=head["ETag"])

        return pa.PythonFile(RangeReader(fetch, head["ContentLength"]), mode="r")

    def size(self, path: str) -> int | None:
        """Return the size in bytes, or None when there is no such file."""
        try:
            return self._head(path)["ContentLength"]
        except MissingFileError:
            return None

    def folders(self, prefix: str) -> list[str]:
        """Return the common prefixes of the keys below a folder."""
        folder = f"{self._key(prefix)}/"
        root = folder.removesuffix(f"{_normal(prefix)}/")
        with self._translated_errors(prefix):
            pages = (
                client().get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=folder, Delimiter="/")
            )
            prefixes = [item["Prefix"] for page in pages for item in page.get("CommonPrefixes", ())]
        return sorted(path for each in prefixes if _is_path(path := each.removeprefix(root).removesuffix("/")))

    def list(self, prefix: str, *, after: str = "") -> list[FileEntry]:
        """Return the files below a folder; skip keys that are not paths, such as a console's folder markers."""
        folder = f"{self._key(prefix)}/"
        root = folder.removesuffix(f"{_normal(prefix)}/")
        with self._translated_errors(prefix):
            listing = client().get_paginator("list_objects_v2")
            pages = listing.paginate(Bucket=self._bucket, Prefix=folder, StartAfter=f"{root}{after}")
            entries = [
                FileEntry(item["Key"].removeprefix(root), item["Size"], int(item["LastModified"].timestamp() * 1000))
                for page in pages
                for item in page.get("Contents", ())
            ]
        return sorted((entry for entry in entries if _is_path(entry.path)), key=attrgetter("path"))

    def move(self, source: str, target: str) -> None:
        """Copy a file within S3, a large one in parallel parts, then delete the old one."""
        old, new = self._key(source), self._key(target)
        if old == new:
            self._head(source)
            return
        with self._translated_errors(source):
            client().copy({"Bucket": self._bucket, "Key": old}, self._bucket, new, Config=_TRANSFER)
            client().delete_object(Bucket=self._bucket, Key=old)

    def delete(self, path: str) -> None:
        """Delete a file; no error when it is missing."""
        with self._translated_errors(path):
            client().delete_object(Bucket=self._bucket, Key=self._key(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        """Delete files, a thousand in one request."""
        keys = (self._key(path) for path in paths)
        for part in in_batches(keys, _KEYS_IN_REQUEST):
            with self._translated_errors(part[0]):
                errors = delete_objects(self._bucket, part)
            for failed in errors:
                code, message = failed.get("Code", ""), failed.get("Message", "")
                error = ClientError({"Error": {"Code": code, "Message": message}}, "DeleteObjects")
                raise storage_error(error, f"s3://{self._bucket}/{failed.get('Key', '')}")

    def sweep(self, prefix: str, before_ms: int) -> None:
        """Do nothing: a file is written in one request, and a folder is only a part of its files' keys."""

    @property
    def _bucket(self) -> str:
        return self._place.bucket

    def _key(self, path: str) -> str:
        return "/".join((*self._place.parts, _normal(path)))

    def _head(self, path: str) -> HeadObjectOutputTypeDef:
        with self._translated_errors(path):
            return client().head_object(Bucket=self._bucket, Key=self._key(path))

    def _get(self, path: str, **conditions: Any) -> bytes:
        with self._translated_errors(path):
            return get(self._bucket, self._key(path), **conditions)

    def _writer_of(self, path: str) -> str | None:
        try:
            return self._head(path)["Metadata"].get(_WRITER)
        except MissingFileError:
            # Another writer's file, deleted in the meantime.
            return None

    @contextmanager
    def _translated_errors(self, path: str) -> Iterator[None]:
        """Raise errors of S3 and boto3 as StorageError, with path and remedy."""
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if code_of(error) == "404":
                require_bucket(self._bucket)
            raise storage_error(error, f"{self.url}/{path}") from error


def _normal(path: str) -> str:
    """Normalise a path as a file system does: ``a//b`` and ``./a/b`` are ``a/b``."""
    return str(PurePosixPath(safe_path(path)))


def _is_path(path: str) -> bool:
    try:
        return _normal(path) == path
    except UnsafePathError:
        return False
