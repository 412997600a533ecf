"""Claims: files that protect a checkpoint or savepoint from deletion while it is read.

A restore, a rewrite and a copy take time to read files, while a clean-up or a drop of the savepoint could delete them.
Each reader writes ``claims/<token>.json`` first, renews it, and removes it at the end. The claim of a killed reader
expires.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from statecore.errors import ManifestError, MissingFileError
from statecore.repeating import Repeating
from statecore.storage import FileStore

_FOLDER = "claims"
# Longer than an outage of the storage and the skew of two clocks together.
LIFETIME = timedelta(minutes=15)
"""How long a claim counts after its last renewal."""
_RENEW_S = 60.0


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The holder, in words, needs the manifest at a path of the store, and its files, until the claim expires."""

    manifest: str
    holder: str
    expires_ms: int


_DECODER = msgspec.json.Decoder(Claim)


@contextmanager
def claimed(files: FileStore, manifest: str, holder: str) -> Iterator[None]:
    """Protect a manifest and its files while the block runs; MissingFileError when the manifest was removed."""
    path = f"{_FOLDER}/{uuid.uuid4().hex}.json"

    def write() -> None:
        expires_ms = int((time.time() + LIFETIME.total_seconds()) * 1000)
        files.write(path, msgspec.json.encode(Claim(manifest=manifest, holder=holder, expires_ms=expires_ms)))

    write()
    try:
        # Checked after writing the claim: a drop checks claims again after its delete, so one of the two notices.
        if files.size(manifest) is None:
            raise MissingFileError(
                f"found no manifest {files.url}/{manifest}; expected it for {holder}; it was dropped, so use "
                "another savepoint"
            )
        with Repeating("renewal of a claim", write, _RENEW_S):
            yield
    finally:
        files.delete(path)


def claims(files: FileStore) -> list[Claim]:
    """Return the claims in force.

    Raises:
        ManifestError: A claim cannot be read, so it is unknown what it protects.

    """
    now_ms = time.time() * 1000
    return [claim for _, claim in _all(files) if claim.expires_ms > now_ms]


def remove_expired(files: FileStore) -> None:
    """Remove the claims that killed readers have left behind; ManifestError when one cannot be read."""
    now_ms = time.time() * 1000
    for path, claim in _all(files):
        if claim.expires_ms <= now_ms:
            files.delete(path)


def _all(files: FileStore) -> Iterator[tuple[str, Claim]]:
    for entry in files.list(_FOLDER):
        try:
            claim = _DECODER.decode(files.read(entry.path))
        except MissingFileError:
            continue
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManifestError(
                f"found {entry.path}, which is not a claim ({error}); expected one by statecore; move the file away"
            ) from error
        yield entry.path, claim
