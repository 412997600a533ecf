"""Marker files that record the newest epoch a sink has published.

::

    <folder>/<lineage>-<epoch>      {"outputs": SHA-256 over the staged files, "schema": Spark DDL of the rows}

Epochs are published in order, so only the newest marker is kept.
"""

from __future__ import annotations

import msgspec

from statecore.errors import CorruptFileError, SinkError
from statecore.runtime.sinks.base import StagedEpoch
from statecore.snapshot.published import marked_epochs
from statecore.storage import FileStore


class Marker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Content of a marker file."""

    outputs: str
    schema: str


_DECODER = msgspec.json.Decoder(Marker)


class Markers:
    """The markers of one sink, listed once on construction."""

    def __init__(self, store: FileStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._epochs = marked_epochs(store, folder)

    @property
    def newest(self) -> tuple[int, int] | None:
        """The newest published (lineage, epoch), or None when there is none."""
        return self._epochs[-1] if self._epochs else None

    def read(self, lineage: int, epoch: int) -> Marker:
        """Read the marker of an epoch.

        Raises:
            CorruptFileError: The marker is damaged.

        """
        path = self._path(lineage, epoch)
        try:
            return _DECODER.decode(self._store.read(path))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CorruptFileError(
                f"found an unreadable marker {self._store.url}/{path} ({error}); expected the JSON that statecore "
                "wrote; restore the marker from a backup"
            ) from error

    def hold(self, staged: StagedEpoch) -> bool:
        """Return whether the epoch is already published.

        Raises:
            SinkError: A later epoch is published, or this epoch with other rows: another driver or job publishes here.

        """
        asked = (staged.lineage, staged.epoch)
        newest = self.newest
        if newest is None or newest < asked:
            return False
        if newest == asked and self.read(*newest).outputs == staged.fingerprint:
            return True
        later = f"epoch {newest[1]} of lineage {newest[0]}{' with other rows' if newest == asked else ''}"
        raise SinkError(
            f"found {later} already published in {self._store.url}/{self._folder}; expected epoch {staged.epoch} of "
            f"lineage {staged.lineage} of job {staged.job!r} to be the next for sink {staged.sink!r}; if another "
            "driver has taken over, let this one stop; if another job or an earlier run of this job published there, "
            "give the sink another path"
        )

    def put(self, staged: StagedEpoch) -> None:
        """Record that an epoch is published; delete the older markers."""
        marker = Marker(outputs=staged.fingerprint, schema=staged.schema)
        self._store.write(self._path(staged.lineage, staged.epoch), msgspec.json.encode(marker))
        for older in self._epochs:
            self._store.delete(self._path(*older))

    def _path(self, lineage: int, epoch: int) -> str:
        return f"{self._folder}/{lineage}-{epoch}"
