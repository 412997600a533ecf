"""A file with the names of all jobs for Airflow's form, so that parsing DAGs does not query the catalog.

The supervisor updates it, a JSON list of names; the environment variable ``STATECORE_JOBS`` holds its path.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

log = logging.getLogger(__name__)

JOBS_VARIABLE = "STATECORE_JOBS"


def job_names_file() -> Path | None:
    """Return the path of the file, or None when it is not configured."""
    configured = os.environ.get(JOBS_VARIABLE)
    return Path(configured) if configured else None


def write_job_names(path: Path, names: Sequence[str]) -> None:
    """Replace the file atomically."""
    data = msgspec.json.encode(list(names))
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.write_bytes(data)
    temporary.replace(path)


def read_job_names(path: Path | None) -> list[str]:
    """Return the names; empty without a readable file, because a form without suggestions is better than none."""
    if path is None:
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[str])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        log.warning(
            "found %s, which holds no list of names (%s); expected a file by the supervisor; correct %s, or remove "
            "the file and let the supervisor write it again",
            path,
            error,
            JOBS_VARIABLE,
        )
        return []
