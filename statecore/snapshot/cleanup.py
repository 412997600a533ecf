"""Removes unneeded files.

Needed are the files that a checkpoint, a savepoint or a claim in the store names. Any other file may belong to a
running attempt. It is deleted only after a grace period longer than the longest epoch, and never when its name says
that it belongs to an epoch after the newest committed one.

Of the checkpoints, the newest few stay. Of those before them that are younger than the grace period, one a minute
stays, so that a file is kept for about that long after the last epoch that names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from statecore.snapshot.checkpoints import FIRST_OFFSETS, CheckpointStore, epoch_of
from statecore.snapshot.claims import remove_expired
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.references import Named, References
from statecore.storage import FileEntry, in_batches
from statecore.storage.conditional_put import RACES

REWRITTEN = "rewritten-"
"""The beginning of the names of the folders that rewrites write to; an epoch is not part of them."""
# Files that manifests name, rows staged for sinks, first offsets, which manifests have by then, and what a killed check
# of conditional puts left. State has a folder for each epoch.
_STATE, _FLAT = "state", ("progress", "artifacts", "_staged", FIRST_OFFSETS, RACES)
# Where killed writers may leave temporary files.
_SWEPT = (*_FLAT, "manifests", "savepoints", "claims", "generations", "_published")
_EPOCH = re.compile(r"^(?:state/[^/]+|progress/\d+|_staged)/(\d+)-(\d+)\b")
_MINUTE_MS = 60_000
# S3 deletes a thousand in one request, a local store several folders at once. Between two batches a clean-up may be
# stopped.
_BATCH = 5000


@dataclass(frozen=True, slots=True)
class Removed:
    """Result of a clean-up."""

    files: int = 0
    bytes: int = 0
    manifests: int = 0


class CleanUp:
    """The clean-ups of one store.

    All are safe to interrupt and to run twice at once: a manifest is deleted before the files that only it names, so
    surplus files may remain, but no needed file is ever missing.

    Args:
        store: The job's store.
        retained: How many of the newest checkpoints stay.
        stopped: Whether to stop; checked before each manifest that is read, each folder and each batch of deletions.
        on_delete: Called before each batch of deletions.

    """

    def __init__(
        self,
        store: CheckpointStore,
        *,
        retained: int,
        stopped: Callable[[], bool] = lambda: False,
        on_delete: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._retained = retained
        self._stopped = stopped
        self._on_delete = on_delete
        self._references = References(store)

    def committed(self, manifest: Manifest) -> None:
        """Note a manifest that this process has committed, so that no clean-up reads it."""
        self._references.committed(manifest)

    def thin_out(self, *, before_ms: int) -> int:
        """Remove checkpoints, but none of their files; return how many.

        Args:
            before_ms: Of checkpoints written since then, in ms since 1970-01-01 UTC, one a minute stays.

        Raises:
            ManifestError: A checkpoint or claim cannot be read; nothing is removed then, because the job may have to go
                back to an older checkpoint.

        """
        try:
            return len(self._thin_out(before_ms, ())[1])
        except _StoppedError:
            return 0

    def run(self, *, newest: tuple[int, int], before_ms: int, keep: Collection[str] = ()) -> Removed:
        """Remove checkpoints, then unneeded files.

        Args:
            newest: Lineage and epoch of a committed epoch; files of later epochs are kept.
            before_ms: Only files last modified before this time are deleted, in ms since 1970-01-01 UTC.
            keep: Paths that are needed although no manifest in the store names them yet.

        Raises:
            ManifestError: A manifest or claim cannot be read, so its files are unknown; nothing is removed then.

        """
        removed = Removed()
        try:
            # A rewrite claims its savepoint for as long as it writes. Asked before savepoints are listed: without a
            # claim, the listing has the savepoints of all rewrites.
            rewriting = bool(self._store.claimed())
            # Manifests written from now on name only files that are too young to delete, or that a retained one names.
            savepoints = self._store.savepoint_entries()
            kept, surplus = self._thin_out(before_ms, savepoints)
            removed = Removed(manifests=len(surplus))
            named = self._references.named([*kept, *savepoints], keep)
            for garbage in in_batches(self._garbage(named, newest, before_ms, rewriting), _BATCH):
                self._delete(garbage)
                bytes_ = removed.bytes + sum(entry.size for entry in garbage)
                removed = Removed(removed.files + len(garbage), bytes_, removed.manifests)
            for folder in _SWEPT:
                self._check_stop()
                self._store.files.sweep(folder, before_ms)
            remove_expired(self._store.files)
        except _StoppedError:
            # The next clean-up continues.
            pass
        return removed

    def _thin_out(self, before_ms: int, savepoints: Sequence[FileEntry]) -> tuple[list[FileEntry], list[FileEntry]]:
        """Remove checkpoints; return those that stay and those that are gone."""
        checkpoints = self._store.checkpoints()
        # All of them, before any is deleted: if one is unreadable, the job may have to go back to an older one.
        self._references.learn([*checkpoints, *savepoints], before_each=self._check_stop)
        claimed = self._store.claimed()
        surplus = [each for each in _surplus(checkpoints, self._retained, before_ms) if each.path not in claimed]
        for batch in in_batches(surplus, _BATCH):
            self._delete(batch)
        self._references.forget(surplus)
        gone = {*surplus}
        kept = [each for each in checkpoints if each not in gone]
        # Most of the newest will soon be surplus.
        self._references.settle(kept[: -self._retained])
        return kept, surplus

    def _garbage(self, named: Named, newest: tuple[int, int], before_ms: int, rewriting: bool) -> Iterator[FileEntry]:
        """Yield unneeded files, folder by folder; for state, one epoch's folder at a time."""
        files = self._store.files
        for folder in self._folders(newest, before_ms, rewriting):
            self._check_stop()
            entries = files.list(folder)
            if not entries:
                files.sweep(folder, before_ms)
            old = [each for each in entries if each.modified_ms < before_ms]
            # A folder of state that belongs to an epoch was chosen by its name, which begins the names of its files.
            if not _EPOCH.match(folder):
                old = [each for each in old if not _is_later(each.path, newest)]
            yield from named.without(old)

    def _folders(self, newest: tuple[int, int], before_ms: int, rewriting: bool) -> Iterator[str]:
        young = [epoch_of(each.path) for each in self._store.checkpoints() if each.modified_ms >= before_ms]
        # Files of an epoch after a young one are young, so their folders need no listing.
        last = min([newest, *young])
        for operator in self._store.files.folders(_STATE):
            for each in self._store.files.folders(operator) or [operator]:
                if not _is_later(each, last) and not (rewriting and each.startswith(f"{operator}/{REWRITTEN}")):
                    yield each
        yield from _FLAT

    def _delete(self, entries: Sequence[FileEntry]) -> None:
        self._check_stop()
        self._on_delete()
        self._store.files.delete_all(entry.path for entry in entries)

    def _check_stop(self) -> None:
        if self._stopped():
            raise _StoppedError


class _StoppedError(Exception):
    """The clean-up was asked to stop."""


def _surplus(checkpoints: Sequence[FileEntry], retained: int, before_ms: int) -> Iterator[FileEntry]:
    """Yield the checkpoints before the newest ones that are old, or not the first of their lineage and minute."""
    minutes: set[tuple[int, int]] = set()
    for entry in checkpoints[:-retained]:
        minute = (epoch_of(entry.path)[0], entry.modified_ms // _MINUTE_MS)
        if entry.modified_ms < before_ms or minute in minutes:
            yield entry
        else:
            minutes.add(minute)


def _is_later(path: str, newest: tuple[int, int]) -> bool:
    match = _EPOCH.match(path)
    return match is not None and (int(match[1]), int(match[2])) > newest
