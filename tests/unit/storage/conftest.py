"""One store per backend; every test of the contract runs against each."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.storage import FileStore, LocalFileStore, open_store


@pytest.fixture(params=["local", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh, empty store is; another backend is another parameter here."""
    return str(tmp_path / "root") if request.param == "local" else request.getfixturevalue("s3_url")


@pytest.fixture
def store(url: str) -> FileStore:
    return open_store(url)


@pytest.fixture
def local(tmp_path: Path) -> LocalFileStore:
    return LocalFileStore(tmp_path / "root")
