"""Savepoints of a job of either kind: their addresses, whether they are whole, and how they are removed."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import suppress

from statecore.catalog import Catalog, JobRecord
from statecore.cluster.spark_home import spark_environment
from statecore.errors import CheckpointDamagedError, MissingFileError, StepFailedError, StorageError
from statecore.queries.job import dropping
from statecore.queries.reading.origin import is_copy
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore, open_savepoint
from statecore.snapshot.savepoints import drop_savepoint
from statecore.snapshot.verify import verify
from statecore.storage import open_store

log = logging.getLogger(__name__)

_SHOWN_LINES = 20


class Savepoints(ABC):
    """The savepoints of a job.

    Args:
        job: The job.

    """

    def __init__(self, job: JobRecord) -> None:
        self.job = job

    @abstractmethod
    def address(self, path: str) -> str:
        """Return the one address of a savepoint, for any spelling of its path."""

    @abstractmethod
    def check(self, address: str) -> str:
        """Read a savepoint; return what was read, in words.

        Raises:
            CheckpointDamagedError: It is not whole.
            StepFailedError: It could not be read now.
            StatecoreError: It cannot be read.

        """

    @abstractmethod
    def drop(self, address: str, catalog: Catalog) -> int:
        """Remove a savepoint; return the freed bytes, 0 if it was gone.

        Raises:
            SavepointInUseError: Something reads it.
            StatecoreError: It cannot be removed.

        """

    @abstractmethod
    def spellings(self, address: str) -> list[str]:
        """Return the paths under which the catalog may know a savepoint."""

    @abstractmethod
    def remove_surplus(self, catalog: Catalog, max_age_ms: int) -> None:
        """Remove what rescales have left beside savepoints, and nothing has needed for so long."""


def savepoints_of(job: JobRecord) -> Savepoints:
    """Return the savepoints of a job."""
    return _OfQuery(job) if job.is_query else _OfJob(job)


class _OfJob(Savepoints):
    def __init__(self, job: JobRecord) -> None:
        super().__init__(job)
        self._store = CheckpointStore.at(job.store)

    def address(self, path: str) -> str:
        whole = path if "://" in path or path.startswith("/") else self._store.describe(path)
        return whole if whole.endswith(f"/{MANIFEST}") else f"{whole.rstrip('/')}/{MANIFEST}"

    def check(self, address: str) -> str:
        store, _, manifest = open_savepoint(address)
        problems = verify(store, manifest)
        for problem in problems:
            log.error("%s", problem)
        if problems:
            raise CheckpointDamagedError(
                f"found {len(problems)} problems with savepoint {address}, the first: {problems[0]}; expected none; "
                "older savepoints stay as they are; find out what happened to the files"
            )
        return f"{len(manifest.files())} files, {sum(ref.size for ref in manifest.files())} bytes"

    def drop(self, address: str, catalog: Catalog) -> int:
        with suppress(MissingFileError):
            return drop_savepoint(self._store, self._path(address))
        return 0

    def spellings(self, address: str) -> list[str]:
        either = (address, self._path(address))
        return [each for path in either for each in (path, path.removesuffix(f"/{MANIFEST}"))]

    def remove_surplus(self, catalog: Catalog, max_age_ms: int) -> None:
        """Do nothing: the job removes its checkpoints itself."""

    def _path(self, address: str) -> str:
        return address.removeprefix(self._store.describe(""))


class _OfQuery(Savepoints):
    def address(self, path: str) -> str:
        return path.rstrip("/") if "://" in path or path.startswith("/") else f"{self._root()}/{path.rstrip('/')}"

    def check(self, address: str) -> str:
        # In a process of its own, which ends with its Spark session.
        done = subprocess.run(
            [sys.executable, "-m", "statecore", "savepoint", "verify", "--json", address],
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        try:
            found = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            last = "\n".join(done.stderr.strip().splitlines()[-_SHOWN_LINES:]) or "nothing"
            raise StepFailedError(
                f"found that the check of savepoint {address} ended with exit code {done.returncode} and without an "
                f"answer; expected one; its last output was:\n{last}",
                is_retryable=True,
            ) from None
        for problem in found["problems"]:
            raise CheckpointDamagedError(
                f"found that savepoint {address} is not whole: {problem}; older savepoints stay as they are; find out "
                "what happened to the files"
            )
        read = "state was not read" if found["rows"] is None else f"{found['rows']:,} rows of state"
        return f"{read} at batch {found['batch']}, {found['files']:,} files"

    def drop(self, address: str, catalog: Catalog) -> int:
        dropping.require_unused(catalog, address)
        return dropping.drop_savepoint(address) if is_copy(address) else 0

    def spellings(self, address: str) -> list[str]:
        return [address, address.removeprefix(f"{self._root()}/")]

    def remove_surplus(self, catalog: Catalog, max_age_ms: int) -> None:
        for url in dropping.surplus_checkpoints(catalog, self.job.name, max_age_ms):
            try:
                freed = dropping.remove_checkpoint(url)
            except StorageError as error:
                log.warning("the checkpoint %s, which nothing needs any more, was not removed: %s", url, error)
            else:
                log.info("removed the checkpoint %s, which nothing needs any more: %s bytes", url, freed)

    def _root(self) -> str:
        return open_store(self.job.store).url.rstrip("/")
