"""Checks that every file a savepoint names is there and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from statecore.errors import CorruptFileError, ForeignFileError, MissingFileError, StorageError
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore
from statecore.snapshot.manifest import FileRef, Manifest
from statecore.storage import open_store, split_url


def verify(
    store: CheckpointStore, manifest: Manifest, *, progress: Callable[[int, int], None] | None = None
) -> list[StorageError]:
    """Read every file of a manifest and return what is wrong with them, one error a file; strangers are named, too.

    Args:
        store: Where the files lie.
        manifest: What names them.
        progress: Called with the files checked so far and their total number.

    """
    return [*_problems(store, manifest.files(), progress), *_foreign(store, manifest)]


def verify_presence(store: CheckpointStore, manifest: Manifest) -> None:
    """Check that every file is there in its full size, without reading it: the cost does not grow with the state.

    Raises:
        MissingFileError: A file is not there.
        CorruptFileError: A file has another size.
        ForeignFileError: In a savepoint's folder is a file that is not its own.

    """
    for stranger in _foreign(store, manifest):
        raise stranger
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


def _foreign(store: CheckpointStore, manifest: Manifest) -> Iterator[ForeignFileError]:
    """Yield an error for each file in a savepoint's folder that the savepoint does not name."""
    if manifest.savepoint is None:
        return
    if manifest.root == ".":
        parent, folder = split_url(store.files.url)
        files, own = open_store(parent), {MANIFEST, *(ref.path for ref in manifest.files())}
    else:
        folder = store.savepoint_path(manifest.savepoint.name).removesuffix(f"/{MANIFEST}")
        files, own = store.files, {MANIFEST}
    for entry in files.list(folder):
        name = entry.path.removeprefix(f"{folder}/")
        if name not in own and not name.startswith("claims/"):
            yield ForeignFileError(
                f"found the file {files.url.rstrip('/')}/{entry.path}, which the savepoint does not name; expected its "
                "own files alone; find out who writes there, and move the file away"
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
