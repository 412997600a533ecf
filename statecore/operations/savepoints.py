"""Savepoints of a job of either kind: take, check, address and remove them."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from statecore.catalog import Catalog, JobRecord, SavepointRecords, SystemClock
from statecore.cluster.spark_home import spark_environment
from statecore.errors import CheckpointDamagedError, MissingFileError, StepFailedError, StorageError
from statecore.queries.job import dropping
from statecore.queries.job.savepoints import take_savepoint
from statecore.queries.reading.origin import is_copy
from statecore.snapshot.checkpoints import MANIFEST, CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.resume_point import find_resume_point
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
        """Return the canonical address of a savepoint, for any spelling of its path."""

    @abstractmethod
    def check(self, address: str) -> str:
        """Read a savepoint; return its size in words.

        Raises:
            CheckpointDamagedError: The savepoint is not whole.
            StepFailedError: It could not be read now.
            StatecoreError: It cannot be read.

        """

    @abstractmethod
    def pin(self, catalog: Catalog, name: str, reason: str, generation: int) -> Mapping[str, Any]:
        """Take a savepoint of the job's resume point, while no driver runs.

        Args:
            catalog: Where it is recorded.
            name: Name of the savepoint.
            reason: Reason, kept with it.
            generation: A claimed generation, which blocks drivers.

        Returns:
            The same answer as a driver's: ``savepoint``, its path in the job's store; ``lineage`` and ``epoch``.

        Raises:
            MissingFileError: There is no committed epoch.
            StatecoreError: It cannot be taken.

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
        """Return the paths under which the catalog may list a savepoint."""

    @abstractmethod
    def remove_surplus(self, catalog: Catalog, max_age_ms: int) -> None:
        """Remove surplus copies of rescales that have been unused for ``max_age_ms``."""


class EpochSavepoints(Savepoints):
    """Savepoints of a job of statecore: epochs that stay."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(job)
        self._store = CheckpointStore.at(job.store)

    def address(self, path: str) -> str:
        """Return the URL of its manifest."""
        whole = path if "://" in path or path.startswith("/") else self._store.describe(path)
        return whole if whole.endswith(f"/{MANIFEST}") else f"{whole.rstrip('/')}/{MANIFEST}"

    def check(self, address: str) -> str:
        """Read every file that its manifest names."""
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

    def pin(self, catalog: Catalog, name: str, reason: str, generation: int) -> Mapping[str, Any]:
        """Pin the newest epoch."""
        job, store = self.job, self._store
        point = find_resume_point(store, job, generation)
        manifest = point.manifest
        if point.foreign is not None:
            raise MissingFileError(
                f"found no epoch of job {job.name!r} since it should start from {job.start_from}, outside its "
                "store; expected one for a savepoint; start the job and let it commit an epoch first"
            )
        if manifest is None:
            raise MissingFileError(
                f"found no committed epoch of job {job.name!r} in {store.files.url} and no live driver; "
                "expected one of them for a savepoint; start the job and let it commit an epoch first"
            )
        path = store.write_savepoint(manifest, name, reason=reason, now_ms=SystemClock().now_ms())
        record_savepoint(catalog.savepoints, store, manifest, path, reason)
        return {"savepoint": path, "lineage": manifest.lineage, "epoch": manifest.epoch}

    def drop(self, address: str, catalog: Catalog) -> int:
        """Remove its manifest, and the files that no other manifest names."""
        with suppress(MissingFileError):
            return drop_savepoint(self._store, self._path(address))
        return 0

    def spellings(self, address: str) -> list[str]:
        """Return its URL and its path in the store, with and without the manifest."""
        either = (address, self._path(address))
        return [each for path in either for each in (path, path.removesuffix(f"/{MANIFEST}"))]

    def remove_surplus(self, catalog: Catalog, max_age_ms: int) -> None:
        """Do nothing: the job removes its checkpoints itself."""

    def _path(self, address: str) -> str:
        return address.removeprefix(self._store.describe(""))


class CloneSavepoints(Savepoints):
    """Savepoints of a query of Spark's own: clones of its checkpoint."""

    def address(self, path: str) -> str:
        """Return the URL of its folder."""
        return path.rstrip("/") if "://" in path or path.startswith("/") else f"{self._root()}/{path.rstrip('/')}"

    def check(self, address: str) -> str:
        """Read it with Spark."""
        # In a separate process, which ends with its Spark session.
        done = subprocess.run(
            [sys.executable, "-m", "statecore", "savepoint", "verify", "--json", address],
            env=spark_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        try:
            answer = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, ValueError):
            last = "\n".join(done.stderr.strip().splitlines()[-_SHOWN_LINES:]) or "nothing"
            raise StepFailedError(
                f"found that the check of savepoint {address} ended with exit code {done.returncode} and without an "
                f"answer; expected one; its last output was:\n{last}",
                is_retryable=True,
            ) from None
        for problem in answer["problems"]:
            raise CheckpointDamagedError(
                f"found that savepoint {address} is not whole: {problem}; older savepoints stay as they are; find out "
                "what happened to the files"
            )
        read = "state was not read" if answer["rows"] is None else f"{answer['rows']:,} rows of state"
        return f"{read} at batch {answer['batch']}, {answer['files']:,} files"

    def pin(self, catalog: Catalog, name: str, reason: str, generation: int) -> Mapping[str, Any]:
        """Clone the checkpoint."""
        return take_savepoint(catalog, self.job, name, reason, running=False).result()

    def drop(self, address: str, catalog: Catalog) -> int:
        """Remove the clone."""
        dropping.require_unused(catalog, address)
        return dropping.drop_savepoint(address) if is_copy(address) else 0

    def spellings(self, address: str) -> list[str]:
        """Return its URL and its path in the store."""
        return [address, address.removeprefix(f"{self._root()}/")]

    def remove_surplus(self, catalog: Catalog, max_age_ms: int) -> None:
        """Remove checkpoints that rescales have replaced."""
        for url in dropping.surplus_checkpoints(catalog, self.job.name, max_age_ms):
            try:
                freed = dropping.remove_checkpoint(url)
            except StorageError as error:
                log.warning("the checkpoint %s, which nothing needs any more, was not removed: %s", url, error)
            else:
                log.info("removed the checkpoint %s, which nothing needs any more: %s bytes", url, freed)

    def _root(self) -> str:
        return open_store(self.job.store).url.rstrip("/")


def record_savepoint(
    savepoints: SavepointRecords, store: CheckpointStore, manifest: Manifest, path: str, reason: str
) -> None:
    """Record a savepoint that was written without a driver."""
    savepoints.record(
        store.describe(path),
        job=manifest.job,
        lineage=manifest.lineage,
        epoch=manifest.epoch,
        parallelism=manifest.parallelism,
        reason=reason,
        bytes=manifest.state_bytes,
    )
