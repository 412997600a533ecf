"""A lost catalog, made anew from the store of a job."""

from __future__ import annotations

from dataclasses import dataclass

from statecore.catalog.catalog import Catalog
from statecore.catalog.records import JobRecord
from statecore.errors import ConfigurationError, UnknownJobError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import read_definition


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A job that is in the catalog again.

    Attributes:
        job: Its record; it is stopped.
        lineage, epoch: Its newest epoch; None when it never committed one.
        savepoints: How many were found.
        withheld: Names of configuration values and settings that were never written down, because they are secret.

    """

    job: JobRecord
    lineage: int | None
    epoch: int | None
    savepoints: int
    withheld: tuple[str, ...]


def rebuild_job(catalog: Catalog, store_url: str) -> Rebuilt:
    """Register a job, its generations and its savepoints as its store knows them; it stays stopped.

    A driver that still runs, started by the catalog that is lost, stops when it next looks into this one.

    Args:
        catalog: An opened catalog without the job.
        store_url: Root of the job's store.

    Raises:
        ConfigurationError: The catalog knows the job.
        MissingFileError: The store has no definition of a job.

    """
    store = CheckpointStore.at(store_url)
    definition = read_definition(store.files)
    _require_unknown(catalog, definition.name)
    newest = store.newest()
    job = catalog.register_job(
        definition.name,
        artifact=definition.artifact,
        store=store.files.url,
        master_url=definition.master_url,
        # Clusters are not the job's; it is given its own again when that is registered.
        cluster=None,
        conf=definition.conf,
        settings=definition.settings,
        parallelism=definition.parallelism if newest is None else newest.parallelism,
        max_parallelism=definition.max_parallelism if newest is None else newest.max_parallelism,
    )
    lineage, epoch = (None, None) if newest is None else (newest.lineage, newest.epoch)
    generation = store.newest_generation()
    if generation is not None:
        catalog.import_generation(job.name, generation, parallelism=job.parallelism, lineage=lineage, epoch=epoch)
    savepoints = store.savepoints()
    for path in savepoints:
        manifest = store.manifest(path)
        catalog.record_savepoint(
            store.describe(path),
            job=job.name,
            lineage=manifest.lineage,
            epoch=manifest.epoch,
            parallelism=manifest.parallelism,
            reason="" if manifest.savepoint is None else manifest.savepoint.reason,
            created_ms=None if manifest.savepoint is None else manifest.savepoint.created_ms,
        )
    return Rebuilt(
        job=job,
        lineage=lineage,
        epoch=epoch,
        savepoints=len(savepoints),
        withheld=definition.withheld,
    )


def _require_unknown(catalog: Catalog, name: str) -> None:
    try:
        catalog.job(name)
    except UnknownJobError:
        return
    raise ConfigurationError(f"found job {name!r} in the catalog; expected a catalog that lost it; nothing was changed")
