"""A store for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.snapshot.checkpoints import CheckpointStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def store(root: Path) -> CheckpointStore:
    return CheckpointStore.at(str(root))
