"""Spark's bookkeeping of the sources: kept with every epoch, laid down in a fresh directory to resume.

Spark's checkpoint directory is disposable: a query without Spark-native state goes on anywhere once these lie there::

    metadata            the query's id
    offsets/N-1, N      what each epoch takes from the sources, with the epoch's time
    commits/N-1, N      commits/N is made here: Spark writes it after foreachBatch, the manifest is written inside
    sources/<i>/…       logs of file sources: which files went into which epoch, from the newest compaction on
"""

from __future__ import annotations

import json
from pathlib import Path

from statecore.errors import ManifestError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, ProgressFile
from statecore.storage import safe_path

_COMPACT = ".compact"


def batch_timestamp_ms(directory: Path, epoch: int) -> int:
    """Return the time that Spark recorded with an epoch, which a replay meets again.

    Raises:
        ManifestError: The offset log of this Spark reads otherwise than expected.

    """
    path = directory / "offsets" / str(epoch)
    try:
        return int(json.loads(path.read_text().splitlines()[1])["batchTimestampMs"])
    except (IndexError, KeyError, ValueError) as error:
        raise ManifestError(
            f"found no batchTimestampMs in the second line of {path}; expected Spark 4's offset log; "
            "run the Spark release this package is pinned to"
        ) from error


def source_positions(directory: Path, epoch: int, sources: int) -> list[tuple[str, ...]]:
    """Return where each source stands after an epoch, in the order in which the query reads them.

    Args:
        directory: Spark's checkpoint directory.
        epoch: The epoch.
        sources: Number of sources.

    Raises:
        ManifestError: The offset log of this Spark reads otherwise than expected.

    """
    path = directory / "offsets" / str(epoch)
    offsets = path.read_text().splitlines()[2:]
    if len(offsets) != sources:
        raise ManifestError(
            f"found {len(offsets)} offsets in {path}; expected one of each of {sources} sources; read every source "
            "once in build(job), and run the Spark release this package is pinned to"
        )
    # A source that has not given anything yet is a dash.
    return [() if offset == "-" else (offset,) for offset in offsets]


def capture_progress(
    directory: Path, epoch: int, store: CheckpointStore, previous: Manifest | None, attempt: str
) -> tuple[ProgressFile, ...]:
    """Copy what a resume after ``epoch`` needs to the store; what the previous manifest holds is not copied again.

    ``attempt`` becomes part of the paths, so that two drivers never write the same one.
    """
    known = {item.name: item for item in previous.progress} if previous is not None else {}
    captured = []
    for name in _needed(directory, epoch):
        item = known.get(name)
        if item is None:
            data = (directory / name).read_bytes()
            item = ProgressFile(name=name, file=store.write_file(f"progress/{attempt}/{directory.name}/{name}", data))
        captured.append(item)
    return tuple(captured)


def lay_down_progress(manifest: Manifest, store: CheckpointStore, directory: Path) -> None:
    """Fill a fresh checkpoint directory so that the query goes on after the manifest's epoch."""
    if not manifest.progress:
        # A savepoint made from tables: the sources are read from their beginning.
        return
    for item in manifest.progress:
        _write(directory / safe_path(item.name), store.read_file(item.file))
    watermark = 0
    offsets = (directory / "offsets" / str(manifest.epoch)).read_text().splitlines()
    watermark = int(json.loads(offsets[1])["batchWatermarkMs"])
    _write(
        directory / "commits" / str(manifest.epoch),
        f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'.encode(),
    )


def _needed(directory: Path, epoch: int) -> list[str]:
    names = ["metadata"]
    for log, last in (("offsets", epoch), ("commits", epoch - 1)):
        names += [f"{log}/{n}" for n in (epoch - 1, epoch) if 0 <= n <= last]
    sources = directory / "sources"
    if sources.is_dir():
        for source in sorted(sources.iterdir()):
            names += [file.relative_to(directory).as_posix() for file in _source_log(source)]
    return names


def _source_log(source: Path) -> list[Path]:
    """Return the entries of a file source's log from the newest compaction on, which holds all before it.

    The compaction before it comes along, because Spark takes the distance between the two as its interval; from one
    alone it would guess, and later look for a compaction that was never written.
    """
    entries = {int(file.name.removesuffix(_COMPACT)): file for file in source.iterdir() if _is_entry(file)}
    compactions = [n for n in sorted(entries) if entries[n].name.endswith(_COMPACT)]
    newest = compactions[-1] if compactions else -1
    return [entries[n] for n in sorted(entries) if n >= newest or n in compactions[-2:]]


def _is_entry(file: Path) -> bool:
    return file.is_file() and file.name.removesuffix(_COMPACT).isdigit()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
