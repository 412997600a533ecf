"""The catalog on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.catalog.fixtures import catalog, clock, job, register_fixture

__all__ = ["catalog", "clock", "job", "register_fixture"]


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture
def empty_url(tmp_path: Path) -> str:
    """The URL of a new database."""
    return f"sqlite:///{tmp_path}/made/on/demand/catalog.db"
