"""Removes unneeded files.

The store alone tells which files are needed: those that a retained checkpoint, a savepoint or a claim names. Any other
file may belong to a running attempt. It is deleted only after a grace period longer than the longest epoch, and never
when it belongs to an epoch after the newest committed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from statecore.errors import MissingFileError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import remove_expired
from statecore.storage import FileEntry

# Folders of the files that manifests name, and of the rows staged for sinks.
_FOLDERS = ("state", "progress", "artifacts", "_staged")
_EPOCH = re.compile(r"^(?:state/[^/]+|_staged)/(\d+)-(\d+)\b")


@dataclass(frozen=True, slots=True)
class Removed:
    """Result of a clean-up."""

    files: int
    bytes: int
    manifests: int


def clean_up(
    store: CheckpointStore,
    *,
    newest: tuple[int, int],
    retained: int,
    before_ms: int,
    keep: Collection[str] = (),
    on_delete: Callable[[], None] = lambda: None,
) -> Removed:
    """Remove old checkpoints, then unreferenced files.

    Safe to interrupt and to run twice at once: a manifest is deleted before the files that only it names, so surplus
    files may remain, but no needed file is ever missing.

    Args:
        store: The job's store.
        newest: Lineage and epoch of a committed epoch; files of later epochs are kept.
        retained: How many of the newest checkpoints stay.
        before_ms: Only files last modified before this time are deleted, in ms since 1970-01-01 UTC.
        keep: Paths that are needed although no manifest in the store names them yet.
        on_delete: Called before each deletion.

    Raises:
        ManifestError: A manifest or claim cannot be read, so its files are unknown; nothing is removed then.

    """
    manifests = _old_manifests(store, retained, before_ms)
    # Read all of them before deleting any: if one is unreadable, the job may have to go back to an older one.
    for manifest in manifests:
        with suppress(MissingFileError):
            store.manifest(manifest.path)
    # Manifests written from now on name only files that are too young to delete, or that a retained one names, too.
    needed = {*keep, *store.referenced(without={manifest.path for manifest in manifests})}
    for manifest in manifests:
        on_delete()
        store.files.delete(manifest.path)
    garbage = [
        entry
        for folder in _FOLDERS
        for entry in store.files.list(folder)
        if entry.modified_ms < before_ms and entry.path not in needed and not _is_later(entry.path, newest)
    ]
    for entry in garbage:
        on_delete()
        store.files.delete(entry.path)
    remove_expired(store.files)
    return Removed(len(garbage), sum(entry.size for entry in garbage), len(manifests))


def _old_manifests(store: CheckpointStore, retained: int, before_ms: int) -> list[FileEntry]:
    claimed = store.claimed()
    return [
        entry
        for entry in store.checkpoints()[:-retained]
        if entry.modified_ms < before_ms and entry.path not in claimed
    ]


def _is_later(path: str, newest: tuple[int, int]) -> bool:
    found = _EPOCH.match(path)
    return found is not None and (int(found[1]), int(found[2])) > newest
