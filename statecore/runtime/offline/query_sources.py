"""The source positions of a query job, for a savepoint from which a job continues there.

A job keeps the same files in its epochs that the query keeps in its checkpoint, see ``runtime.epoch.progress``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statecore.errors import ConfigurationError, StatecoreError
from statecore.runtime.epoch.progress import QuerySources, capture_progress, source_positions
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import ProgressFile, SourcePositions
from statecore.storage import FileStore, open_store, safe_path
from statecore.storage.urls import normal_url
from statecore.storage.workspaces import workspace

_VERSION = "v1"
# They are the query's own: a job has its state elsewhere, and another number of subtasks.
_NUMBERS = ("spark.sql.shuffle.partitions", "spark.sql.streaming.internal.stateStore.partitions")
_LOGS = ("offsets", "commits", "sources")


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """A query's position after its newest committed batch.

    Attributes:
        batch: The batch.
        watermark_ms: Its event-time watermark; None without one.
        sources: The sources, under the names that the job gives them.
        progress: Spark's bookkeeping of them, in the store of the savepoint.

    """

    batch: int
    watermark_ms: int | None
    sources: tuple[SourcePositions, ...]
    progress: tuple[ProgressFile, ...]


def query_position(checkpoint: str, names: Sequence[str], store: CheckpointStore) -> QueryPosition:
    """Return a query's position, and copy Spark's bookkeeping of it; the checkpoint is only read.

    Args:
        checkpoint: The query's ``checkpointLocation``, of a query that does not run.
        names: The job's names of the query's sources, in the query's order.
        store: The savepoint's files.

    Raises:
        ConfigurationError: There is no committed batch, the number of names differs from that of the sources, or the
            logs have another format.
        StorageError: The storage fails.

    """
    files = open_store(normal_url(checkpoint))
    batch = max(_numbers(files, "commits"), default=None)
    if batch is None:
        raise ConfigurationError(
            f"found no committed batch in {checkpoint}; expected the checkpointLocation of a query that has committed "
            "one; give that folder, or leave sources_from out to read the sources from their beginning"
        )
    try:
        with workspace("sources") as folder:
            _bring(files, folder)
            return _taken_over(folder, checkpoint, batch, names, store)
    except StatecoreError:
        raise
    except (OSError, ValueError, IndexError) as error:
        raise ConfigurationError(
            f"found logs in {checkpoint} that cannot be read ({error}); expected those of a whole checkpoint of Spark "
            "4; restore it from a clone or a backup"
        ) from error


def require_at(checkpoint: str, batch: int) -> None:
    """Refuse a query that has committed another batch since its position was read.

    Raises:
        ConfigurationError: It has committed another batch.
        StorageError: The storage fails.

    """
    newest = max(_numbers(open_store(normal_url(checkpoint)), "commits"), default=None)
    if newest != batch:
        raise ConfigurationError(
            f"found batch {newest} committed in {checkpoint} and {batch} when this began; expected a query that does "
            "not run, because state and position would be of two batches; stop it, read its state again, and write "
            "another savepoint"
        )


def _taken_over(
    folder: Path, checkpoint: str, batch: int, names: Sequence[str], store: CheckpointStore
) -> QueryPosition:
    logged = folder / "offsets" / str(batch)
    watermark_ms = _watermark_ms(folder / "commits" / str(batch), logged)
    offsets = logged.read_text().splitlines()[2:]
    if len(offsets) != len(names):
        raise ConfigurationError(
            f"found {len(offsets)} sources in {checkpoint} and the names {list(names)}; expected a name for each "
            "source, in the query's order: sources=(…)"
        )
    _require_folders(folder, checkpoint, offsets)
    for number in (batch - 1, batch):
        _adapt(folder / "offsets" / str(number), checkpoint)
    sources = QuerySources(tuple(names), ticks=False)
    positions = source_positions(folder, batch, sources)
    return QueryPosition(
        batch=batch,
        watermark_ms=watermark_ms,
        sources=tuple(SourcePositions(name=name, positions=at) for name, at in zip(names, positions, strict=True)),
        progress=capture_progress(folder, batch, store, None, f"0/0-{batch}", sources),
    )


def _require_folders(folder: Path, checkpoint: str, offsets: Sequence[str]) -> None:
    """Refuse a query that reads a source of files twice: its logs and offsets cannot be matched."""
    kept = folder / "sources"
    logs = sorted(each.name for each in kept.iterdir()) if kept.is_dir() else []
    if any("logOffset" in offset for offset in offsets) and logs != [str(number) for number in range(len(offsets))]:
        raise ConfigurationError(
            f"found offsets of {len(offsets)} sources and logs of the sources {', '.join(logs) or 'none'} in "
            f"{checkpoint}; expected a log of each source; a source that the query uses twice is not taken over: leave "
            "sources_from out, and have the job begin where it should"
        )


def _numbers(files: FileStore, log: str) -> list[int]:
    names = (entry.path.removeprefix(f"{log}/") for entry in files.list(log))
    return [int(name) for name in names if name.isdecimal()]


def _bring(files: FileStore, folder: Path) -> None:
    """Copy the files that the job needs: logs, and those of the sources."""
    paths = ["metadata", *(entry.path for log in _LOGS for entry in files.list(log))]
    for path in paths:
        if not path.rpartition("/")[2].startswith("."):
            target = folder / safe_path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files.read(path))


def _adapt(path: Path, checkpoint: str) -> None:
    """Remove the query's own settings and watermark from a file of the offset log."""
    if not path.exists():
        return
    version, metadata, *offsets = path.read_text().split("\n")
    if version != _VERSION:
        raise ConfigurationError(
            f"found offsets/{path.name} of version {version} in {checkpoint}; expected {_VERSION}: sources with names "
            "of Spark's own are not taken over; leave sources_from out, and have the job begin where it should"
        )
    kept: dict[str, Any] = json.loads(metadata)
    kept["conf"] = {key: value for key, value in kept.get("conf", {}).items() if key not in _NUMBERS}
    kept["batchWatermarkMs"] = 0
    path.write_text("\n".join([version, json.dumps(kept), *offsets]))


def _watermark_ms(commit: Path, offsets: Path) -> int | None:
    """Return the watermark after a batch, with which the next one would have begun.

    In Spark a window that ends at the watermark is over. A job's watermark is one millisecond behind: the last one of
    that window.
    """
    body, metadata = (path.read_text().split("\n")[1:2] or ["{}"] for path in (commit, offsets))
    next_ms = json.loads(body[0] or "{}").get("nextBatchWatermarkMs", 0)
    watermark_ms = max(int(next_ms), int(json.loads(metadata[0]).get("batchWatermarkMs", 0)))
    return watermark_ms - 1 if watermark_ms else None
