from __future__ import annotations

from pathlib import Path

import pytest

from statecore.catalog.job_names import read_job_names, write_job_names


def test_names_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "made" / "jobs.json"
    assert read_job_names(None) == read_job_names(path) == []
    write_job_names(path, ["a", "b"])
    assert read_job_names(path) == ["a", "b"]
    write_job_names(path, ["b"])
    assert read_job_names(path) == ["b"]
    assert [file.name for file in path.parent.iterdir()] == ["jobs.json"]


def test_a_file_of_somebody_else_costs_the_suggestions_and_no_more(tmp_path: Path, caplog) -> None:
    path = tmp_path / "jobs.json"
    path.write_text('{"jobs": 1}')
    assert read_job_names(path) == []
    assert "holds no list of names" in caplog.text


def test_a_file_that_may_not_be_read_costs_no_more_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.json"
    write_job_names(path, ["a"])

    def denied(path: Path) -> bytes:
        raise PermissionError(f"denied: {path}")

    monkeypatch.setattr(Path, "read_bytes", denied)
    assert read_job_names(path) == []
    assert "denied" in caplog.text
