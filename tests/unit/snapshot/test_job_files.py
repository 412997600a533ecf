"""A driver runs the bytes that were registered, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import JobDefinitionError, MissingFileError
from statecore.runtime.job import fetch_artifact
from statecore.snapshot.job_files import keep_job_file
from statecore.storage import open_store


def test_later_edits_of_the_file_do_not_reach_a_driver(tmp_path: Path) -> None:
    path, files = tmp_path / "orders.py", open_store(str(tmp_path / "store"))
    path.write_text("old")
    digest = keep_job_file(files, str(path), path.read_bytes())
    path.unlink()
    assert fetch_artifact(str(path), digest, files, tmp_path).read_text() == "old"


def test_another_file_at_its_place_is_refused_and_both_digests_are_named(tmp_path: Path) -> None:
    files = open_store(str(tmp_path / "store"))
    digest = keep_job_file(files, "/jobs/orders.py", b"old")
    (copy,) = files.list("job-files")
    files.write(copy.path, b"evil")
    with pytest.raises(
        JobDefinitionError, match=rf"SHA-256 [0-9a-f]{{64}} at .*; expected {digest}, as registered; it was"
    ):
        fetch_artifact("/jobs/orders.py", digest, files, tmp_path)
    files.delete(copy.path)
    with pytest.raises(MissingFileError, match=r"found no .*job-files.*look whether the store is there"):
        fetch_artifact("/jobs/orders.py", digest, files, tmp_path)
    assert not (tmp_path / "orders.py").exists()
