"""Rebuilds a lost catalog from the store of a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statecore.catalog.catalog import Catalog
from statecore.catalog.records import JobRecord
from statecore.errors import ConfigurationError, ManifestError, StorageError, UnknownJobError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, read_definition
from statecore.snapshot.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A rebuilt job.

    Attributes:
        job: Its record.
        registered_before: Whether it was registered again after the catalog was lost; that registration stays.
        lineage, epoch: Its newest epoch; None when it never committed one.
        savepoints: Number of readable savepoints.
        withheld: Names of secret configuration values and settings, which the store does not contain.
        lost_cluster: The job's cluster, when the catalog does not know it; else None.
        problems: One error per savepoint that cannot be read.

    """

    job: JobRecord
    registered_before: bool
    lineage: int | None
    epoch: int | None
    savepoints: int
    withheld: tuple[str, ...]
    lost_cluster: str | None
    problems: tuple[ManifestError | StorageError, ...]


def rebuild_job(catalog: Catalog, store_url: str, *, progress: Callable[[int, int], None] | None = None) -> Rebuilt:
    """Register a job, its newest generation and its savepoints from its store; the job stays stopped.

    A driver that the lost catalog started stops at its next heartbeat to this one. ``progress`` receives the
    number of savepoints read so far and the total.

    Raises:
        ConfigurationError: The catalog knows the job and its history, or knows it with another store.
        MissingFileError: The store has no definition of a job.
        ManifestError: The definition or the newest epoch cannot be read; nothing was changed.

    """
    store = CheckpointStore.at(store_url)
    # Read everything before writing, so that a failed rebuild can be repeated.
    definition = read_definition(store.files)
    newest = store.newest()
    generation = _newest_generation(store, newest)
    savepoints, problems = _savepoints(store, progress)
    known = _registered_anew(catalog, definition.name, store, generation)
    cluster = definition.cluster if definition.cluster in {each.name for each in catalog.clusters.all()} else None
    job = known or _register(catalog, definition, store, newest, cluster)
    lineage, epoch = (None, None) if newest is None else (newest.lineage, newest.epoch)
    if generation:
        catalog.generations.import_stopped(
            job.name, generation, parallelism=job.parallelism, lineage=lineage, epoch=epoch
        )
    for path, manifest in savepoints.items():
        catalog.savepoints.record(
            store.describe(path),
            job=job.name,
            lineage=manifest.lineage,
            epoch=manifest.epoch,
            parallelism=manifest.parallelism,
            reason="" if manifest.savepoint is None else manifest.savepoint.reason,
            created_ms=None if manifest.savepoint is None else manifest.savepoint.created_ms,
            bytes=manifest.state_bytes,
        )
    return Rebuilt(
        job=job,
        registered_before=known is not None,
        lineage=lineage,
        epoch=epoch,
        savepoints=len(savepoints),
        withheld=() if known else definition.withheld,
        lost_cluster=None if known or cluster else definition.cluster,
        problems=tuple(problems),
    )


def _newest_generation(store: CheckpointStore, newest: Manifest | None) -> int:
    """Return the highest generation in the store, 0 without one; new generations get higher numbers."""
    return max(store.newest_generation() or 0, 0 if newest is None else newest.generation)


def _savepoints(
    store: CheckpointStore, progress: Callable[[int, int], None] | None
) -> tuple[dict[str, Manifest], list[ManifestError | StorageError]]:
    """Return the readable savepoints by path; an unreadable one must not prevent the rebuild."""
    manifests, problems = {}, []
    paths = store.savepoints()
    for number, path in enumerate(paths, start=1):
        try:
            manifests[path] = store.manifest(path)
        except (ManifestError, StorageError) as error:
            problems.append(error)
        if progress is not None:
            progress(number, len(paths))
    return manifests, problems


def _registered_anew(catalog: Catalog, name: str, store: CheckpointStore, generation: int) -> JobRecord | None:
    """Return the record of a job that was registered again after its catalog was lost."""
    try:
        job = catalog.jobs.get(name)
    except UnknownJobError:
        return None
    if not store.is_at(job.store):
        raise ConfigurationError(
            f"found job {name!r} registered with the store {job.store}; expected {store.files.url}, the store to "
            "rebuild from; register it with that store, or give its registered one; nothing was changed"
        )
    newest = catalog.generations.newest(name)
    if newest is not None and newest.generation >= generation:
        raise ConfigurationError(
            f"found job {name!r} in the catalog with generation {newest.generation}; expected a catalog that lost the "
            f"history in {store.files.url}; it has all of it, so nothing was changed"
        )
    return job


def _register(
    catalog: Catalog, definition: JobDefinition, store: CheckpointStore, newest: Manifest | None, cluster: str | None
) -> JobRecord:
    return catalog.jobs.register(
        definition.name,
        artifact=definition.artifact,
        artifact_sha256=definition.artifact_sha256,
        store=store.files.url,
        master_url=definition.master_url,
        cluster=cluster,
        conf=definition.conf,
        settings=definition.settings,
        parallelism=definition.parallelism if newest is None else newest.parallelism,
        max_parallelism=definition.max_parallelism if newest is None else newest.max_parallelism,
        checkpoint=definition.checkpoint,
    )
