"""The store of a job's checkpoints and savepoints.

::

    <root>/manifests/<lineage>-<epoch>.json       one per committed epoch, created by put-if-absent
    <root>/savepoints/<name>/manifest.json        kept until a user drops them
    <root>/state/<uid>/<lineage>-<epoch>/…        state files, named by subtask and attempt token
    <root>/progress/<generation>/<lineage>-<epoch>-… Spark's bookkeeping of the sources
    <root>/artifacts/<sha256>/<name>              job files, as they ran
    <root>/generations/<number>                   the newest run of the driver
    <root>/first-offsets/<digest>/<source>        where sources begin that no epoch has read yet
    <root>/claims/<token>.json                    readers of a checkpoint or savepoint, see ``snapshot.claims``
    <root>/conditional-puts.json                  the storage has passed ``storage.conditional_put``
    <root>/job.json                               the job's definition, see ``snapshot.job_definition``

Reading a file that a manifest names raises MissingFileError when it does not exist, and CorruptFileError when its size
or checksum differs. Reading an unreadable manifest raises ManifestError.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from statecore.errors import (
    AlreadyExistsError,
    CommitConflictError,
    ConfigurationError,
    CorruptFileError,
    ManifestError,
    MissingFileError,
    StorageError,
)
from statecore.snapshot.claims import claims
from statecore.snapshot.manifest import (
    Artifact,
    FilePart,
    FileRef,
    Manifest,
    SavepointInfo,
    SubtaskState,
    decode_manifest,
    decode_subtask,
    encode_manifest,
)
from statecore.storage import FileEntry, FileStore, open_store, resolve_url, safe_path, split_url

_MANIFESTS = "manifests"
_SAVEPOINTS = "savepoints"
_ARTIFACTS = "artifacts"
_GENERATIONS = "generations"
FIRST_OFFSETS = "first-offsets"
MANIFEST = "manifest.json"


class CheckpointStore:
    """Checkpoints and savepoints of one job below one root."""

    def __init__(self, files: FileStore) -> None:
        self.files = files

    @classmethod
    def at(cls, url: str) -> CheckpointStore:
        """Open the checkpoint store whose root is ``url``."""
        return cls(open_store(url))

    def write_file(self, path: str, data: bytes) -> FileRef:
        """Write a file and return the manifest's reference to it."""
        self.files.write(path, data)
        return FileRef(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def read_file(self, ref: FileRef) -> bytes:
        """Return a file's bytes, checked against the manifest."""
        data = self.files.read(ref.path)
        sha256 = hashlib.sha256(data).hexdigest()
        if len(data) != ref.size or sha256 != ref.sha256:
            raise CorruptFileError(
                f"found {self.describe(ref.path)} with {len(data)} bytes and SHA-256 {sha256}; "
                f"expected {ref.size} bytes and SHA-256 {ref.sha256}, as the manifest says; "
                "restore the file from a backup or resume from another savepoint"
            )
        return data

    def read_parts(self, path: str, parts: list[FilePart]) -> bytes:
        """Return parts of a file that follow each other, with one request; each is checked against its record."""
        first, last = parts[0], parts[-1]
        data = self.files.read_range(path, first.start, last.start + last.size - first.start)
        for part in parts:
            place = part.start - first.start
            sha256 = hashlib.sha256(memoryview(data)[place : place + part.size]).hexdigest()
            if sha256 != part.sha256:
                raise CorruptFileError(
                    f"found SHA-256 {sha256} of the bytes {part.start} to {part.start + part.size - 1} of "
                    f"{self.describe(path)}; expected {part.sha256}, as recorded when the file was written; "
                    "restore the file from a backup or resume from another savepoint"
                )
        return data

    def describe(self, path: str) -> str:
        """Return the full path or URL of a path in the store."""
        return f"{self.files.url.rstrip('/')}/{path}"

    def open(self, start_from: str) -> OpenedSavepoint:
        """Find a savepoint or checkpoint by its path in this store, by any other path, or by a URL.

        The returned store is this object if it holds the savepoint.
        """
        if "://" not in start_from and not start_from.startswith("/"):
            start_from = self.describe(safe_path(start_from))
        opened = open_savepoint(start_from)
        return opened._replace(store=self) if opened.store.is_at(self.files.url) else opened

    def is_at(self, url: str) -> bool:
        """Return whether the store's root is at ``url``."""
        return _canonical(self.files.url) == _canonical(url)

    def holds(self, url: str) -> bool:
        """Return whether ``url`` is the store's root or below it."""
        root, place = _canonical(self.files.url).rstrip("/"), _canonical(url).rstrip("/")
        return place == root or place.startswith(f"{root}/")

    @staticmethod
    def manifest_path(lineage: int, epoch: int) -> str:
        """Return the path of an epoch's manifest; it depends on nothing else, so two drivers collide."""
        return f"{_MANIFESTS}/{lineage:06d}-{epoch:012d}.json"

    def commit(self, manifest: Manifest, encoded: bytes | None = None) -> str:
        """Commit an epoch and return its manifest's path.

        Args:
            manifest: The epoch.
            encoded: The result of ``encode_manifest``, if the caller has it.

        Raises:
            CommitConflictError: Another driver committed this epoch, or a later one, first.

        """
        path = self.manifest_path(manifest.lineage, manifest.epoch)
        try:
            self.files.put_if_absent(path, encode_manifest(manifest) if encoded is None else encoded)
        except AlreadyExistsError as error:
            raise CommitConflictError(
                f"epoch {manifest.epoch} of lineage {manifest.lineage} not committed by generation "
                f"{manifest.generation}: already committed by another driver; this driver drops its attempt and stops"
            ) from error
        later = self.files.list(_MANIFESTS, after=path)
        if later:
            newest = epoch_of(later[-1].path)
            # This driver was suspended so long that its successor's manifest of this epoch was cleaned up. The name
            # was free, but no epoch follows this one, and no driver resumes from it.
            raise CommitConflictError(
                f"epoch {manifest.epoch} of lineage {manifest.lineage} not committed: another driver has committed "
                f"epoch {newest[1]} of lineage {newest[0]} and runs the job; this driver stops"
            )
        return path

    def claim_generation(self, generation: int) -> None:
        """Record that a driver runs as this generation; a second driver of the same generation is refused.

        The catalog assigns generations; a catalog that was lost and recreated might assign a number twice.

        Raises:
            CommitConflictError: Another driver runs, or ran, as this generation or a later one.
            StorageError: The storage ignores the condition of a put-if-absent.

        """
        newest = self.newest_generation()
        try:
            if newest is not None and newest >= generation:
                raise AlreadyExistsError
            self.files.put_if_absent(f"{_GENERATIONS}/{generation:06d}", b"")
        except AlreadyExistsError:
            raise CommitConflictError(
                f"found generation {newest or generation} already in {self.files.url}; expected one before "
                f"{generation}; this driver stops, and the next one gets a higher number; if the catalog was lost, "
                "`catalog rebuild` restores the count"
            ) from None
        self._require_put_if_absent(f"{_GENERATIONS}/{generation:06d}")
        for older in self._generations():
            if older < generation:
                self.files.delete(f"{_GENERATIONS}/{older:06d}")

    def _require_put_if_absent(self, path: str) -> None:
        """Refuse a storage that ignores conditional puts, as some do: commits depend on them."""
        try:
            self.files.put_if_absent(path, b"")
        except AlreadyExistsError:
            return
        raise StorageError(
            f"found that {self.files.url} overwrites an existing file on a conditional put; expected it to refuse, "
            "because only one of two drivers may commit; use a storage that supports conditional puts (If-None-Match), "
            "or a newer release of it"
        )

    def newest_generation(self) -> int | None:
        """Return the highest generation that ran, None before the first."""
        return max(self._generations(), default=None)

    def _generations(self) -> list[int]:
        names = (entry.path.rsplit("/", 1)[-1] for entry in self.files.list(_GENERATIONS))
        return [int(name) for name in names if name.isdigit()]

    def keep_artifact(self, name: str, data: bytes) -> Artifact:
        """Store a job file under its hash, and return the manifest's reference to it."""
        digest = hashlib.sha256(data).hexdigest()
        ref = FileRef(path=safe_path(f"{_ARTIFACTS}/{digest}/{name}"), size=len(data), sha256=digest)
        # Written even if it exists: a clean-up may be about to remove it as unused.
        self.files.write(ref.path, data)
        return Artifact(name=name, file=ref)

    def manifest(self, path: str) -> Manifest:
        """Read a manifest by its path in the store."""
        return decode_manifest(self.files.read(safe_path(path)), self.describe(path))

    def subtask_state(self, path: str, part: FilePart) -> SubtaskState:
        """Read the state of one subtask from its part of a manifest, see ``subtask_parts``."""
        return decode_subtask(self.read_parts(safe_path(path), [part]))

    def find(self, lineage: int, epoch: int) -> Manifest | None:
        """Return the manifest of an epoch, or None when the epoch is not committed."""
        path = self.manifest_path(lineage, epoch)
        return None if self.files.size(path) is None else self.manifest(path)

    def checkpoints(self) -> list[FileEntry]:
        """Return the manifests of all committed epochs, oldest first."""
        return sorted(self.files.list(_MANIFESTS), key=lambda entry: epoch_of(entry.path))

    def committed(self) -> list[tuple[int, int]]:
        """Return all committed (lineage, epoch), oldest first."""
        return [epoch_of(entry.path) for entry in self.checkpoints()]

    def savepoints(self) -> list[str]:
        """Return the paths of all savepoints' manifests, sorted."""
        return [entry.path for entry in self.savepoint_entries()]

    def savepoint_entries(self) -> list[FileEntry]:
        """Return the manifests of all savepoints, sorted by path."""
        return [entry for entry in self.files.list(_SAVEPOINTS) if entry.path.endswith(f"/{MANIFEST}")]

    def claimed(self) -> set[str]:
        """Return the paths of claimed manifests."""
        return {claim.manifest for claim in claims(self.files)}

    def referenced(self) -> set[str]:
        """Return the paths of all files that the manifests in this store name."""
        named: set[str] = set()
        for entry in [*self.checkpoints(), *self.savepoint_entries()]:
            # One may be removed after it was listed.
            with suppress(MissingFileError):
                named |= named_files(self.manifest(entry.path))
        return named

    def newest(self) -> Manifest | None:
        """Return the manifest of the newest epoch of the newest lineage, or None before the first commit."""
        while committed := self.committed():
            manifest = self.find(*committed[-1])
            # A driver that still commits may have thinned it out since the listing; then there is a newer one.
            if manifest is not None:
                return manifest
        return None

    @staticmethod
    def savepoint_path(name: str) -> str:
        """Return the path of a savepoint's manifest; ConfigurationError for a name that cannot be a folder's."""
        if "/" in safe_path(name):
            raise ConfigurationError(
                f"found the savepoint name {name!r}; expected a name without '/', because it becomes a folder; "
                "choose another name"
            )
        return f"{_SAVEPOINTS}/{name}/{MANIFEST}"

    def write_savepoint(self, manifest: Manifest, name: str, *, reason: str, now_ms: int) -> str:
        """Pin an epoch as a savepoint and return the path of its manifest; no state byte is copied.

        Idempotent for the same epoch; ManifestError when the name is taken by another.
        """
        path = self.savepoint_path(name)
        info = SavepointInfo(name=name, reason=reason, created_ms=now_ms)
        pinned = msgspec.structs.replace(manifest, root="../..", savepoint=info)
        try:
            self.files.put_if_absent(path, encode_manifest(pinned))
        except AlreadyExistsError:
            there = self.manifest(path)
            if _identity(there) != _identity(manifest):
                raise ManifestError(
                    f"found savepoint {name!r} of {_describe(there)}; expected it to be of {_describe(manifest)}; "
                    "choose another name"
                ) from None
        return path


class OpenedSavepoint(NamedTuple):
    """A savepoint or checkpoint with its manifest and the manifest's path in the store."""

    store: CheckpointStore
    path: str
    manifest: Manifest


def named_files(manifest: Manifest) -> set[str]:
    """Return the paths of the files in the job's store that a manifest needs."""
    if manifest.root == ".":
        # Its files are in its own folder.
        return set()
    # A savepoint needs no staged outputs: the job publishes those of the checkpoint.
    staged = () if manifest.savepoint is not None else (output.file for output in manifest.outputs)
    return {ref.path for ref in (*manifest.files(), *staged)}


def _canonical(url: str) -> str:
    resolved = resolve_url(url, ".")
    return os.path.realpath(resolved) if resolved.startswith("/") else resolved


def _identity(manifest: Manifest) -> tuple[object, ...]:
    """Return the fields that identify a savepoint; a rewrite differs in its parent or its parallelisms."""
    return manifest.lineage, manifest.epoch, manifest.parallelism, manifest.max_parallelism, manifest.parent


def _describe(manifest: Manifest) -> str:
    return (
        f"epoch {manifest.epoch} of lineage {manifest.lineage} (parent {manifest.parent}, parallelism "
        f"{manifest.parallelism} of at most {manifest.max_parallelism})"
    )


def open_savepoint(url: str | Path) -> OpenedSavepoint:
    """Find the store of a savepoint or checkpoint by a path or URL of its manifest, or of a savepoint's folder."""
    # The path may contain a link; the store is found from the link's target.
    given = str(url).rstrip("/") if "://" in str(url) else os.path.realpath(url)
    candidates = [given] if given.endswith(".json") else [f"{given}/{MANIFEST}", given]
    for candidate in candidates:
        folder, name = split_url(candidate)
        try:
            data = open_store(folder).read(name)
        except MissingFileError:
            continue
        manifest = decode_manifest(data, candidate)
        root = resolve_url(folder, manifest.root)
        return OpenedSavepoint(
            CheckpointStore.at(root), resolve_url(folder, name).removeprefix(root).lstrip("/"), manifest
        )
    raise MissingFileError(
        f"found no manifest at {candidates[0]}; expected a savepoint's folder or a manifest file; "
        "list the savepoints folder of the job's store"
    )


def epoch_of(path: str) -> tuple[int, int]:
    """Return lineage and epoch of a checkpoint's manifest; ManifestError for another file among the manifests."""
    name = path.rsplit("/", 1)[-1].removesuffix(".json")
    lineage, _, epoch = name.partition("-")
    if not (lineage.isdigit() and epoch.isdigit()):
        raise ManifestError(
            f"found {path} among the manifests; expected names like 000001-000000000042.json; move the file away"
        )
    return int(lineage), int(epoch)
