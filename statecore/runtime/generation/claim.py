"""Claims a generation for one driver."""

from __future__ import annotations

from statecore.catalog import Catalog, GenerationRecord
from statecore.errors import CatalogError, CommitError, StatecoreError
from statecore.runtime.generation.failures import record_failure
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage import require_conditional_puts


def claim(catalog: Catalog, job: str, generation: int) -> GenerationRecord:
    """Become the only driver of a generation; a refused driver leaves the generation to its owner."""
    try:
        newest = catalog.generations.newest(job)
        if newest is None or newest.generation != generation or newest.ended:
            raise CommitError(
                f"found generation {newest.generation if newest else None} as the newest of job {job!r}; "
                f"expected {generation}, which this driver was launched for; let the supervisor launch drivers"
            )
        store = CheckpointStore.at(catalog.jobs.get(job).store)
        require_conditional_puts(store.files)
        _catch_up(catalog, newest, store)
        store.claim_generation(generation)
    except CommitError:
        raise
    except StatecoreError as error:
        record_failure(catalog.generations, job, generation, error)
        raise
    return newest


def _catch_up(catalog: Catalog, claimed: GenerationRecord, store: CheckpointStore) -> None:
    """Fail if the store knows later generations than a catalog that was restored from a backup; the next one is later.

    Raises:
        CatalogError: The store knows a later generation.

    """
    known, job = store.newest_generation() or 0, claimed.job
    if known > claimed.generation:
        error = CatalogError(
            f"found generation {known} in {store.files.url}; expected none after {claimed.generation}, the newest that "
            f"the catalog knows of job {job!r}; it is older than the store, and counts from {known} on now; if another "
            "catalog runs this job, remove it from one of them"
        )
        record_failure(catalog.generations, job, claimed.generation, error)
        catalog.generations.import_stopped(job, known, parallelism=claimed.parallelism, lineage=None, epoch=None)
        raise error
