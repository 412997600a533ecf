"""A store for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.snapshot.checkpoints import CheckpointStore


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))
