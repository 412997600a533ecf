"""Route: the end of a driver log."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from statecore.catalog import GenerationRecord
from statecore.errors import MissingFileError, StorageError, UnknownRecordError, UnsafePathError
from statecore.redaction import redacted
from statecore_airflow.hooks.settings import logs_folder
from statecore_airflow.web.access import JobName, may_read_logs
from statecore_airflow.web.answers import LogAnswer
from statecore_airflow.web.catalogs import CatalogDep

router = APIRouter(dependencies=[Depends(may_read_logs)])

_TAIL_BYTES = 256 * 1024
_LISTED = 50


@router.get("/api/log")
def get_log(
    name: JobName,
    catalog: CatalogDep,
    generation: Annotated[int | None, Query(ge=1, description="The newest by default.")] = None,
) -> LogAnswer:
    """Return the end of a generation's driver log: the catalog names it, and it lies in the folder of the logs."""
    catalog.jobs.get(name)
    known = catalog.generations.of(name, limit=_LISTED)
    shown = next((each for each in known if generation in (None, each.generation)), None)
    if shown is None:
        raise UnknownRecordError(
            f"found no generation {generation or 'at all'} of job {name!r} among its newest {_LISTED}; expected an "
            "existing one; start the job, or look in the supervisor's log folder"
        )
    try:
        path = _path(shown)
        text, missing_bytes = _tail(path)
    except OSError as error:
        raise StorageError(
            f"found an unreadable file {shown.log_path} ({error.strerror}); expected the log of generation "
            f"{shown.generation}; grant Airflow's API server read access to it"
        ) from error
    return LogAnswer(
        now_ms=catalog.now_ms(),
        generation=shown.generation,
        state=shown.state,
        generations=[each.generation for each in known],
        path=str(path),
        text=redacted(text),
        missing_bytes=missing_bytes,
    )


def _path(generation: GenerationRecord) -> Path:
    path = Path(generation.log_path)
    # A generation without a driver process has a note here instead of a path.
    if path.is_absolute() and path.is_file():
        # Whoever may write to the catalog could name any file, or a link to it, and so another job's log.
        folder, path = logs_folder().resolve(), path.resolve()
        if path.is_relative_to(folder):
            return _own(generation, path)
        raise UnsafePathError(
            f"found the log of generation {generation.generation} at {path}; expected it below {folder}; if it is a "
            "log of the supervisor, correct logs_folder in the section [statecore] of Airflow's configuration"
        )
    raise MissingFileError(
        f"found no file {generation.log_path!r} on this machine; expected the log of generation "
        f"{generation.generation}; look for it where the supervisor runs, or mount the supervisor's log folder here"
    )


def _own(generation: GenerationRecord, path: Path) -> Path:
    if path.name == generation.log_name:
        return path
    raise UnsafePathError(
        f"found the log of generation {generation.generation} of job {generation.job!r} at {path}; expected its own, "
        f"{generation.log_name}; find out who changed the catalog, and look in the supervisor's log folder"
    )


def _tail(path: Path) -> tuple[str, int]:
    """Return the last whole lines, and the number of bytes before them."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        file.seek(start)
        data = file.read(_TAIL_BYTES)
    if start:
        cut = data.find(b"\n") + 1
        start, data = start + cut, data[cut:]
    return data.decode(errors="replace"), start
