"""The stores under test; every test of the contract runs against each backend."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.storage import FileStore, LocalFileStore, open_store


@pytest.fixture(params=["local", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a fresh, empty store; add a parameter here for another backend."""
    return str(tmp_path / "root") if request.param == "local" else request.getfixturevalue("s3_url")


@pytest.fixture
def store(url: str) -> FileStore:
    return open_store(url)


@pytest.fixture
def local(tmp_path: Path) -> LocalFileStore:
    return LocalFileStore(tmp_path / "root")
