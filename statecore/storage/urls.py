"""URLs of stores and of files in them, taken apart as text; no store is asked.

::

    /path, path           local; a relative path is seen from the working directory
    file:///path          local; quoted as in every URL
    s3://bucket/prefix    in a bucket; not quoted, as the AWS command line has it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from statecore.errors import ConfigurationError, UnsafePathError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Place:
    """What a URL says, without ``.`` and ``..``.

    Attributes:
        scheme: ``""``, ``"file"`` or ``"s3"``.
        bucket: Of S3; empty for a local path.
        parts: The names from the root of the file system, or from the bucket, down.

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
        """The URL that says this; a local path is absolute."""
        if self.scheme == "s3":
            return f"s3://{self.bucket}/{self.path}".rstrip("/")
        return f"file:///{quote(self.path)}" if self.scheme == "file" else f"/{self.path}"


def parse_url(url: str) -> Place:
    """Take a URL apart.

    Raises:
        ConfigurationError: The scheme is none that this version knows, or the URL does not fit its scheme.
        UnsafePathError: It climbs above its root.

    """
    found = _SCHEME.match(url)
    scheme = found[1].lower() if found else ""
    if scheme == "":
        start = () if url.startswith("/") else Path.cwd().parts[1:]
        return Place("", "", _walk(start, url.lstrip("/")))
    if scheme == "file" and urlsplit(url).netloc in ("", "localhost"):
        return Place("file", "", _walk((), unquote(urlsplit(url).path).lstrip("/")))
    if scheme == "s3" and url[len("s3:") :].startswith("//"):
        bucket, _, prefix = url[len("s3://") :].partition("/")
        return Place("s3", _bucket(bucket), _walk((), prefix.strip("/")))
    raise ConfigurationError(
        f"found the URL {without_credentials(url)!r}; expected a path, file:///path or s3://bucket/prefix; "
        "use one of these, or copy or mount the files where one of them leads"
    )


def split_url(url: str) -> tuple[str, str]:
    """Return the parent of a file or folder, as a URL, and its last name, which is a path in the parent's store.

    Raises:
        ConfigurationError: It has no name, because it is a bucket or the root of a file system; or as ``parse_url``.
        UnsafePathError: As ``parse_url``.

    """
    place = parse_url(url)
    if not place.parts:
        raise ConfigurationError(
            f"found {without_credentials(url)!r}, which is a root; expected a file or folder below one; add its path"
        )
    return Place(place.scheme, place.bucket, place.parts[:-1]).url, place.parts[-1]


def resolve_url(url: str, relative: str) -> str:
    """Return the URL that ``relative`` leads to from the folder ``url``; ``..`` goes up by name, whatever is a link.

    Raises:
        UnsafePathError: ``relative`` is absolute or climbs above the bucket or the root of the file system.
        ConfigurationError: As ``parse_url``.

    """
    place = parse_url(url)
    return Place(place.scheme, place.bucket, _walk(place.parts, relative)).url


def without_credentials(text: str) -> str:
    """Return text without what stands before ``@`` in URLs: messages end up in logs and tickets."""
    return re.sub(r"//[^/\s]*@", "//", text)


def _walk(start: tuple[str, ...], relative: str) -> tuple[str, ...]:
    parts = list(start)
    for part in relative.split("/"):
        if (part == ".." and not parts) or relative.startswith("/") or "\0" in part:
            raise UnsafePathError(
                f"found the path {relative!r} below {'/'.join(start)!r}; expected a relative path that stays below the "
                "root; check who wrote the manifest or the argument that names it"
            )
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def _bucket(name: str) -> str:
    # A name with a colon or an @ is how other tools are given credentials; it is not repeated.
    if not name or "@" in name or ":" in name:
        raise ConfigurationError(
            "found an s3 URL without the plain name of a bucket; expected s3://bucket/prefix; name the bucket, and "
            "set credentials as for any boto3 program: environment, profile or instance role"
        )
    return name
