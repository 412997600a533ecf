"""Files behind one narrow Protocol: on a file system or in S3."""

from __future__ import annotations

from statecore.extras import require
from statecore.storage.base import FileEntry, FileStore, safe_path
from statecore.storage.local import LocalFileStore
from statecore.storage.urls import parse_url, resolve_url, split_url

__all__ = ["FileEntry", "FileStore", "LocalFileStore", "open_store", "resolve_url", "safe_path", "split_url"]


def open_store(url: str) -> FileStore:
    """Open the store at ``url``: a path, ``file:///path`` or ``s3://bucket/prefix``.

    S3's endpoint, region and credentials are those of any boto3 program: environment, profile or instance role.

    Raises:
        ConfigurationError: The URL has a scheme this version does not know.

    """
    place = parse_url(url)
    if place.scheme == "s3":
        require("boto3", extra="s3")
        # boto3 takes a while to import; a process that stays with local files shall not pay for it.
        from statecore.storage.s3 import S3FileStore

        return S3FileStore(place)
    # A path as it was given: it may lead through links, where `..` is not what it seems to be.
    return LocalFileStore(f"/{place.path}" if place.scheme == "file" else url)
