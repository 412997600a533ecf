"""The driver cleans up in a thread, keeps what no manifest names yet, and stops between two requests."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from statecore.runtime.driver.housekeeping import Housekeeping, Unnamed
from statecore.snapshot import cleanup as cleanup_module
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import Manifest
from statecore.snapshot.settings import DriverSettings
from statecore.storage import LocalFileStore
from tests.support.handmade import manifest
from tests.support.waiting import wait

# Files are made older than that; a clean-up comes at once.
SETTINGS = DriverSettings(retained_checkpoints=1, clean_up_grace=timedelta(milliseconds=1))
NOTHING = Unnamed((), None)


@contextmanager
def housekeeping(store: CheckpointStore, unnamed: Unnamed = NOTHING) -> Iterator[Housekeeping]:
    running = Housekeeping(store, SETTINGS, lambda: unnamed)
    try:
        yield running
    finally:
        running.close()


def old_file(root: Path, store: CheckpointStore, path: str) -> str:
    store.files.write(path, b"1")
    os.utime(root / path, ns=(0, 0))
    return path


def committed(store: CheckpointStore, epoch: int) -> Manifest:
    made = manifest(epoch=epoch)
    store.commit(made)
    return made


def test_files_that_no_manifest_names_yet_stay_however_old_they_are(tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path))
    folder = "state/totals/000001-00000000000"
    made = committed(store, 5)
    finished = old_file(tmp_path, store, f"{folder}2/00000-merged.parquet")
    under_way = old_file(tmp_path, store, f"{folder}4/00000-being-merged.parquet")
    in_flight = [
        old_file(tmp_path, store, path)
        for path in (
            f"{folder}6/00000-x.arrow",
            "progress/000001/000001-000000000006-offsets-6",
            "_staged/1-6-alerts-00000-x.parquet",
        )
    ]
    lost = old_file(tmp_path, store, f"{folder}3/00000-lost.arrow")
    with housekeeping(store, Unnamed({finished}, (1, 4))) as running:

        def removed() -> bool:
            running.committed(made)
            return store.files.size(lost) is None

        wait(removed, "a clean-up")
    assert all(store.files.size(path) is not None for path in (finished, under_way, *in_flight))


def test_the_thread_that_commits_and_the_one_that_merges_do_not_wait_for_a_clean_up(tmp_path: Path) -> None:
    store = CheckpointStore(Slow(tmp_path))
    made = committed(store, 1)
    old_file(tmp_path, store, "artifacts/old/job.py")
    with housekeeping(store) as running:
        wait_begun(running, made)
        running.committed(committed(store, 2))
        assert store.files.size("artifacts/old/job.py") is not None
        Slow.go_on.set()


def test_closing_waits_for_one_batch_of_deletions_and_not_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup_module, "_BATCH", 2)
    store = CheckpointStore(Slow(tmp_path))
    made = committed(store, 1)
    for number in range(10):
        old_file(tmp_path, store, f"artifacts/{number}/job.py")
    running = Housekeeping(store, SETTINGS, lambda: NOTHING)
    wait_begun(running, made)
    closing = threading.Thread(target=running.close, daemon=True)
    closing.start()
    wait(lambda: running._closed, "the request to close")
    Slow.go_on.set()
    closing.join(60)
    assert not closing.is_alive()
    assert len(store.files.list("artifacts")) == 8


class Slow(LocalFileStore):
    """Its deletions wait."""

    begun = threading.Event()
    go_on = threading.Event()

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        Slow.begun.clear()
        Slow.go_on.clear()

    def delete_all(self, paths: Iterable[str]) -> None:
        Slow.begun.set()
        assert Slow.go_on.wait(60)
        super().delete_all(paths)


def wait_begun(running: Housekeeping, made: Manifest) -> None:
    def begun() -> bool:
        running.committed(made)
        return Slow.begun.is_set()

    wait(begun, "a clean-up")
