"""Copies a savepoint with all of its files, by a Spark job: what comes out needs nothing but its own folder."""

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
from statecore.storage import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FILE = msgspec.json.Decoder(FileRef)
_TASK_BYTES = 64 * 1024 * 1024


def copy_savepoint(spark: SparkSession, source: str, target: str, *, reason: str | None = None) -> str:
    """Copy a savepoint or checkpoint to a folder of its own, in any storage.

    Every file is checked on the way. The manifest comes last: a copy that was broken off is no savepoint, and copying
    again goes on in the same folder. The folder may be moved or renamed afterwards.

    Args:
        spark: A session whose workers reach both stores.
        source: Path or URL of the savepoint's folder, or of a manifest.
        target: Path or URL of the folder to write.
        reason: Why, for whoever reads it; None for what the source says.

    Returns:
        URL of the folder.

    Raises:
        MissingFileError: There is no such savepoint.
        StorageError: The source is not whole; each file that is missing or damaged is named.
        ManifestError: The folder holds another savepoint.
        ConfigurationError: The folder lies in the store that the savepoint is in.

    """
    store, path, manifest = open_savepoint(source)
    copy = open_store(target)
    if store.holds(copy.url):
        raise ConfigurationError(
            f"found the target {copy.url} inside {store.files.url}, the store of {path}; expected a folder outside, "
            "because a clean-up there would remove what is copied; choose another folder"
        )
    with claimed(store.files, path, f"a copy to {copy.url}"):
        _copy_files(spark, store, CheckpointStore(copy), manifest.files())
    contained = _self_contained(manifest, store.describe(path), copy.url, reason)
    try:
        copy.put_if_absent(MANIFEST, encode_manifest(contained))
    except AlreadyExistsError:
        if open_savepoint(copy.url).manifest.files() != contained.files():
            raise ManifestError(
                f"found another savepoint in {copy.url}; expected none, or this very one; choose another folder"
            ) from None
    return copy.url


def _self_contained(manifest: Manifest, parent: str, url: str, reason: str | None) -> Manifest:
    pinned = manifest.savepoint
    info = SavepointInfo(
        name=url.rstrip("/").rsplit("/", 1)[-1],
        reason=(pinned.reason if pinned is not None else "") if reason is None else reason,
        created_ms=int(time.time() * 1000),
    )
    # What was staged for sinks is published by the job that staged it.
    return msgspec.structs.replace(manifest, root=".", parent=parent, savepoint=info, outputs=())


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
    """Copy files; yield what is wrong with those that are damaged, which trying again would not mend."""
    source, target = CheckpointStore.at(source_url), CheckpointStore.at(target_url)
    for encoded in files:
        ref = _FILE.decode(encoded)
        try:
            data = source.read_file(ref)
        except (CorruptFileError, MissingFileError) as error:
            yield str(error)
        else:
            target.write_file(ref.path, data)
