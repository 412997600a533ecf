"""Removes unneeded files.

What is needed is read from the store alone: files that a retained checkpoint, a savepoint or a claim names. A file that
nobody names may be of an attempt at work, so it goes only when it is older than a grace period longer than the longest
epoch, and never when it belongs to an epoch after the newest committed one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from statecore.errors import MissingFileError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage import FileEntry

# Where files lie that manifests name, and rows that are staged for sinks.
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

    It may be cut off anywhere, and two may run at once: a manifest goes before the files that it alone names, so what
    is left behind is a file too many, never one too few.

    Args:
        store: The job's.
        newest: Lineage and epoch that are known to be committed; what belongs to later ones is left alone.
        retained: How many of the newest checkpoints stay.
        before_ms: Only what was last modified before it goes, in ms since 1970-01-01 UTC.
        keep: Paths that are needed though nothing in the store says so yet.
        on_delete: Called before each deletion.

    Raises:
        ManifestError: A manifest or a claim cannot be read, so nobody knows what it needs; nothing is removed then.

    """
    manifests = _old_manifests(store, retained, before_ms)
    # All are read before the first goes: when one cannot be, the older ones may be what the job must go back to.
    for manifest in manifests:
        with suppress(MissingFileError):
            store.manifest(manifest.path)
    # What is committed or pinned from now on names files that are too young to go, or that one of these names as well.
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
