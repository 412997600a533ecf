"""Dropping savepoints; needs no running job, only the store."""

from __future__ import annotations

from statecore.errors import ConfigurationError, SavepointInUseError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claims
from statecore.snapshot.manifest import Manifest


def drop_savepoint(store: CheckpointStore, path: str) -> int:
    """Remove a savepoint, and of its files those that nothing else names.

    May be cut off and done again: the manifest goes first, and the files it leaves behind are removed with the next
    clean-up of the job.

    Args:
        store: Where it lies, as ``open_savepoint`` gives it.
        path: Its manifest's path there.

    Returns:
        Bytes that were freed.

    Raises:
        MissingFileError: There is no such savepoint.
        ConfigurationError: It is a checkpoint, which belongs to its job.
        SavepointInUseError: Somebody reads it.

    """
    manifest = store.manifest(path)
    if manifest.savepoint is None:
        raise ConfigurationError(
            f"found a checkpoint at {store.describe(path)}; expected a savepoint; checkpoints belong to their job, "
            "which removes them itself"
        )
    holders = sorted(claim.holder for claim in claims(store.files) if claim.manifest == path)
    if holders:
        raise SavepointInUseError(
            f"found the savepoint {store.describe(path)} in use by {', '.join(holders)}; expected nobody to read it; "
            "wait until they are done"
        )
    store.files.delete(path)
    freed = 0
    for file, size in _files(store, manifest):
        store.files.delete(file)
        freed += size
    return freed


def _files(store: CheckpointStore, manifest: Manifest) -> list[tuple[str, int]]:
    if manifest.root == ".":
        return [(ref.path, ref.size) for ref in manifest.files()]
    needed = store.referenced()
    return [(ref.path, ref.size) for ref in manifest.files() if ref.path not in needed]
