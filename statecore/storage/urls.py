"""Parses and joins URLs of stores as text, without any I/O.

A URL of an unknown scheme, or one that does not fit its scheme, raises ConfigurationError; a path above its root
raises UnsafePathError.

::

    /path, path           local; a relative path starts at the working directory
    file:///path          local; percent-encoded
    s3://bucket/prefix    in a bucket; not percent-encoded, as on the AWS command line
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from statecore.errors import ConfigurationError, UnsafePathError
from statecore.redaction import redacted

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Place:
    """A parsed URL, with ``.`` and ``..`` resolved.

    Attributes:
        scheme: ``""``, ``"file"`` or ``"s3"``.
        bucket: Bucket of S3; empty for a local path.
        parts: Names from the root of the file system or bucket downwards.

    """

    scheme: str
    bucket: str
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        """All parts as one path, without a leading slash."""
        return "/".join(self.parts)

    @property
    def url(self) -> str:
        """The place as a URL; a local path becomes absolute."""
        if self.scheme == "s3":
            return f"s3://{self.bucket}/{self.path}".rstrip("/")
        return f"file:///{quote(self.path)}" if self.scheme == "file" else f"/{self.path}"


def normal_url(url: str) -> str:
    """Return a URL of Spark's as statecore spells it: ``s3a://``, Spark's scheme, becomes ``s3://``."""
    scheme, separator, rest = url.partition("://")
    return f"s3://{rest}" if separator and scheme.lower() in ("s3a", "s3n") else url


def parse_url(url: str) -> Place:
    """Parse a URL."""
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else ""
    if scheme == "":
        start = () if url.startswith("/") else Path.cwd().parts[1:]
        return Place("", "", _walk(start, url.lstrip("/")))
    if scheme == "file" and urlsplit(url).netloc in ("", "localhost"):
        return Place("file", "", _walk((), unquote(urlsplit(url).path).lstrip("/")))
    if scheme == "s3" and url[len("s3:") :].startswith("//"):
        bucket, _, prefix = url[len("s3://") :].partition("/")
        return Place("s3", _bucket(bucket), _walk((), prefix.strip("/")))
    raise ConfigurationError(
        f"found the URL {redacted(url)!r}; expected a path, file:///path or s3://bucket/prefix; "
        "use one of these, or copy or mount the files to such a place"
    )


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of a file's or folder's parent, and its name there.

    Raises:
        ConfigurationError: The URL is that of a root, or the name has a backslash, which no path of a store may have.

    """
    place = parse_url(url)
    if not place.parts:
        raise ConfigurationError(
            f"found {redacted(url)!r}, a root; expected a file or folder below a root; add its path"
        )
    if "\\" in place.parts[-1]:
        # Not as a `repr`, which would double the backslash.
        raise ConfigurationError(
            f"found a backslash in the last name of the path {redacted(url)}; expected names without one, and / "
            "between them; correct the path, or rename the file or folder"
        )
    return Place(place.scheme, place.bucket, place.parts[:-1]).url, place.parts[-1]


def resolve_url(url: str, relative: str) -> str:
    """Return the URL of ``relative`` to the folder ``url``; ``..`` drops a name, even of a symbolic link."""
    place = parse_url(url)
    return Place(place.scheme, place.bucket, _walk(place.parts, relative)).url


def _walk(start: tuple[str, ...], relative: str) -> tuple[str, ...]:
    parts = list(start)
    for part in relative.split("/"):
        if (part == ".." and not parts) or relative.startswith("/") or "\0" in part:
            raise UnsafePathError(
                f"found the path {relative!r} below {'/'.join(start)!r}; expected a relative path that stays below the "
                "root; check the origin of the manifest or argument that names it"
            )
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def _bucket(name: str) -> str:
    # Not quoted in the message: with a colon or an @, it may contain credentials, as in other tools' URLs.
    if not name or "@" in name or ":" in name:
        raise ConfigurationError(
            "found an s3 URL without the plain name of a bucket; expected s3://bucket/prefix; name the bucket, and "
            "set credentials where boto3 looks: environment, profile or instance role"
        )
    return name
