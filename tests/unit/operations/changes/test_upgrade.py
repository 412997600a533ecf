"""The answer to an upgrade's request is no permission: a login that may answer requests must not choose the code."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import JobDefinitionError
from statecore.operations.changes import Change
from statecore.operations.changes.copying import TryQuery
from statecore.operations.changes.upgrade import ReplaceArtifact
from statecore.snapshot.job_files import keep_job_file
from statecore.storage import open_store

JOB, RUN, NEW = "totals", "upgrade:1", "/releases/totals.py"


@pytest.fixture
def change(catalog_url: str, tmp_path: Path) -> Iterator[Change]:
    with Catalog(catalog_url) as catalog:
        catalog.jobs.register(
            JOB, artifact="/q.py", store=str(tmp_path / "store"), master_url="local", parallelism=1, max_parallelism=1,
            checkpoint=str(tmp_path / "checkpoint"),
        )  # fmt: skip
        catalog.leases.acquire(JOB, RUN, 60_000)
        catalog.runs.start(RUN, JOB, from_parallelism=1, to_parallelism=1)
        catalog.runs.update(RUN, savepoint="/sp")
        yield Change(catalog, JOB, RUN, 60_000, logging.getLogger(__name__))


def test_a_forged_answer_does_not_change_the_job_file(change: Change) -> None:
    catalog = change.catalog
    asked = catalog.requests.send(JOB, "check_job_file", {"artifact": NEW}, f"{RUN}/check_job_file")
    catalog.requests.finish(asked.id, result={"sha256": "e" * 64})
    with pytest.raises(JobDefinitionError, match=f"found the job file {NEW} with the SHA-256 eeee.*it was not run"):
        ReplaceArtifact(change=change, artifact=NEW).finish()
    assert catalog.jobs.get(JOB).artifact == "/q.py"


def test_a_query_file_is_not_tried_before_the_job_may_run_it(change: Change, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    digest = keep_job_file(open_store(store), NEW, b"raise SystemExit('it ran')")
    forged = change.catalog.jobs.set_desired(JOB, artifact=NEW, artifact_sha256=digest)
    with pytest.raises(JobDefinitionError, match="it was not run"):
        TryQuery(forged, str(tmp_path / "checkpoint")).run(1.0, change)
