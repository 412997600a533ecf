"""Spark's bookkeeping of the sources: kept with every epoch, laid down in a fresh directory to resume.

Spark's checkpoint directory is disposable: a query without Spark-native state goes on anywhere once these lie there::

    metadata            the query's id
    offsets/N-1, N      what each epoch takes from the sources, with the epoch's time
    commits/N-1, N      commits/N is made here: Spark writes it after foreachBatch, the manifest is written inside
    sources/<i>/…       logs of file sources: which files went into which epoch, from the newest compaction on

Spark identifies sources by their number in the query. The files kept use the order of the sources in the manifest; they
are laid down in the order of the new query, so sources may be added, dropped and moved.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import ManifestError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, ProgressFile
from statecore.storage import safe_path

_COMPACT = ".compact"
# Before the offsets in a file of the offset log: its version, and the epoch's time.
_HEADER_LINES = 2
# What it says of a source that has not given anything yet.
_NOTHING_YET = "-"


@dataclass(frozen=True, slots=True)
class QuerySources:
    """What the query reads, in its order.

    Attributes:
        names: The job's sources.
        ticks: Whether ticks are read last (``runtime.epoch.ticks``), which nothing that is kept mentions.

    """

    names: tuple[str, ...]
    ticks: bool


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


def source_positions(directory: Path, epoch: int, sources: QuerySources) -> list[tuple[str, ...]]:
    """Return where each of the job's sources stands after an epoch.

    Args:
        directory: Spark's checkpoint directory.
        epoch: The epoch.
        sources: What the query reads.

    Raises:
        ManifestError: The offset log of this Spark reads otherwise than expected.

    """
    path = directory / "offsets" / str(epoch)
    offsets = _without_ticks(path.read_text().splitlines(), sources)[_HEADER_LINES:]
    if len(offsets) != len(sources.names):
        raise ManifestError(
            f"found {len(offsets)} offsets in {path}; expected one of each of {len(sources.names)} sources; read every "
            "source once in build(job), and run the Spark release this package is pinned to"
        )
    return [() if offset == _NOTHING_YET else (offset,) for offset in offsets]


def capture_progress(
    directory: Path,
    epoch: int,
    store: CheckpointStore,
    previous: Manifest | None,
    attempt: str,
    sources: QuerySources,
) -> tuple[ProgressFile, ...]:
    """Copy what a resume after ``epoch`` needs to the store; what the previous manifest holds is not copied again.

    ``attempt`` becomes part of the paths, so that two drivers never write the same one.
    """
    # If sources were added or dropped since, files of the same name belong to other sources.
    same = previous is not None and _names(previous) == sources.names
    known = {item.name: item for item in previous.progress} if previous is not None and same else {}
    captured = []
    for name in _needed(directory, epoch):
        item = known.get(name)
        if item is None:
            data = (directory / name).read_bytes()
            if name.startswith("offsets/"):
                data = "\n".join(_without_ticks(data.decode().splitlines(), sources)).encode()
            item = ProgressFile(name=name, file=store.write_file(f"progress/{attempt}/{directory.name}/{name}", data))
        captured.append(item)
    return tuple(captured)


def lay_down_progress(manifest: Manifest, store: CheckpointStore, directory: Path, sources: QuerySources) -> None:
    """Fill a fresh checkpoint directory so that the query goes on after the manifest's epoch.

    Sources that the manifest does not name begin at their beginning; those that the query does not read are left out.

    Raises:
        ManifestError: The manifest does not say which source each offset is of, and there are not as many as sources.

    """
    if not manifest.progress:
        # A savepoint written from tables: sources are read from the beginning.
        return
    before = _names(manifest)
    for item in manifest.progress:
        data = store.read_file(item.file)
        if item.name.startswith("offsets/"):
            data = _rearranged(data, before, sources)
        name = _renumbered(item.name, before, sources)
        if name is not None:
            _write(directory / safe_path(name), data)
    offsets = (directory / "offsets" / str(manifest.epoch)).read_text().splitlines()
    watermark = int(json.loads(offsets[1])["batchWatermarkMs"])
    _write(
        directory / "commits" / str(manifest.epoch),
        f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'.encode(),
    )


def _names(manifest: Manifest) -> tuple[str, ...]:
    return tuple(source.name for source in manifest.sources)


def _without_ticks(offsets: list[str], sources: QuerySources) -> list[str]:
    return offsets[:-1] if sources.ticks else offsets


def _rearranged(offsets: bytes, before: Sequence[str], sources: QuerySources) -> bytes:
    lines = offsets.decode().splitlines()
    header, found = lines[:_HEADER_LINES], lines[_HEADER_LINES:]
    if len(found) != len(before):
        raise ManifestError(
            f"found offsets of {len(found)} sources to resume from; expected one of each of {len(before)}, "
            f"{list(before)}; resume with the sources that the savepoint was taken with"
        )
    stands = dict(zip(before, found, strict=True))
    lines = header + [stands.get(name, _NOTHING_YET) for name in sources.names]
    return "\n".join([*lines, _NOTHING_YET] if sources.ticks else lines).encode()


def _renumbered(name: str, before: Sequence[str], sources: QuerySources) -> str | None:
    """Return a file's name by today's number of its source; None when the source is gone."""
    folder, _, rest = name.partition("/")
    if folder != "sources":
        return name
    index, _, file = rest.partition("/")
    source = before[int(index)]
    return f"sources/{sources.names.index(source)}/{file}" if source in sources.names else None


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
