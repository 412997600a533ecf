"""A clean-up that is cut off, and one that others get in the way of."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import (
    Manifest,
)
from statecore.storage import FileEntry, LocalFileStore
from tests.unit.snapshot.cleaning import (
    OLD,
    age,
    assert_whole,
    checkpoint,
    clean,
    keyed,
    listing,
    ref,
)


class CutOffError(Exception):
    """Stands for a kill."""


def cut_off_before(deletion: int) -> Callable[[], None]:
    left = [deletion]

    def on_delete() -> None:
        if not left[0]:
            raise CutOffError
        left[0] -= 1

    return on_delete


def with_garbage(store: CheckpointStore, root: Path) -> int:
    """Fill a store so that a clean-up deletes so many things."""
    made = checkpoint(store, 1)
    for epoch in (2, 3, 4):
        made = checkpoint(store, epoch, keyed(made)[-1:])
    store.write_savepoint(made, "sp", reason="", now_ms=0)
    ref(store, "state/totals/000001-000000000001/00000-lost-total.arrow")
    age(root, OLD)
    deletions: list[None] = []
    with pytest.raises(CutOffError):
        clean(store, on_delete=cut_off_before(0))
    before = {path: (root / path).read_bytes() for path in listing(root)}
    clean(store, on_delete=lambda: deletions.append(None))
    for path, data in before.items():
        store.files.write(path, data)
    age(root, OLD)
    return len(deletions)


def test_cut_off_anywhere_and_done_again_it_ends_the_same_and_never_leaves_a_manifest_that_lacks_a_file(
    store: CheckpointStore, root: Path
) -> None:
    deletions = with_garbage(store, root)
    before = {path: (root / path).read_bytes() for path in listing(root)}
    ends = []
    for cut in range(deletions + 1):
        for path, data in before.items():
            store.files.write(path, data)
        age(root, OLD)
        if cut < deletions:
            with pytest.raises(CutOffError):
                clean(store, on_delete=cut_off_before(cut))
            assert len(listing(root)) == len(before) - cut
            assert_whole(store)
        clean(store)
        assert_whole(store)
        ends.append(listing(root))
    assert all(end == ends[0] for end in ends)
    assert len(before) - len(ends[0]) == deletions


def test_two_that_get_in_each_others_way_end_as_one(store: CheckpointStore, root: Path) -> None:
    deletions = with_garbage(store, root)
    before = {path: (root / path).read_bytes() for path in listing(root)}
    clean(store)
    end = listing(root)
    for at in range(deletions):
        for path, data in before.items():
            store.files.write(path, data)
        age(root, OLD)
        count = [0]

        def second(count: list[int] = count, at: int = at) -> None:
            if count[0] == at:
                clean(store)
                assert_whole(store)
            count[0] += 1

        clean(store, on_delete=second)
        assert listing(root) == end
        assert_whole(store)


def test_two_at_the_same_time_end_as_one(store: CheckpointStore, root: Path) -> None:
    with_garbage(store, root)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            clean(CheckpointStore.at(str(root)))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert_whole(store)
    assert clean(store).files == 0


def test_a_manifest_that_another_one_removes_while_it_is_read_is_no_error(
    store: CheckpointStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(store, 3)
    age(root, OLD)
    listed = store.files.list("manifests")
    gone = [msgspec.structs.replace(listed[0], path=store.manifest_path(1, epoch)) for epoch in (1, 2)]
    list_files = LocalFileStore.list

    def still_listed(files: Any, prefix: str) -> list[FileEntry]:
        return [*gone, *listed] if prefix == "manifests" else list_files(files, prefix)

    monkeypatch.setattr(LocalFileStore, "list", still_listed)
    assert clean(store).files == 0
    assert store.find(1, 3) is not None


def test_an_epoch_committed_while_it_is_cleaned_up_has_all_its_files(store: CheckpointStore, root: Path) -> None:
    """It names files of the epoch before, which are old, and its own, which are young."""
    made = checkpoint(store, 1)
    for epoch in (2, 3):
        made = checkpoint(store, epoch, keyed(made))
    age(root, OLD)
    committed: list[Manifest] = []

    def commit() -> None:
        before = committed[-1] if committed else made
        committed.append(checkpoint(store, before.epoch + 1, keyed(before)))

    # It does not know of them: what it keeps was asked for before.
    clean(store, newest=(1, 3), on_delete=commit)
    assert committed
    assert_whole(store)
