"""Remembers the files that a store's manifests name; a manifest never changes.

A manifest of many subtasks has megabytes. So each is read once, and not at all by the driver that committed it. Only
the hashes of the paths that it names stay in memory: eight bytes for each file of each manifest in the store. A hash
collision keeps a file that could be removed, and does no other harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from statecore.errors import MissingFileError
from statecore.snapshot.checkpoints import CheckpointStore, named_files
from statecore.snapshot.manifest import Manifest
from statecore.storage import FileEntry

# Manifests of this process that were not settled yet: those of a minute or two. Each shares unchanged parts with the
# one before.
_OWN = 256


class References:
    """The files that the manifests of one store name.

    Args:
        store: The store.

    """

    def __init__(self, store: CheckpointStore) -> None:
        self._store = store
        self._known: dict[FileEntry, npt.NDArray[np.int64]] = {}
        self._own: dict[str, Manifest] = {}
        self._lock = threading.Lock()

    def committed(self, manifest: Manifest) -> None:
        """Note a manifest that this process has committed, so that it need not be read."""
        with self._lock:
            self._own[self._store.manifest_path(manifest.lineage, manifest.epoch)] = manifest
            if len(self._own) > _OWN:
                del self._own[next(iter(self._own))]

    def learn(self, manifests: Iterable[FileEntry], *, before_each: Callable[[], None]) -> None:
        """Read the manifests that are not known yet.

        Args:
            manifests: Their entries in a listing.
            before_each: Called before a manifest is read; may raise.

        Raises:
            ManifestError: A manifest cannot be read, so its files are unknown.

        """
        for entry in manifests:
            if entry not in self._known and entry.path not in self._own:
                before_each()
                self._known[entry] = self._read(entry.path)

    def forget(self, manifests: Iterable[FileEntry]) -> None:
        """Forget manifests that were removed."""
        with self._lock:
            for entry in manifests:
                self._known.pop(entry, None)
                self._own.pop(entry.path, None)

    def settle(self, manifests: Iterable[FileEntry]) -> None:
        """Keep only the hashes of manifests that this process committed."""
        with self._lock:
            for entry in manifests:
                own = self._own.pop(entry.path, None)
                if own is not None:
                    self._known[entry] = _hashes(named_files(own))

    def named(self, manifests: Sequence[FileEntry], also: Collection[str]) -> Named:
        """Return the paths that the manifests name, and some others; forget all other manifests.

        Args:
            manifests: Those that ``learn`` read, or that this process committed.
            also: Further paths.

        """
        self.settle(manifests)
        self._known = {
            # Read again if this process has committed so many since then that it no longer remembers this one.
            entry: self._known[entry] if entry in self._known else self._read(entry.path)
            for entry in manifests
        }
        return Named(np.concatenate([*self._known.values(), _hashes(also)]))

    def _read(self, path: str) -> npt.NDArray[np.int64]:
        try:
            return _hashes(named_files(self._store.manifest(path)))
        except MissingFileError:
            # Removed after it was listed.
            return _hashes(())


class Named:
    """A set of paths, as sorted hashes."""

    def __init__(self, hashes: npt.NDArray[np.int64]) -> None:
        # Not np.unique, which hashes them: that takes ten times as long.
        hashes = np.sort(hashes)
        # Each that differs from the one before it; the first has none, so it is compared with its complement.
        self._hashes = hashes[np.diff(hashes, prepend=~hashes[:1]) != 0]

    def without(self, entries: Sequence[FileEntry]) -> list[FileEntry]:
        """Return the entries whose paths are not in the set."""
        asked = _hashes([entry.path for entry in entries])
        # Not np.isin, which looks at the whole set in each call.
        places = np.searchsorted(self._hashes, asked)
        needed = self._hashes.take(places, mode="clip") == asked if self._hashes.size else np.zeros(asked.size, bool)
        return [entry for entry, is_needed in zip(entries, needed.tolist(), strict=True) if not is_needed]


def _hashes(paths: Collection[str]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(hash, paths), np.int64, len(paths))
