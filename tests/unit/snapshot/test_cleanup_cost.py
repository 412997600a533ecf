"""What a clean-up reads, lists and deletes at a time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from statecore.snapshot import cleanup as cleanup_module
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.cleanup import CleanUp, Removed
from statecore.snapshot.manifest import (
    Manifest,
)
from statecore.snapshot.savepoints import drop_savepoint
from statecore.storage import FileEntry, LocalFileStore
from tests.unit.snapshot.cleaning import (
    BEFORE,
    OLD,
    YOUNG,
    age,
    assert_whole,
    checkpoint,
    keyed,
    listing,
    ref,
)


class Watched(LocalFileStore):
    """Notes what is read, listed and deleted.

    Attributes:
        reads, listed: Paths of files, and of folders.
        batches: Sizes of the batches of deletions.

    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []
        self.listed: list[str] = []
        self.batches: list[int] = []

    def read(self, path: str) -> bytes:
        self.reads.append(path)
        return super().read(path)

    def list(self, prefix: str, *, after: str = "") -> list[FileEntry]:
        self.listed.append(prefix)
        return super().list(prefix, after=after)

    def delete_all(self, paths: Iterable[str]) -> None:
        found = [*paths]
        self.batches.append(len(found))
        super().delete_all(found)


@pytest.fixture
def files(root: Path) -> Watched:
    return Watched(root)


def test_a_second_clean_up_reads_only_the_manifests_that_are_new_and_not_its_own(
    store: CheckpointStore, files: Watched
) -> None:
    watched = CheckpointStore(files)
    made = [checkpoint(store, epoch) for epoch in range(1, 6)]
    store.write_savepoint(made[2], "sp", reason="", now_ms=0)
    first = {entry.path for entry in [*store.checkpoints(), *store.savepoint_entries()]}
    clean_ups = CleanUp(watched, retained=20)
    clean_ups.run(newest=(1, 5), before_ms=OLD)
    assert sorted(files.reads) == sorted(first)

    files.reads.clear()
    for epoch in (6, 7):
        clean_ups.committed(checkpoint(watched, epoch))
    new = checkpoint(store, 8)
    store.write_savepoint(new, "sp2", reason="", now_ms=0)
    for _ in range(2):
        clean_ups.thin_out(before_ms=OLD)
        clean_ups.run(newest=(1, 8), before_ms=OLD)
    assert sorted(files.reads) == [store.manifest_path(1, 8), store.savepoint_path("sp2")]
    assert_whole(store)


def test_a_savepoint_taken_again_under_the_same_name_is_read_again(
    store: CheckpointStore, root: Path, files: Watched
) -> None:
    clean_ups = CleanUp(CheckpointStore(files), retained=1)
    first, second = checkpoint(store, 1), checkpoint(store, 2)
    path = store.write_savepoint(first, "sp", reason="", now_ms=0)
    age(root, OLD)
    clean_ups.run(newest=(1, 2), before_ms=BEFORE)
    drop_savepoint(store, path)
    store.write_savepoint(second, "sp", reason="", now_ms=0)
    checkpoint(store, 3)
    age(root, OLD)
    age(root, OLD + 1, path)
    clean_ups.run(newest=(1, 3), before_ms=BEFORE)
    assert store.committed() == [(1, 3)]
    assert_whole(store)


def test_folders_of_epochs_that_are_too_young_are_not_even_listed(
    store: CheckpointStore, root: Path, files: Watched
) -> None:
    made: Manifest | None = None
    for epoch in range(1, 7):
        made = checkpoint(store, epoch, () if made is None else keyed(made))
    age(root, OLD)
    age(root, YOUNG, *(store.manifest_path(1, epoch) for epoch in (4, 5, 6)))
    CleanUp(CheckpointStore(files), retained=1).run(newest=(1, 6), before_ms=BEFORE)
    assert [path for path in files.listed if path.startswith("state")] == [
        f"state/totals/000001-{epoch:012d}" for epoch in (1, 2, 3, 4)
    ]


def test_deletions_come_in_batches_and_a_clean_up_stops_between_two(
    store: CheckpointStore, root: Path, files: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup_module, "_BATCH", 3)
    for number in range(10):
        ref(store, f"state/totals/000001-{number % 2:012d}/lost-{number}")
    checkpoint(store, 1)
    age(root, OLD)
    stopping = CleanUp(CheckpointStore(files), retained=1, stopped=lambda: len(files.batches) == 2)
    assert stopping.run(newest=(1, 1), before_ms=BEFORE).files == 6
    assert files.batches == [3, 3]
    assert_whole(store)
    assert CleanUp(CheckpointStore(files), retained=1).run(newest=(1, 1), before_ms=BEFORE).files == 4


def test_a_clean_up_that_is_stopped_while_it_reads_removes_nothing(store: CheckpointStore, root: Path) -> None:
    for epoch in range(1, 5):
        checkpoint(store, epoch)
    age(root, OLD)
    before, asked = listing(root), [0]

    def stopped() -> bool:
        asked[0] += 1
        return asked[0] > 2

    clean_up = CleanUp(store, retained=1, stopped=stopped)
    assert clean_up.run(newest=(1, 4), before_ms=BEFORE) == Removed()
    assert clean_up.thin_out(before_ms=BEFORE) == 0
    assert listing(root) == before
