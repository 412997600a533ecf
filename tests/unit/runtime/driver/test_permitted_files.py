"""A driver runs a job file only if the job may run it, whatever the job's row says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from statecore.catalog import Catalog
from statecore.errors import JobDefinitionError
from statecore.queries.job.driver import generation as query_driver
from statecore.runtime.driver.resume import resume
from statecore.snapshot.job_files import keep_job_file
from statecore.storage import open_store


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        yield opened


@pytest.mark.parametrize("checkpoint", [None, "/cp"])
@pytest.mark.parametrize("kept", [False, True])
def test_code_that_was_only_named_in_the_jobs_row_is_not_run(
    catalog: Catalog, tmp_path: Path, checkpoint: str | None, kept: bool
) -> None:
    ran, evil, store = tmp_path / "ran", tmp_path / "evil.py", str(tmp_path / "store")
    evil.write_text(f"open({str(ran)!r}, 'w')\n")
    size: dict[str, Any] = {"parallelism": 1, "max_parallelism": 1}
    catalog.jobs.register("j", artifact="/a", store=store, master_url="m", checkpoint=checkpoint, **size)
    digest = keep_job_file(open_store(store), str(evil), evil.read_bytes()) if kept else None
    job = catalog.jobs.set_desired("j", artifact=str(evil), artifact_sha256=digest)
    claimed = catalog.generations.claim("j", log_path="")
    with (
        pytest.raises(JobDefinitionError, match=f"found the job file {evil} with .*; it was not run"),
        ExitStack() as s,
    ):
        if checkpoint is None:
            resume(catalog, job, 1, tmp_path, s)
        else:
            query_driver._run(catalog, job, claimed, cast("Any", None), tmp_path, s)
    assert not ran.exists()
