"""Runs ``build(job)`` of a job file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark import cloudpickle

from statecore.errors import JobDefinitionError
from statecore.runtime.job.builder import Job
from statecore.snapshot.job_files import read_job_file, read_source
from statecore.storage import FileStore
from statecore.user_files import JOB_MODULE, load_user_file


def fetch_artifact(artifact: str, sha256: str | None, files: FileStore, directory: Path) -> Path:
    """Copy a job file into ``directory``, and return the path of the copy: later edits do not matter.

    With the SHA-256 that it was registered with, it is the copy in the job's store, and no other bytes are accepted.

    Raises:
        JobDefinitionError: The file does not exist, or is not the registered one.
        StorageError: Its store cannot be reached.

    """
    data = read_source(artifact) if sha256 is None else read_job_file(files, artifact, sha256)
    copy = directory / artifact.rpartition("/")[2]
    copy.write_bytes(data)
    return copy


def load_job(artifact: str | Path, settings: Mapping[str, str]) -> Job:
    """Run ``build(job)`` of a job file and return the job.

    Functions are shipped to the workers by value, because workers cannot import a job file.

    Args:
        artifact: The job file.
        settings: The job's settings as registered.

    Raises:
        JobDefinitionError: The file does not exist, has no ``build``, or describes a job that cannot run.

    """
    path = Path(artifact)
    if not path.is_file():
        raise JobDefinitionError(
            f"found no job file {path}; expected a Python file that defines build(job); register the job again"
        )
    module = load_user_file(path, JOB_MODULE)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    build = getattr(module, "build", None)
    if not callable(build):
        raise JobDefinitionError(f"found no build(job) in {path}; expected one; define it")
    return described(build, settings)


def described(build: Callable[[Job], object], settings: Mapping[str, str]) -> Job:
    """Return the job that ``build(job)`` describes.

    Raises:
        JobDefinitionError: The job cannot run.

    """
    job = Job(settings)
    build(job)
    return job.validated()
