"""Claims: files that protect a checkpoint or savepoint from deletion while it is read.

A restore, a rewrite and a copy take time to read files, while a clean-up or a drop of the savepoint could delete them.
Each reader writes ``claims/<token>.json`` first and removes it at the end; a forgotten claim expires.
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
    """The holder, in words, needs the manifest at a path of the store, and its files, until the claim expires."""

    manifest: str
    holder: str
    expires_ms: int


_DECODER = msgspec.json.Decoder(Claim)


@contextmanager
def claimed(files: FileStore, manifest: str, holder: str, *, name: str | None = None) -> Iterator[None]:
    """Protect a manifest and its files while the block runs; MissingFileError when the manifest was removed.

    A holder of which there is only one names its claim, so that it overwrites its old claim after a kill.
    """
    path = f"{_FOLDER}/{name or uuid.uuid4().hex}.json"
    expires_ms = int((time.time() + _LIFETIME.total_seconds()) * 1000)
    claim = Claim(manifest=manifest, holder=holder, expires_ms=expires_ms)
    files.write(path, msgspec.json.encode(claim))
    try:
        # Checked after writing the claim: a drop checks claims again after its delete, so one of the two notices.
        if files.size(manifest) is None:
            raise MissingFileError(
                f"found no manifest {files.url}/{manifest}; expected it for {holder}; it was dropped, so use "
                "another savepoint"
            )
        yield
    finally:
        files.delete(path)


def claims(files: FileStore) -> list[Claim]:
    """Return the claims in force.

    Raises:
        ManifestError: A claim cannot be read, so its manifest is unknown.

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
                f"found {entry.path}, which is not a claim ({error}); expected one by statecore; move the file away"
            ) from error
        if claim.expires_ms > now_ms:
            found.append(claim)
    return found
