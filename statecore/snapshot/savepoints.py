"""Dropping savepoints; needs no running job, only the store."""

from __future__ import annotations

from collections.abc import Callable

from statecore.errors import ConfigurationError, SavepointInUseError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claims
from statecore.snapshot.manifest import FileRef, Manifest


def drop_savepoint(store: CheckpointStore, path: str, *, progress: Callable[[int, int], None] | None = None) -> int:
    """Remove a savepoint, and of its files those that nothing else names.

    May be cut off. A self-contained one loses its manifest last, so that it can be dropped again; of any other the
    manifest goes first, and the files it leaves behind are removed with the next clean-up of the job.

    Args:
        store: Where it lies, or a store around it.
        path: Its manifest's path there.
        progress: Called with the files removed so far and how many are to go.

    Returns:
        Bytes that were freed.

    Raises:
        MissingFileError: There is no such savepoint.
        ConfigurationError: It is a checkpoint, which belongs to its job.
        SavepointInUseError: Somebody reads it.

    """
    # Opened anew: the paths in a self-contained one start at its own folder, and in the store of a job, where a copy
    # may lie, the job has files of the same paths.
    store, path, manifest = store.open(path)
    if manifest.savepoint is None:
        raise ConfigurationError(
            f"found a checkpoint at {store.describe(path)}; expected a savepoint; checkpoints belong to their job, "
            "which removes them itself"
        )
    _require_nobody_reads(store, path)
    if manifest.root == ".":
        freed = _delete(store, manifest.files(), progress)
        store.files.delete(path)
        return freed
    return _drop_by_reference(store, path, manifest, progress)


def _drop_by_reference(
    store: CheckpointStore, path: str, manifest: Manifest, progress: Callable[[int, int], None] | None
) -> int:
    data = store.files.read(path)
    store.files.delete(path)
    try:
        # Who claimed it between the first look and now has found it there, and counts on it.
        _require_nobody_reads(store, path)
    except SavepointInUseError:
        store.files.put_if_absent(path, data)
        raise
    needed = store.referenced()
    return _delete(store, [ref for ref in manifest.files() if ref.path not in needed], progress)


def _require_nobody_reads(store: CheckpointStore, path: str) -> None:
    holders = sorted(claim.holder for claim in claims(store.files) if claim.manifest == path)
    if holders:
        raise SavepointInUseError(
            f"found the savepoint {store.describe(path)} in use by {', '.join(holders)}; expected nobody to read it; "
            "wait until they are done"
        )


def _delete(store: CheckpointStore, files: list[FileRef], progress: Callable[[int, int], None] | None) -> int:
    for number, ref in enumerate(files, start=1):
        store.files.delete(ref.path)
        if progress is not None:
            progress(number, len(files))
    return sum(ref.size for ref in files)
