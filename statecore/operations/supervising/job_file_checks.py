"""The supervisor checks job files on request, because its machine has the environment that drivers run in.

A user who may trigger an upgrade must not choose the code that runs: only files below configured folders are accepted,
and files that the job was permitted to run before, from where they were. No other file is read: the answer would say
whether it exists, and this process has credentials that the user lacks.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace

from statecore.catalog import Catalog, JobRecord, RequestRecord
from statecore.errors import CatalogError, JobDefinitionError, StatecoreError
from statecore.operations.job_file_check import check_job_file
from statecore.operations.kinds import kind_of
from statecore.snapshot.job_files import keep_job_file, read_source
from statecore.storage import open_store
from statecore.storage.urls import Place, parse_url

log = logging.getLogger(__name__)


class JobFileChecks:
    """Answers requests to check job files, each in a thread: a check takes seconds, and drivers must not wait.

    A sound file is copied into the job's store, and the job may run it; the answer has its SHA-256.

    Args:
        catalog: The requests.
        roots: Folders, as paths or URLs, that new job files may come from.

    """

    def __init__(self, catalog: Catalog, roots: Sequence[str] = ()) -> None:
        self._catalog = catalog
        self._roots = roots
        self._under_way: set[int] = set()

    def answer(self) -> None:
        """Start the checks requested since the last call."""
        for request in self._catalog.requests.to_supervisor():
            if request.id not in self._under_way:
                self._under_way.add(request.id)
                threading.Thread(target=self._answer, args=(request,), daemon=True).start()

    def _answer(self, request: RequestRecord) -> None:
        artifact = request.arguments["artifact"]
        digest, error = None, None
        try:
            try:
                digest = self._kept(artifact, self._catalog.jobs.get(request.job))
            except CatalogError:
                raise
            except StatecoreError as refusal:
                error = str(refusal)
            except Exception as failure:
                log.exception("the check of %s failed", artifact)
                cause = f"{type(failure).__name__}: {failure}"
                error = (
                    f"found that the check of {artifact} failed: {cause}; expected a result; read the supervisor's log"
                )
            result = None if digest is None else {"sha256": digest}
            self._catalog.requests.finish(request.id, result=result, error=error)
            log.info("job %r: checked %s: %s", request.job, artifact, error or f"sound, SHA-256 {digest}")
        except CatalogError:
            # A later pass answers it, once the catalog can be reached.
            log.exception("request %d to check a job file could not be answered", request.id)
        finally:
            self._under_way.discard(request.id)

    def _kept(self, artifact: str, job: JobRecord) -> str:
        """Check a job file, copy it into the job's store, and let the job run it; return its SHA-256."""
        place = _resolved(artifact)
        is_new = any(_is_below(place, _resolved(root)) for root in self._roots)
        known = [each for each in self._catalog.job_files.of(job.name) if each.artifact == artifact]
        if not is_new and not known:
            raise _foreign(artifact, self._roots)
        source = read_source(place.url)
        digest = hashlib.sha256(source).hexdigest()
        if not is_new and digest not in {each.artifact_sha256 for each in known}:
            raise _foreign(artifact, self._roots)
        _check(artifact, source, job)
        keep_job_file(open_store(job.store), artifact, source)
        self._catalog.job_files.permit(replace(job, artifact=artifact, artifact_sha256=digest))
        return digest


def _resolved(url: str) -> Place:
    """Return the place of a file or folder; of a local one, behind all links."""
    place = parse_url(url)
    return place if place.scheme == "s3" else parse_url(os.path.realpath(f"/{place.path}"))


def _is_below(place: Place, root: Place) -> bool:
    is_there = (place.scheme, place.bucket) == (root.scheme, root.bucket)
    return is_there and place.parts[: len(root.parts)] == root.parts and len(place.parts) > len(root.parts)


def _foreign(artifact: str, roots: Sequence[str]) -> JobDefinitionError:
    below = [f"it below {' or '.join(roots)}"] if roots else []
    folders = " or ".join([*below, "one that was registered for the job before, at that place"])
    return JobDefinitionError(
        f"found the job file {artifact}; expected {folders}, because an upgrade must not bring code from anywhere; "
        "register it with `statecore register`, or have the supervisor accept its folder: "
        "`statecore supervisor --job-files FOLDER`"
    )


def _check(artifact: str, source: bytes, job: JobRecord) -> None:
    unchecked = check_job_file(artifact, source, job.settings, kind_of(job).file)
    if unchecked is not None and "environment variable" not in unchecked:
        raise JobDefinitionError(
            f"found that {unchecked}; expected it where drivers run; install it on the supervisor's machine"
        )
