"""Files behind one narrow Protocol: local now, object stores beside it."""

from __future__ import annotations

from urllib.parse import unquote, urlparse

from statecore.errors import ConfigurationError
from statecore.storage.base import FileStore, safe_path
from statecore.storage.local import LocalFileStore

__all__ = ["FileStore", "LocalFileStore", "open_store", "safe_path"]


def open_store(url: str) -> FileStore:
    """Open the store at ``url``: a path or ``file:///path``.

    Raises:
        ConfigurationError: The URL has a scheme this version does not know.

    """
    parsed = urlparse(url)
    if parsed.scheme == "":
        return LocalFileStore(url)
    if parsed.scheme == "file" and parsed.netloc in ("", "localhost"):
        return LocalFileStore(unquote(parsed.path))
    raise ConfigurationError(
        f"found the store {url!r}; expected a path or file:///path; copy or mount the files where such a path leads"
    )
