"""Verification: every problem, each with its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import CorruptFileError, MissingFileError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.verify import verify, verify_presence
from tests.handmade import written


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path))


@pytest.fixture
def savepoint(store: CheckpointStore) -> Manifest:
    return written(store, 3)


def flip(store: CheckpointStore, path: str) -> None:
    data = bytearray(store.files.read(path))
    data[len(data) // 2] ^= 1
    store.files.write(path, bytes(data))


def test_a_whole_savepoint_has_no_problem_and_progress_ends_at_the_last_file(
    store: CheckpointStore, savepoint: Manifest
) -> None:
    calls: list[tuple[int, int]] = []
    assert verify(store, savepoint, progress=lambda done, total: calls.append((done, total))) == []
    assert calls == [(n, 6) for n in range(1, 7)]
    verify_presence(store, savepoint)


def test_every_problem_is_returned_with_the_path_of_its_file(store: CheckpointStore, savepoint: Manifest) -> None:
    flipped, gone, short, *whole = [ref.path for ref in savepoint.files()]
    flip(store, flipped)
    store.files.delete(gone)
    store.files.write(short, store.files.read(short)[:-1])

    problems = verify(store, savepoint)

    assert [type(problem) for problem in problems] == [CorruptFileError, MissingFileError, CorruptFileError]
    for problem, path in zip(problems, (flipped, gone, short), strict=True):
        assert store.describe(path) in str(problem)
        assert not any(other in str(problem) for other in whole)


def test_presence_notices_a_missing_file_and_names_its_path_and_epoch(
    store: CheckpointStore, savepoint: Manifest
) -> None:
    path = savepoint.files()[2].path
    store.files.delete(path)
    with pytest.raises(MissingFileError) as raised:
        verify_presence(store, savepoint)
    assert store.describe(path) in str(raised.value)
    assert "epoch 7 of job orders" in str(raised.value)


def test_presence_notices_a_truncated_file(store: CheckpointStore, savepoint: Manifest) -> None:
    ref = savepoint.files()[2]
    store.files.write(ref.path, store.files.read(ref.path)[:-1])
    with pytest.raises(CorruptFileError) as raised:
        verify_presence(store, savepoint)
    assert store.describe(ref.path) in str(raised.value)
    assert f"expected {ref.size} bytes" in str(raised.value)


def test_presence_reads_no_file_so_that_its_cost_does_not_grow_with_the_state(
    store: CheckpointStore, savepoint: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: str) -> bytes:
        raise AssertionError(f"read {path}")

    monkeypatch.setattr(store.files, "read", read)
    monkeypatch.setattr(store.files, "open_input", read)
    verify_presence(store, savepoint)
