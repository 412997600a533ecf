"""File storage, local or S3, behind one Protocol."""

from __future__ import annotations

from statecore.extras import require
from statecore.storage.base import FileEntry, FileStore, in_batches, safe_path
from statecore.storage.conditional_put import require_conditional_puts
from statecore.storage.local import LocalFileStore
from statecore.storage.urls import parse_url, resolve_url, split_url

__all__ = [
    "FileEntry",
    "FileStore",
    "LocalFileStore",
    "in_batches",
    "open_store",
    "require_conditional_puts",
    "resolve_url",
    "safe_path",
    "split_url",
]


def open_store(url: str) -> FileStore:
    """Open the store at ``url``: a path, ``file:///path`` or ``s3://bucket/prefix``.

    For S3, boto3 takes endpoint, region and credentials from the environment, a profile or the instance role.

    Raises:
        ConfigurationError: The URL has an unknown scheme.

    """
    place = parse_url(url)
    if place.scheme == "s3":
        require("boto3", extra="s3")
        # Imported on demand: boto3 is slow to import.
        from statecore.storage.s3 import S3FileStore

        return S3FileStore(place)
    # A plain path stays as given: `..` behind a symbolic link cannot be resolved as text.
    return LocalFileStore(f"/{place.path}" if place.scheme == "file" else url)
