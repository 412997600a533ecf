"""Where Kafka sources begin that no epoch has read yet.

With ``startingOffsets=latest``, a source begins where its topics end when a query first asks. Spark keeps that in its
checkpoint directory, which dies with the driver. If the source's first epoch fails, the next driver would ask again,
and skip the records in between. So these offsets are kept in the job's store before the epoch runs::

    first-offsets/<digest of job file and settings>/<source>        content of Spark's sources/<i>/0
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from statecore.catalog import JobRecord
from statecore.errors import AlreadyExistsError, MissingFileError
from statecore.runtime.epoch.progress import QuerySources
from statecore.snapshot.checkpoints import FIRST_OFFSETS
from statecore.snapshot.manifest import Manifest
from statecore.storage import FileStore

log = logging.getLogger(__name__)

# By this byte Spark's Kafka source begins its file; logs of file sources, which begin where they are, have none.
_OF_KAFKA = b"\0"


class FirstOffsets:
    """The first offsets of one query's sources.

    Args:
        files: The job's store.
        job: The job: with another job file or other settings, its sources begin anew.
        directory: Spark's checkpoint directory.
        sources: The sources of the query.
        resumed: The epoch that the query resumes from; None without one.

    """

    def __init__(
        self, files: FileStore, job: JobRecord, directory: Path, sources: QuerySources, resumed: Manifest | None
    ) -> None:
        read = set() if resumed is None else {each.name for each in resumed.sources}
        definition = msgspec.json.encode([job.artifact, job.artifact_sha256, job.settings], order="sorted")
        self._files = files
        self._folder = f"{FIRST_OFFSETS}/{hashlib.sha256(definition).hexdigest()}"
        self._directory = directory
        self._new = {name: number for number, name in enumerate(sources.names) if name not in read}

    def lay_down(self) -> None:
        """Have new sources begin where an earlier driver had them begin."""
        for name, path in self._places():
            with suppress(MissingFileError):
                data = self._files.read(f"{self._folder}/{name}")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                log.info("source %s begins where a driver before had it begin", name)

    def keep(self) -> None:
        """Keep where new sources begin; call it before the query's first epoch runs."""
        for name, path in self._places():
            if path.is_file() and (data := path.read_bytes()).startswith(_OF_KAFKA):
                # Another driver was quicker, or this one has laid it down.
                with suppress(AlreadyExistsError):
                    self._files.put_if_absent(f"{self._folder}/{name}", data)
        # The manifest of the epoch has them.
        self._new = {}

    def _places(self) -> Iterator[tuple[str, Path]]:
        for name, number in self._new.items():
            yield name, self._directory / "sources" / str(number) / "0"
