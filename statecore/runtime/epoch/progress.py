"""Spark's bookkeeping of the sources: saved with every epoch, restored into an empty directory to resume.

Spark's checkpoint directory is disposable: a query without Spark-native state continues from any directory with these::

    metadata            the query's id
    offsets/N-1, N      the end offsets of each epoch in the sources, with the epoch's time
    commits/N-1, N      commits/N is generated here: Spark writes it after foreachBatch, the manifest is written inside
    sources/<i>/…       logs of file sources: which files went into which epoch, from the newest compaction on

Spark identifies sources by their number in the query. The saved files use the order of the sources in the manifest and
are renumbered for the new query, so sources may be added, dropped and reordered.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statecore.errors import ManifestError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest, ProgressFile
from statecore.storage import safe_path

log = logging.getLogger(__name__)

_COMPACT = ".compact"
# A file of the offset log begins with its version and the epoch's time; the offsets follow.
_HEADER_LINES = 2
# The entry of a source that has not produced any data yet.
_NOTHING_YET = "-"


@dataclass(frozen=True, slots=True)
class QuerySources:
    """The sources of the query, in its order.

    Attributes:
        names: The job's sources.
        ticks: Whether the query reads ticks last (``runtime.epoch.ticks``); no saved file mentions them.

    """

    names: tuple[str, ...]
    ticks: bool


class EpochTimes:
    """The times of one generation's epochs: as Spark recorded them, but never earlier than the previous epoch's.

    Drivers run on hosts whose clocks differ. If time went back, expired state would reappear, unless a merge had
    removed it: what functions see would depend on when files were merged.

    Args:
        directory: Spark's checkpoint directory.

    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._is_behind = False

    def of(self, epoch: int, previous: Manifest | None) -> int:
        """Return the time of an epoch.

        Raises:
            ManifestError: The offset log of this Spark has an unexpected format.

        """
        recorded_ms = _batch_timestamp_ms(self._directory, epoch)
        before_ms = recorded_ms if previous is None else previous.batch_timestamp_ms
        was_behind, self._is_behind = self._is_behind, recorded_ms < before_ms
        if self._is_behind and not was_behind:
            log.warning(
                "this host's clock is %d ms behind the time of the epoch before epoch %d; processing time stands still "
                "until it has caught up", before_ms - recorded_ms, epoch,
            )  # fmt: skip
        return max(recorded_ms, before_ms)


def _batch_timestamp_ms(directory: Path, epoch: int) -> int:
    path = directory / "offsets" / str(epoch)
    try:
        return int(json.loads(path.read_text().splitlines()[1])["batchTimestampMs"])
    except (IndexError, KeyError, ValueError) as error:
        raise ManifestError(
            f"found no batchTimestampMs in the second line of {path}; expected Spark 4's offset log; "
            "run the Spark release this package is pinned to"
        ) from error


def source_positions(directory: Path, epoch: int, sources: QuerySources) -> list[tuple[str, ...]]:
    """Return the position of each of the job's sources after an epoch.

    Args:
        directory: Spark's checkpoint directory.
        epoch: The epoch.
        sources: The sources of the query.

    Raises:
        ManifestError: The offset log of this Spark has an unexpected format.

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
    """Copy the files that a resume after ``epoch`` needs to the store, except those in the previous manifest.

    The paths begin with ``progress/<attempt>``, so that two drivers never write the same one. It is
    ``<generation>/<lineage>-<epoch>``, by which a clean-up knows files of an epoch in flight.
    """
    # If sources were added or dropped in between, files of the same name belong to other sources.
    same = previous is not None and _names(previous) == sources.names
    known = {item.name: item for item in previous.progress} if previous is not None and same else {}
    captured = []
    for name in _needed(directory, epoch):
        item = known.get(name)
        if item is None:
            data = (directory / name).read_bytes()
            if name.startswith("offsets/"):
                data = "\n".join(_without_ticks(data.decode().splitlines(), sources)).encode()
            path = f"progress/{attempt}-{name.replace('/', '-')}"
            item = ProgressFile(name=name, file=store.write_file(path, data))
        captured.append(item)
    return tuple(captured)


def lay_down_progress(manifest: Manifest, store: CheckpointStore, directory: Path, sources: QuerySources) -> None:
    """Fill an empty checkpoint directory so that the query continues after the manifest's epoch.

    Sources that the manifest does not name start at their beginning; sources that the query does not read are omitted.

    Raises:
        ManifestError: The number of offsets differs from the number of the manifest's sources.

    """
    if not manifest.progress:
        # A savepoint written from tables: sources start at their beginning.
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


def replace_positions(directory: Path, epoch: int, sources: QuerySources, source: str, position: str) -> None:
    """Make the query continue after an epoch from another position of a source."""
    path = directory / "offsets" / str(epoch)
    lines = path.read_text().splitlines()
    lines[_HEADER_LINES + sources.names.index(source)] = position
    path.write_text("\n".join(lines))


def _names(manifest: Manifest) -> tuple[str, ...]:
    return tuple(source.name for source in manifest.sources)


def _without_ticks(offsets: list[str], sources: QuerySources) -> list[str]:
    return offsets[:-1] if sources.ticks else offsets


def _rearranged(offsets: bytes, before: Sequence[str], sources: QuerySources) -> bytes:
    lines = offsets.decode().splitlines()
    header, positions = lines[:_HEADER_LINES], lines[_HEADER_LINES:]
    if len(positions) != len(before):
        raise ManifestError(
            f"found offsets of {len(positions)} sources to resume from; expected one of each of {len(before)}, "
            f"{list(before)}; resume with the sources of the savepoint's job"
        )
    stands = dict(zip(before, positions, strict=True))
    lines = header + [stands.get(name, _NOTHING_YET) for name in sources.names]
    return "\n".join([*lines, _NOTHING_YET] if sources.ticks else lines).encode()


def _renumbered(name: str, before: Sequence[str], sources: QuerySources) -> str | None:
    """Return a file's name with the current number of its source; None when the source is gone."""
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
    """Return the entries of a file source's log, starting with the newest compaction, which holds all earlier entries.

    The previous compaction is included, because Spark derives its interval from the distance of the two. From only one
    it would guess, and later expect a compaction that was never written.
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
