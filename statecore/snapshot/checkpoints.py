"""Where checkpoints and savepoints lie, and how they get there.

::

    <root>/manifests/<lineage>-<epoch>.json       one per committed epoch, created by put-if-absent
    <root>/savepoints/<name>/manifest.json        kept until a user drops them
    <root>/state/<uid>/<lineage>-<epoch>/…        state files, named by subtask and attempt token
    <root>/progress/<token>/…                     Spark's bookkeeping of the sources
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from statecore.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConfigurationError,
    CorruptFileError,
    ManifestError,
    MissingFileError,
)
from statecore.snapshot.manifest import FileRef, Manifest, SavepointInfo, decode_manifest, encode_manifest
from statecore.storage import FileStore, open_store, safe_path

_MANIFESTS = "manifests"
_SAVEPOINTS = "savepoints"


class CheckpointStore:
    """Checkpoints and savepoints of one job below one root."""

    def __init__(self, files: FileStore) -> None:
        self.files = files

    @classmethod
    def at(cls, url: str) -> CheckpointStore:
        """Open the checkpoint store whose root is ``url``."""
        return cls(open_store(url))

    def write_file(self, path: str, data: bytes) -> FileRef:
        """Write a file and return what a manifest must know of it."""
        self.files.write(path, data)
        return FileRef(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def read_file(self, ref: FileRef) -> bytes:
        """Return a file's bytes, checked against its manifest.

        Raises:
            MissingFileError: It is not there.
            CorruptFileError: Size or checksum differ.

        """
        data = self.files.read(ref.path)
        found = hashlib.sha256(data).hexdigest()
        if len(data) != ref.size or found != ref.sha256:
            raise CorruptFileError(
                f"found {self.describe(ref.path)} with {len(data)} bytes and SHA-256 {found}; "
                f"expected {ref.size} bytes and SHA-256 {ref.sha256}, as the manifest says; "
                "restore the file from a backup or resume from another savepoint"
            )
        return data

    def describe(self, path: str) -> str:
        """Return a path as a person would look for it."""
        return f"{self.files.url.rstrip('/')}/{path}"

    @staticmethod
    def manifest_path(lineage: int, epoch: int) -> str:
        """Return where the manifest of an epoch lies; the name holds nothing else, so two drivers collide."""
        return f"{_MANIFESTS}/{lineage:06d}-{epoch:012d}.json"

    def commit(self, manifest: Manifest) -> str:
        """Commit an epoch and return its manifest's path.

        Raises:
            CommitConflictError: Another driver committed this epoch first.

        """
        path = self.manifest_path(manifest.lineage, manifest.epoch)
        try:
            self.files.put_if_absent(path, encode_manifest(manifest))
        except AlreadyExistsError as error:
            raise CommitConflictError(
                f"found epoch {manifest.epoch} of lineage {manifest.lineage} committed by another driver; "
                f"expected generation {manifest.generation} to be the only one; this driver drops its attempt and stops"
            ) from error
        return path

    def manifest(self, path: str) -> Manifest:
        """Read a manifest by its path in the store."""
        return decode_manifest(self.files.read(safe_path(path)), self.describe(path))

    def find(self, lineage: int, epoch: int) -> Manifest | None:
        """Return the manifest of an epoch, or None when the epoch is not committed."""
        path = self.manifest_path(lineage, epoch)
        return None if self.files.size(path) is None else self.manifest(path)

    def committed(self) -> list[tuple[int, int]]:
        """Return all committed (lineage, epoch), oldest first."""
        return sorted(_parse(path) for path in self.files.list(_MANIFESTS))

    def newest(self) -> Manifest | None:
        """Return the manifest of the newest epoch of the newest lineage, or None before the first commit."""
        committed = self.committed()
        return self.find(*committed[-1]) if committed else None

    def write_savepoint(self, manifest: Manifest, name: str, *, reason: str, now_ms: int) -> str:
        """Pin an epoch as a savepoint and return the path of its manifest; no state byte is copied.

        Writing the same savepoint again is no error, so that a step can be repeated.

        Raises:
            ConfigurationError: The name is no name of a folder.
            ManifestError: The name is taken by another epoch.

        """
        if "/" in safe_path(name):
            raise ConfigurationError(
                f"found the savepoint name {name!r}; expected a name without '/', because it becomes a folder; "
                "choose another name"
            )
        path = f"{_SAVEPOINTS}/{name}/manifest.json"
        info = SavepointInfo(name=name, reason=reason, created_ms=now_ms)
        pinned = msgspec.structs.replace(manifest, root="../..", savepoint=info)
        try:
            self.files.put_if_absent(path, encode_manifest(pinned))
        except AlreadyExistsError:
            there = self.manifest(path)
            if _identity(there) != _identity(manifest):
                raise ManifestError(
                    f"found a savepoint {name!r} of {_describe(there)}; expected {_describe(manifest)} under it; "
                    "choose another name"
                ) from None
        return path


def _identity(manifest: Manifest) -> tuple[object, ...]:
    """Return what two writers of one savepoint agree on; a rewrite differs in its parent or its parallelisms."""
    return manifest.lineage, manifest.epoch, manifest.parallelism, manifest.max_parallelism, manifest.parent


def _describe(manifest: Manifest) -> str:
    return (
        f"epoch {manifest.epoch} of lineage {manifest.lineage} (parent {manifest.parent}, parallelism "
        f"{manifest.parallelism} of at most {manifest.max_parallelism})"
    )


def open_savepoint(path: str) -> tuple[CheckpointStore, str]:
    """Find the store of a savepoint or checkpoint.

    Args:
        path: A manifest file, or the folder of a savepoint.

    Returns:
        The store and the manifest's path in it.

    Raises:
        MissingFileError: There is no manifest.
        ManifestError: It is none.

    """
    file = Path(path)
    if file.is_dir():
        file = file / "manifest.json"
    try:
        manifest = decode_manifest(file.read_bytes(), str(file))
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFileError(
            f"found no manifest at {file}; expected a savepoint's folder or a manifest file; "
            "list the savepoints folder of the job's store"
        ) from None
    root = (file.parent / manifest.root).resolve()
    return CheckpointStore.at(str(root)), file.resolve().relative_to(root).as_posix()


def _parse(path: str) -> tuple[int, int]:
    name = path.rsplit("/", 1)[-1].removesuffix(".json")
    lineage, _, epoch = name.partition("-")
    if not (lineage.isdigit() and epoch.isdigit()):
        raise ManifestError(
            f"found {path} among the manifests; expected names like 000001-000000000042.json; move the file away"
        )
    return int(lineage), int(epoch)
