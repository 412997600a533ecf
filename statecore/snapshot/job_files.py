"""Job files: where one is registered from, and the copy in the job's store that its drivers run.

::

    job-files/<SHA-256 of the file>/<its name>        written before the catalog names it; never changed or cleaned up
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from statecore.errors import JobDefinitionError, MissingFileError
from statecore.storage import FileStore, open_store, split_url
from statecore.storage.base import safe_path

_FOLDER = "job-files"


def read_source(artifact: str) -> bytes:
    """Return the job file at a path or URL.

    Raises:
        JobDefinitionError: There is none.
        StorageError: Its store cannot be reached.

    """
    missing = JobDefinitionError(
        f"found no job file {artifact}; expected a Python file that defines build(job); correct the path, or register "
        "the job again"
    )
    if "://" not in artifact:
        if not Path(artifact).is_file():
            raise missing
        return Path(artifact).read_bytes()
    folder, name = split_url(artifact)
    try:
        return open_store(folder).read(name)
    except MissingFileError:
        raise missing from None


def keep_job_file(files: FileStore, artifact: str, data: bytes) -> str:
    """Copy a job file into the job's store, under its SHA-256; return that, as hexadecimal digits."""
    digest = hashlib.sha256(data).hexdigest()
    files.write(_path(artifact, digest), data)
    return digest


def read_job_file(files: FileStore, artifact: str, sha256: str) -> bytes:
    """Return the copy of a job file that was registered with this SHA-256.

    Raises:
        MissingFileError: The copy is missing.
        JobDefinitionError: It is another file.

    """
    path = _path(artifact, sha256)
    remedy = f"register {artifact} again, or restore the copy from a backup"
    try:
        data = files.read(path)
    except MissingFileError:
        raise MissingFileError(
            f"found no {files.url}/{path}; expected the copy of the job file as it was registered; look whether the "
            "store is there (a folder that is not mounted is empty), and restore the copy from a backup"
        ) from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        raise JobDefinitionError(
            f"found a job file with the SHA-256 {actual} at {files.url}/{path}; expected {sha256}, as registered; it "
            f"was not run; find out who writes to the store, then {remedy}"
        )
    return data


def _path(artifact: str, digest: str) -> str:
    return safe_path(f"{_FOLDER}/{digest}/{artifact.rpartition('/')[2]}")
