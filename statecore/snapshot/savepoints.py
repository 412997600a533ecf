"""Drops savepoints; needs only the store, no running job."""

from __future__ import annotations

from collections.abc import Callable

from statecore.errors import ConfigurationError, SavepointInUseError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import claims
from statecore.snapshot.manifest import FileRef, Manifest
from statecore.storage import in_batches

# As many as S3 deletes in one request.
_BATCH = 1000


def drop_savepoint(store: CheckpointStore, path: str, *, progress: Callable[[int, int], None] | None = None) -> int:
    """Remove a savepoint and those of its files that no other manifest names.

    Safe to interrupt. The manifest of a self-contained savepoint is removed last, so that a drop can be repeated. Any
    other manifest is removed first; the job's next clean-up removes the files left behind.

    Returns the freed bytes. The store is the savepoint's own or one that contains it. ``progress`` receives the number
    of files removed so far and the total.

    Raises:
        MissingFileError: There is no such savepoint.
        ConfigurationError: It is a checkpoint, which belongs to its job.
        SavepointInUseError: It is claimed.

    """
    # Opened again: a self-contained savepoint may be inside a job's store, where its paths would name the job's files.
    store, path, manifest = store.open(path)
    if manifest.savepoint is None:
        raise ConfigurationError(
            f"found a checkpoint at {store.describe(path)}; expected a savepoint; checkpoints belong to their job, "
            "which removes them"
        )
    _require_unclaimed(store, path)
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
        # A reader claimed the savepoint between the first check and the delete, so it must stay.
        _require_unclaimed(store, path)
    except SavepointInUseError:
        store.files.put_if_absent(path, data)
        raise
    needed = store.referenced()
    if manifest.artifact is not None:
        # A driver that has just started may be about to commit an epoch that names it; the clean-up waits for that.
        needed.add(manifest.artifact.file.path)
    return _delete(store, [ref for ref in manifest.files() if ref.path not in needed], progress)


def _require_unclaimed(store: CheckpointStore, path: str) -> None:
    holders = sorted(claim.holder for claim in claims(store.files) if claim.manifest == path)
    if holders:
        raise SavepointInUseError(
            f"found the savepoint {store.describe(path)} in use by {', '.join(holders)}; expected no readers; "
            "wait until they are done"
        )


def _delete(store: CheckpointStore, files: list[FileRef], progress: Callable[[int, int], None] | None) -> int:
    removed = 0
    for batch in in_batches(files, _BATCH):
        store.files.delete_all(ref.path for ref in batch)
        removed += len(batch)
        if progress is not None:
            progress(removed, len(files))
    return sum(ref.size for ref in files)
