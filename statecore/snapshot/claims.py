"""Claims: files that keep a checkpoint or savepoint while somebody reads it.

A restore, a rewrite and a copy read files for a while that a clean-up, or somebody who drops the savepoint, may take
for superfluous. Each puts ``claims/<token>.json`` first and removes it at the end; one that is forgotten expires.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import msgspec

from statecore.errors import ManifestError, MissingFileError
from statecore.storage import FileStore

_FOLDER = "claims"
# Longer than any copy of a savepoint; a claim whose holder died blocks the clean-up of one manifest for this time.
_LIFETIME = timedelta(days=1)


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody, described for people, needs the manifest at a path of the store, and its files, until then."""

    manifest: str
    holder: str
    expires_ms: int


_DECODER = msgspec.json.Decoder(Claim)


@contextmanager
def claimed(files: FileStore, manifest: str, holder: str, *, name: str | None = None) -> Iterator[None]:
    """Keep a manifest and its files while the block runs; MissingFileError when the manifest was removed.

    A holder that exists once gives its claim a name: after a kill it overwrites its old claim.
    """
    path = f"{_FOLDER}/{name or uuid.uuid4().hex}.json"
    expires_ms = int((time.time() + _LIFETIME.total_seconds()) * 1000)
    claim = Claim(manifest=manifest, holder=holder, expires_ms=expires_ms)
    files.write(path, msgspec.json.encode(claim))
    try:
        # After the claim is written: a drop checks for claims once more after its delete, so one of the two notices.
        if files.size(manifest) is None:
            raise MissingFileError(
                f"found no manifest {files.url}/{manifest}; expected it for {holder}; somebody dropped it, so take "
                "another savepoint"
            )
        yield
    finally:
        files.delete(path)


def claims(files: FileStore) -> list[Claim]:
    """Return the claims in force.

    Raises:
        ManifestError: A claim cannot be read, so it is unknown what it protects.

    """
    now_ms = time.time() * 1000
    found = []
    for entry in files.list(_FOLDER):
        try:
            claim = _DECODER.decode(files.read(entry.path))
        except MissingFileError:
            continue
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ManifestError(
                f"found {entry.path}, which is no claim ({error}); expected what statecore wrote; move the file away"
            ) from error
        if claim.expires_ms > now_ms:
            found.append(claim)
    return found
