"""Checks that every file that a savepoint names exists and is intact."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from statecore.errors import CorruptFileError, ForeignFileError, MissingFileError, StorageError
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore
from statecore.snapshot.manifest import FileRef, Manifest
from statecore.storage import open_store, split_url
from statecore.storage.parallel import in_parallel
from statecore.storage.urls import parse_url

# As many as a process has connections to S3.
_THREADS = 16


def verify(
    store: CheckpointStore, manifest: Manifest, *, progress: Callable[[int, int], None] | None = None
) -> list[StorageError]:
    """Read every file of a manifest and return an error for each bad file, and for each foreign one."""
    return [*_problems(store, manifest.files(), progress), *_foreign(store, manifest)]


def verify_presence(store: CheckpointStore, manifest: Manifest) -> None:
    """Check that every file exists in its full size, without reading state: the cost does not grow with the state.

    State files and source positions are checked when they are read. The job file is not, so it is checked here. A
    foreign file in a savepoint's folder raises ForeignFileError.
    """
    for stranger in _foreign(store, manifest):
        raise stranger
    files = manifest.files()
    # In parallel: a manifest may name thousands of files in a remote storage.
    sizes = in_parallel(store.files.size, [ref.path for ref in files], threads=_THREADS)
    for ref, size in zip(files, sizes, strict=True):
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
    if manifest.artifact is not None:
        store.read_file(manifest.artifact.file)


def _foreign(store: CheckpointStore, manifest: Manifest) -> Iterator[ForeignFileError]:
    """Yield an error for each file in a savepoint's folder that the savepoint does not name."""
    if manifest.savepoint is None:
        return
    if manifest.root == ".":
        paths = _own_folder(store)
        own = {MANIFEST, *(ref.path for ref in manifest.files())}
        own |= {path for path in paths if path.startswith("claims/")}
    else:
        path = store.savepoint_path(manifest.savepoint.name)
        paths = {entry.path for entry in store.files.list(path.removesuffix(f"/{MANIFEST}"))}
        own = {path}
    for path in sorted(paths - own):
        yield ForeignFileError(
            f"found the file {store.describe(path)}, which the savepoint does not name; expected only its own files; "
            "find out who writes there, and move the file away"
        )


def _own_folder(store: CheckpointStore) -> set[str]:
    """Return the paths of all files in a store that is a savepoint's folder."""
    url = store.files.url
    # A store lists only folders below its root, so list the folder through its parent, which would refuse a link.
    place = parse_url(url if "://" in url else os.path.realpath(url))
    if not place.parts:
        # A whole bucket is not a savepoint's own folder.
        return set()
    parent, folder = split_url(place.url)
    return {entry.path.removeprefix(f"{folder}/") for entry in open_store(parent).list(folder)}


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
