"""Where committed outputs become visible.

Workers stage rows as Parquet files; the manifest of the epoch names the files that count; publishing makes them
visible. Publishing is repeated after a restart, so a sink must do nothing the second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from statecore.errors import MissingFileError
from statecore.snapshot.manifest import StagedOutput
from statecore.storage import FileStore, open_store


class Sink(Protocol):
    """Takes the staged files of committed epochs."""

    def staging(self) -> FileStore:
        """Return the store in which workers stage this sink's files."""

    def publish(self, outputs: Sequence[StagedOutput], lineage: int, epoch: int) -> None:
        """Make an epoch's files visible; may be called again for the same epoch."""


class ParquetSink:
    """A directory of Parquet files: ``lineage=<n>/epoch=<n>/<file>``, read as a table by any engine.

    Files are staged under ``_staged/``, which engines skip, and moved once their epoch is committed: a reader sees
    committed epochs only.

    Args:
        path: The directory; it must be reachable from driver and workers.

    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)

    def staging(self) -> FileStore:
        """Return the sink's own directory, so that publishing is a rename."""
        return open_store(self.path)

    def publish(self, outputs: Sequence[StagedOutput], lineage: int, epoch: int) -> None:
        """Move the staged files to their epoch's partition.

        Raises:
            MissingFileError: A file is neither staged nor published.

        """
        store = self.staging()
        marker = f"_published/{lineage}-{epoch}"
        if store.size(marker) is not None:
            # All of it was visible once; whoever reads the folder may have moved the files on since.
            return
        for output in outputs:
            name = output.file.path.rsplit("/", 1)[-1]
            target = f"lineage={lineage}/epoch={epoch}/{name}"
            try:
                store.move(output.file.path, target)
            except MissingFileError:
                # A driver that was killed had come this far: the file's name holds the attempt, so it is this very one.
                if store.size(target) != output.file.size:
                    raise
        store.write(marker, b"")
        # Only the newest epoch can be published again.
        store.delete(f"_published/{lineage}-{epoch - 1}")
