"""Puts a copy in the place of the checkpoint that it was made from.

::

    P                          the checkpoint, before and afterwards
    .P.statecore-next          the copy: whole, and proven; gone afterwards
    .P.statecore-before        a clone of what P was; the next replacement removes it

Not every storage can swap two folders in one step, so a replacement has several, and a kill may come between any two.
The first one writes a mark into ``metadata``, from which Spark does not start; the last one writes the query's own
``metadata``. So a kill leaves the old checkpoint, the new one, or one that nobody can start, which ``resume`` ends.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from statecore.errors import CheckpointRefusedError, MissingFileError
from statecore.queries.copying.clone import clone
from statecore.queries.copying.transfer import bring
from statecore.queries.reading.checkpoint import METADATA, newest_batches, open_checkpoint
from statecore.queries.reading.files import canonical_url, checksum_paths, files_below, is_local, local_path
from statecore.queries.reading.operators import moved_metadata, versioned_metadata
from statecore.queries.reading.origin import read_origin
from statecore.queries.reading.replaced import Mark, mark_of
from statecore.storage import FileEntry, open_store, split_url
from statecore.storage.urls import normal_url

_OF_QUERY = {METADATA, *checksum_paths(METADATA)}
_WORDS = "this checkpoint is being replaced by a copy; run the program again that uses with_partitions, to complete it"


def copy_of(url: str) -> str:
    """Return where the copy of a checkpoint lies until it replaces it."""
    return _beside(url, "next")


def before(url: str) -> str:
    """Return where a checkpoint lies that a copy has replaced."""
    return _beside(url, "before")


def replace(url: str) -> None:
    """Put the copy of a checkpoint in its place; its query is stopped.

    Raises:
        CheckpointRefusedError: The query has begun a batch since the copy was made, or another replacement is at work.
        StorageError: The storage fails.

    """
    copy, store = open_store(normal_url(copy_of(url))), open_store(normal_url(url))
    origin = read_origin(copy)
    if origin is None or newest_batches(store) != newest_batches(copy):
        raise CheckpointRefusedError(
            f"found batches {newest_batches(store)} committed and logged in {store.url}, and {newest_batches(copy)} in "
            "the copy of it; expected the same, because nothing may be begun meanwhile; stop every program that runs "
            "the query, then start one again"
        )
    _remove(before(url))
    clone(open_checkpoint(url), before(url))
    _Replacement(url).run("leaving")


def resume(url: str) -> bool:
    """Complete a replacement that was interrupted; return whether there was one.

    Raises:
        CheckpointRefusedError: Another replacement is at work.
        StorageError: The storage fails.

    """
    mark = mark_of(open_store(normal_url(url)))
    if mark is None:
        return False
    _Replacement(url).run(mark.phase)
    return True


def discard(url: str) -> None:
    """Remove a copy that did not replace its checkpoint."""
    _remove(copy_of(url))


class _Replacement:
    """One attempt: a later one takes over, and this one stops at its next step."""

    def __init__(self, url: str) -> None:
        self._url, self._store = canonical_url(url), open_store(normal_url(url))
        self._token = uuid.uuid4().hex

    def run(self, phase: Literal["leaving", "arriving"]) -> None:
        self._mark(phase)
        if phase == "leaving":
            self._leave()
            self._mark("arriving")
        self._arrive()

    def _mark(self, phase: Literal["leaving", "arriving"]) -> None:
        mark = Mark(statecore=_WORDS, phase=phase, token=self._token)
        self._store.delete_all(checksum_paths(METADATA))
        self._store.write(METADATA, msgspec.json.encode(mark))

    def _require_ours(self) -> None:
        mark = mark_of(self._store)
        if mark is None or mark.token != self._token:
            raise CheckpointRefusedError(
                f"found another program that replaces {self._url}; expected this one alone; let one program at a time "
                "run the query"
            )

    def _leave(self) -> None:
        """Remove the files of the checkpoint; a clone of it lies elsewhere."""
        files = [entry.path for entry in files_below(self._url) if entry.path not in _OF_QUERY]
        self._require_ours()
        self._store.delete_all(files)
        _remove_empty_folders(self._url)

    def _arrive(self) -> None:
        """Bring the files of the copy, its metadata last."""
        place = copy_of(self._url)
        metadata = open_store(normal_url(place)).read(METADATA)
        files = [entry for entry in files_below(place) if entry.path not in _OF_QUERY]
        _bring_missing(place, self._url, files)
        self._point_here()
        if is_local(self._url):
            # What was copied survives a failure of power before what it was copied from is removed.
            os.sync()
        self._require_ours()
        self._require_all(files)
        self._store.write(METADATA, metadata)
        _remove(place)

    def _point_here(self) -> None:
        """Let metadata of operators name the schema files of this checkpoint."""
        for path in versioned_metadata(self._store):
            data = self._store.read(path)
            moved = moved_metadata(data, path, self._url)
            if moved != data:
                # A new file: the old one may be a hard link. Its checksums are no longer right.
                self._store.write(path, moved)
                self._store.delete_all(checksum_paths(path))

    def _require_all(self, files: Collection[FileEntry]) -> None:
        there = {entry.path for entry in files_below(self._url)}
        # Those of rewritten metadata.
        gone = {each for path in versioned_metadata(self._store) for each in checksum_paths(path)}
        missing = sorted({entry.path for entry in files} - there - gone)
        if missing:
            raise MissingFileError(
                f"found no {missing[0]} in {self._url} after it was copied there; expected all files of the copy; let "
                "one program at a time run the query, and start it again"
            )


def _beside(url: str, name: str) -> str:
    parent, own = split_url(canonical_url(url))
    return f"{parent.rstrip('/')}/.{own}.statecore-{name}"


def _bring_missing(source: str, target: str, files: Collection[FileEntry]) -> None:
    """Copy the files that an interrupted attempt has not copied, or not whole."""
    there = {entry.path: entry.size for entry in files_below(target)}
    missing = [entry for entry in files if there.get(entry.path) != entry.size]
    open_store(normal_url(target)).delete_all(entry.path for entry in missing if entry.path in there)
    bring(source, target, missing)


def _remove(url: str) -> None:
    open_store(normal_url(url)).delete_all(entry.path for entry in files_below(url))
    _remove_empty_folders(url)


def _remove_empty_folders(url: str) -> None:
    """Remove what has become of the folders of files that are gone; S3 has none."""
    if is_local(url):
        for folder, _, _ in os.walk(local_path(url), topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
