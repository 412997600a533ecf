"""Checkpoints that statecore makes for a job, a query of Spark's own.

::

    <store>/checkpoints/<name>/     the checkpoint of the job, once a rescale has succeeded
"""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.queries.reading.checkpoint import newest_batches, query_id
from statecore.queries.reading.files import INCOMPLETE
from statecore.queries.reading.origin import read_origin
from statecore.storage import open_store, safe_path
from statecore.storage.urls import normal_url

CHECKPOINTS = "checkpoints"


def new_checkpoint(job: JobRecord, name: str) -> str:
    """Return the URL of a new checkpoint for a job."""
    return f"{open_store(job.store).url.rstrip('/')}/{safe_path(f'{CHECKPOINTS}/{name}')}"


def is_copied(source: str, target: str) -> bool:
    """Return whether an earlier attempt has made a whole copy of a checkpoint as it is now."""
    store, source_store = open_store(normal_url(target)), open_store(normal_url(source))
    origin = read_origin(store)
    if origin is None or store.size(INCOMPLETE) is not None or origin.query_id != query_id(source_store):
        return False
    copied = origin.batch if origin.pending is None else origin.pending
    return newest_batches(source_store) == (origin.batch, copied)
