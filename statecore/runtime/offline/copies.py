"""Copies a savepoint with all its files, in a Spark job; the copy is self-contained."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from statecore.errors import (
    AlreadyExistsError,
    ConfigurationError,
    CorruptFileError,
    ManifestError,
    MissingFileError,
    StorageError,
)
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore, open_savepoint
from statecore.snapshot.claims import claimed
from statecore.snapshot.manifest import FileRef, Manifest, SavepointInfo, encode_manifest
from statecore.snapshot.published import unpublished_sinks
from statecore.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = msgspec.json.Decoder(FileRef)
_TASK_BYTES = 64 * 1024 * 1024


def copy_savepoint(spark: SparkSession, source: str, target: str, *, reason: str | None = None) -> str:
    """Copy a savepoint or checkpoint to a separate folder, in any storage.

    Workers verify every file while copying. The manifest is written last, so an interrupted copy is not a savepoint;
    copy again to the same folder. The folder may be moved or renamed afterwards.

    Args:
        spark: A session whose workers reach both stores.
        source: Path or URL of the savepoint's folder or of a manifest.
        target: Path or URL of the folder to write.
        reason: Reason recorded in the copy; None keeps the source's.

    Returns:
        URL of the folder.

    Raises:
        MissingFileError: The savepoint does not exist.
        StorageError: Files of the source are missing or damaged; the message names each.
        ManifestError: The folder holds another savepoint.
        ConfigurationError: The folder is inside the savepoint's own store.

    """
    store, path, manifest = open_savepoint(source)
    copy = open_store(target)
    if store.holds(copy.url):
        raise ConfigurationError(
            f"found the target {copy.url} inside {store.files.url}, the store of {path}; expected a folder outside, "
            "because the store's clean-up would delete the copy; choose another folder"
        )
    with claimed(store.files, path, f"a copy to {copy.url}"):
        _copy_files(spark, store, CheckpointStore(copy), manifest.files())
    contained = _self_contained(store, path, manifest, copy.url, reason)
    try:
        copy.put_if_absent(MANIFEST, encode_manifest(contained))
    except AlreadyExistsError:
        if open_savepoint(copy.url).manifest.files() != contained.files():
            raise ManifestError(
                f"found another savepoint in {copy.url}; expected none, or a copy of the same; choose another folder"
            ) from None
    return copy.url


def _self_contained(store: CheckpointStore, path: str, manifest: Manifest, url: str, reason: str | None) -> Manifest:
    pinned = manifest.savepoint
    info = SavepointInfo(
        name=url.rstrip("/").rsplit("/", 1)[-1],
        reason=(pinned.reason if pinned is not None else "") if reason is None else reason,
        created_ms=int(time.time() * 1000),
    )
    # The job that staged them publishes them. Until it has, whoever starts from the copy must know of them.
    waiting = unpublished_sinks(store, manifest)
    outputs = tuple(output for output in manifest.outputs if output.sink in waiting)
    return msgspec.structs.replace(manifest, root=".", parent=store.describe(path), savepoint=info, outputs=outputs)


def _copy_files(spark: SparkSession, store: CheckpointStore, target: CheckpointStore, files: list[FileRef]) -> None:
    source_url, target_url = store.files.url, target.files.url

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            problems = list(_copied(batch.column(0).to_pylist(), source_url, target_url))
            yield pa.RecordBatch.from_pydict({"problem": pa.array(problems, pa.string())})

    rows = [(msgspec.json.encode(ref).decode(),) for ref in files]
    tasks = max(1, min(len(rows), sum(ref.size for ref in files) // _TASK_BYTES + 1))
    todo = spark.createDataFrame(spark.sparkContext.parallelize(rows, tasks), "file string")
    problems = [row["problem"] for row in todo.mapInArrow(run, "problem string").collect()]
    if problems:
        raise StorageError("\n".join(problems))


def _copied(files: Iterable[str], source_url: str, target_url: str) -> Iterator[str]:
    """Copy files; yield a message for each missing or damaged one, because a task retry would not help."""
    source, target = CheckpointStore.at(source_url), CheckpointStore.at(target_url)
    for encoded in files:
        ref = _FILE.decode(encoded)
        try:
            data = source.read_file(ref)
        except (CorruptFileError, MissingFileError) as error:
            yield str(error)
        else:
            target.write_file(ref.path, data)
