"""Checks that every file a savepoint names is there and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from statecore.errors import CorruptFileError, MissingFileError, StorageError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import FileRef, Manifest


def verify(
    store: CheckpointStore, manifest: Manifest, *, progress: Callable[[int, int], None] | None = None
) -> list[StorageError]:
    """Read every file of a manifest and return what is wrong with them, one error a file.

    Args:
        store: Where the files lie.
        manifest: What names them.
        progress: Called with the files checked so far and their total number.

    """
    return list(_problems(store, manifest.files(), progress))


def verify_presence(store: CheckpointStore, manifest: Manifest) -> None:
    """Check that every file is there in its full size, without reading it: the cost does not grow with the state.

    Raises:
        MissingFileError: A file is not there.
        CorruptFileError: A file has another size.

    """
    for ref in manifest.files():
        size = store.files.size(ref.path)
        if size is None:
            raise MissingFileError(
                f"found no file {store.describe(ref.path)}; expected it, because epoch {manifest.epoch} of job "
                f"{manifest.job} needs it; restore the file from a backup or resume from another savepoint"
            )
        if size != ref.size:
            raise CorruptFileError(
                f"found {store.describe(ref.path)} with {size} bytes; expected {ref.size} bytes; "
                "restore the file from a backup or resume from another savepoint"
            )


def _problems(
    store: CheckpointStore, files: list[FileRef], progress: Callable[[int, int], None] | None
) -> Iterator[StorageError]:
    for checked, ref in enumerate(files, start=1):
        try:
            store.read_file(ref)
        except StorageError as error:
            yield error
        if progress is not None:
            progress(checked, len(files))
