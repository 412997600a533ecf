"""Checkpoints that statecore makes for a job, a query of Spark's own.

::

    <store>/checkpoints/<name>/     the checkpoint of the job, once a rescale has succeeded
"""

from __future__ import annotations

from statecore.catalog import JobRecord
from statecore.queries.files import INCOMPLETE
from statecore.queries.origin import read_origin
from statecore.storage import open_store, safe_path

_FOLDER = "checkpoints"


def new_checkpoint(job: JobRecord, name: str) -> str:
    """Return the URL of a checkpoint that a job may get."""
    return f"{open_store(job.store).url.rstrip('/')}/{safe_path(f'{_FOLDER}/{name}')}"


def is_copied(url: str) -> bool:
    """Tell whether a whole copy is there."""
    store = open_store(url)
    return read_origin(store) is not None and store.size(INCOMPLETE) is None
