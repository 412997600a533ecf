"""Checkpoints and savepoints: committed once, found again, checked when read."""

from __future__ import annotations

from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import msgspec
import pytest

from statecore.errors import (
    CommitConflictError,
    ConfigurationError,
    CorruptFileError,
    ManifestError,
    MissingFileError,
    UnsafePathError,
)
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.manifest import Manifest
from tests.support.handmade import manifest, written
from tests.support.racers import CONTEXT, racer
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


def test_a_committed_epoch_is_found_and_one_that_is_not_committed_is_none(store: CheckpointStore) -> None:
    made = manifest()
    path = store.commit(made)
    assert path == "manifests/000001-000000000007.json"
    assert store.manifest(path) == store.find(1, 7) == made
    assert store.find(1, 8) is None
    assert store.find(2, 7) is None


def test_a_newest_epoch_that_is_thinned_out_before_it_is_read_is_not_taken_for_an_empty_store(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.commit(manifest(epoch=7))
    find = CheckpointStore.find

    def thinned_out(self: CheckpointStore, lineage: int, epoch: int) -> Manifest | None:
        if epoch == 7:
            self.commit(manifest(epoch=8))
            self.files.delete(self.manifest_path(lineage, epoch))
        return find(self, lineage, epoch)

    monkeypatch.setattr(CheckpointStore, "find", thinned_out)
    newest = store.newest()
    assert newest is not None and newest.epoch == 8


def test_of_two_drivers_the_second_is_told_and_changes_nothing(store: CheckpointStore) -> None:
    store.commit(manifest(generation=1))
    with pytest.raises(CommitConflictError, match=r"epoch 7 of lineage 1 .*generation 2.*stops"):
        store.commit(manifest(generation=2))
    found = store.find(1, 7)
    assert found is not None
    assert found.generation == 1


def test_the_name_of_a_manifest_holds_lineage_and_epoch_alone() -> None:
    paths = {CheckpointStore.manifest_path(m.lineage, m.epoch) for m in (manifest(generation=g) for g in range(5))}
    assert paths == {"manifests/000001-000000000007.json"}


def _commit(url: str, generation: int, barrier: Barrier, results: Any) -> None:
    store = CheckpointStore.at(url)
    for epoch in range(10):
        barrier.wait(PATIENCE_S)
        try:
            store.commit(manifest(epoch=epoch, generation=generation))
        except CommitConflictError:
            continue
        results.put((epoch, generation))


def test_of_drivers_that_race_exactly_one_commits_each_epoch(store: CheckpointStore) -> None:
    barrier, results = CONTEXT.Barrier(2, timeout=PATIENCE_S), CONTEXT.Queue()
    drivers = [racer(_commit, store.files.url, n, barrier, results) for n in (1, 2)]
    won = [results.get(timeout=PATIENCE_S) for _ in range(10)]
    for driver in drivers:
        driver.join(30)

    assert results.empty()
    assert sorted(epoch for epoch, _ in won) == list(range(10))
    for epoch, generation in won:
        found = store.find(1, epoch)
        assert found is not None
        assert found.generation == generation


def test_the_newest_epoch_is_the_newest_of_the_newest_lineage(store: CheckpointStore) -> None:
    assert (store.committed(), store.newest()) == ([], None)
    for lineage, epoch in [(1, 9), (1, 10), (1, 100), (2, 9), (2, 10), (10, 3)]:
        store.commit(manifest(lineage=lineage, epoch=epoch))

    assert store.committed() == [(1, 9), (1, 10), (1, 100), (2, 9), (2, 10), (10, 3)]
    newest = store.newest()
    assert newest is not None
    assert (newest.lineage, newest.epoch) == (10, 3)


def test_a_driver_that_slept_until_its_epoch_was_cleaned_up_cannot_commit_it_again(store: CheckpointStore) -> None:
    for epoch in range(5):
        store.commit(manifest(epoch=epoch, generation=2))
    store.files.delete(CheckpointStore.manifest_path(1, 1))

    with pytest.raises(CommitConflictError, match=r"epoch 1 of lineage 1 not committed: .* epoch 4 of lineage 1"):
        store.commit(manifest(epoch=1, generation=1))
    newest = store.newest()
    assert newest is not None and (newest.epoch, newest.generation) == (4, 2)


def test_a_stranger_among_the_manifests_is_named(store: CheckpointStore) -> None:
    store.commit(manifest())
    store.files.write("manifests/notes.txt", b"")
    with pytest.raises(ManifestError, match=r"manifests/notes.txt.*expected names like.*move the file away"):
        store.newest()


def test_a_manifest_is_asked_for_below_the_root_only(store: CheckpointStore) -> None:
    with pytest.raises(UnsafePathError):
        store.manifest("../other/manifest.json")


def test_a_savepoint_pins_the_epoch_and_copies_no_state(store: CheckpointStore) -> None:
    made = written(store, 2)
    before = set(store.files.list("state"))
    path = store.write_savepoint(made, "sp-1", reason="outage", now_ms=5)

    assert path == "savepoints/sp-1/manifest.json"
    assert set(store.files.list("state")) == before
    pinned = store.manifest(path)
    assert pinned.savepoint is not None
    assert (pinned.savepoint.name, pinned.savepoint.reason, pinned.savepoint.created_ms) == ("sp-1", "outage", 5)
    assert msgspec.structs.replace(pinned, root="..", savepoint=None) == made
    assert pinned.root == "../.."


def test_writing_the_same_savepoint_again_is_no_error_and_keeps_the_first(store: CheckpointStore) -> None:
    first = store.write_savepoint(manifest(), "sp", reason="a", now_ms=1)
    data = store.files.read(first)
    assert store.write_savepoint(manifest(), "sp", reason="b", now_ms=2) == first
    assert store.files.read(first) == data


@pytest.mark.parametrize(
    "changes", [{"epoch": 8}, {"lineage": 2}, {"parallelism": 2}, {"max_parallelism": 32}], ids=str
)
def test_a_savepoint_of_that_name_but_of_another_epoch_or_parallelism_is_refused(
    store: CheckpointStore, changes: dict[str, int]
) -> None:
    path = store.write_savepoint(manifest(), "sp", reason="a", now_ms=1)
    data = store.files.read(path)
    with pytest.raises(ManifestError, match=r"savepoint 'sp' of epoch 7 .*expected .*choose another name"):
        store.write_savepoint(manifest(**changes), "sp", reason="a", now_ms=1)
    assert store.files.read(path) == data


@pytest.mark.parametrize("name", ["a/b", "./a", "a/"])
def test_a_savepoint_name_is_one_folder(store: CheckpointStore, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"without '/'"):
        store.write_savepoint(manifest(), name, reason="", now_ms=0)


@pytest.mark.parametrize("name", ["..", "../x", "/x", ""])
def test_a_savepoint_name_that_leaves_the_folder_of_savepoints_is_refused(store: CheckpointStore, name: str) -> None:
    with pytest.raises(UnsafePathError):
        store.write_savepoint(manifest(), name, reason="", now_ms=0)
    assert store.files.list("savepoints") == []


def test_a_file_is_read_as_it_was_written(store: CheckpointStore) -> None:
    ref = store.write_file("state/x", b"content")
    assert (ref.path, ref.size) == ("state/x", 7)
    assert store.read_file(ref) == b"content"


@pytest.mark.parametrize(
    "data", [b"cOntent", b"conten", b"content!", b""], ids=["flipped byte", "truncated", "longer", "empty"]
)
def test_a_file_that_changed_is_refused_with_its_path(store: CheckpointStore, data: bytes) -> None:
    ref = store.write_file("state/x", b"content")
    store.files.write("state/x", data)
    with pytest.raises(CorruptFileError) as raised:
        store.read_file(ref)
    message = str(raised.value)
    assert f"{store.files.url}/state/x" in message
    assert f"with {len(data)} bytes" in message
    assert "expected 7 bytes" in message
    assert "restore the file" in message


def test_a_file_that_is_gone_is_refused_with_its_path(store: CheckpointStore) -> None:
    ref = store.write_file("state/x", b"content")
    store.files.delete("state/x")
    with pytest.raises(MissingFileError) as raised:
        store.read_file(ref)
    assert f"{store.files.url}/state/x" in str(raised.value)


def test_a_savepoint_is_opened_by_its_folder_by_its_file_and_a_checkpoint_by_its_file(
    store: CheckpointStore, tmp_path: Path
) -> None:
    made = written(store, 2)
    checkpoint = store.commit(made)
    savepoint = store.write_savepoint(made, "sp", reason="", now_ms=0)
    root = tmp_path / "store"

    for given, expected in [
        (root / "savepoints/sp", savepoint),
        (root / savepoint, savepoint),
        (root / checkpoint, checkpoint),
        (root / "savepoints/../savepoints/sp", savepoint),
    ]:
        opened, path, manifest = open_savepoint(str(given))
        assert (opened.files.url, path) == (str(root), expected)
        assert manifest == opened.manifest(path)
        assert opened.read_file(manifest.files()[0])


def test_a_savepoint_is_opened_by_a_relative_path(
    store: CheckpointStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_savepoint(manifest(), "sp", reason="", now_ms=0)
    monkeypatch.chdir(tmp_path / "store/savepoints")
    opened, path, _ = open_savepoint("sp")
    assert (opened.files.url, path) == (str(tmp_path / "store"), "savepoints/sp/manifest.json")


def test_a_store_moved_as_a_whole_is_still_readable(store: CheckpointStore, tmp_path: Path) -> None:
    store.write_savepoint(written(store, 2), "sp", reason="", now_ms=0)
    (tmp_path / "store").rename(tmp_path / "moved")
    opened, _, manifest = open_savepoint(str(tmp_path / "moved/savepoints/sp"))
    assert all(opened.read_file(ref) for ref in manifest.files())


@pytest.mark.parametrize("path", ["nothing", "store", "store/manifests/000001-000000000007.json/below"])
def test_where_no_manifest_is_the_path_is_named(store: CheckpointStore, tmp_path: Path, path: str) -> None:
    store.commit(manifest())
    with pytest.raises(MissingFileError) as raised:
        open_savepoint(str(tmp_path / path))
    assert str(tmp_path / path) in str(raised.value)


def test_a_file_that_is_no_manifest_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ManifestError, match=r"x\.json"):
        open_savepoint(str(tmp_path / "x.json"))


def test_generations_go_up_and_only_the_newest_is_remembered(store: CheckpointStore) -> None:
    assert store.newest_generation() is None
    for generation in (1, 2, 7):
        store.claim_generation(generation)
    assert (store.newest_generation(), len(store.files.list("generations"))) == (7, 1)
    for older in (7, 3):
        with pytest.raises(CommitConflictError, match=rf"generation 7 already in .* one before {older}; .*rebuild"):
            store.claim_generation(older)
