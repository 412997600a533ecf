"""Dropping a savepoint frees what it alone names, and nothing that anybody needs."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from statecore.errors import ConfigurationError, ManifestError, MissingFileError, SavepointInUseError
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.claims import claimed
from statecore.snapshot.manifest import Artifact, Manifest, ProgressFile, SavepointInfo, encode_manifest
from statecore.snapshot.savepoints import drop_savepoint
from statecore.storage import FileStore
from tests.support.handmade import written


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


@pytest.fixture
def made(store: CheckpointStore) -> Manifest:
    """State of two subtasks, with a job file and Spark's bookkeeping."""
    progress = ProgressFile(name="offsets/7", file=store.write_file("progress/000001/spark/offsets/7", b"v1"))
    artifact = Artifact(name="job.py", file=store.write_file("artifacts/abc/job.py", b"def build(job): ..."))
    return written(store, 2, artifact=artifact, progress=(progress,))


def pinned(store: CheckpointStore, made: Manifest, name: str = "sp") -> str:
    return store.write_savepoint(made, name, reason="", now_ms=0)


def self_contained(source: CheckpointStore, made: Manifest, folder: Path) -> CheckpointStore:
    """Copy a savepoint as ``copy_savepoint`` does."""
    copy = CheckpointStore.at(str(folder))
    for ref in made.files():
        copy.write_file(ref.path, source.read_file(ref))
    info = SavepointInfo(name=folder.name, reason="", created_ms=0)
    copy.files.write("manifest.json", encode_manifest(msgspec.structs.replace(made, root=".", savepoint=info)))
    return copy


def everything(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def size_of(made: Manifest) -> int:
    return sum(ref.size for ref in made.files())


def freed_by_reference(made: Manifest) -> int:
    assert made.artifact is not None
    return size_of(made) - made.artifact.file.size


def test_of_a_savepoint_that_shares_no_file_only_the_job_file_is_left_for_drivers_that_are_starting(
    store: CheckpointStore, made: Manifest, tmp_path: Path
) -> None:
    path = pinned(store, made)
    assert drop_savepoint(store, path) == freed_by_reference(made)
    assert everything(tmp_path / "store") == {"artifacts/abc/job.py"}


def test_what_a_checkpoint_or_another_savepoint_names_stays(store: CheckpointStore, made: Manifest) -> None:
    first, second = made.operators[0].subtasks
    alone = msgspec.structs.replace(made.operators[0], subtasks=(first, msgspec.structs.replace(second, keyed=())))
    path = pinned(store, made)
    other = pinned(store, msgspec.structs.replace(made, operators=(alone,)), "other")
    checkpoint = store.commit(msgspec.structs.replace(made, operators=(alone,)))
    (only,) = (item.file for item in second.keyed)

    assert drop_savepoint(store, path) == only.size
    assert store.files.size(only.path) is None
    for kept in (other, checkpoint):
        assert all(store.read_file(ref) for ref in store.manifest(kept).files())
    assert drop_savepoint(store, other) == 0
    assert all(store.read_file(ref) for ref in store.manifest(checkpoint).files())


def test_rows_that_are_staged_for_a_sink_are_not_the_savepoints(store: CheckpointStore, made: Manifest) -> None:
    store.files.write("_staged/1-7-alerts-00000-t0.parquet", b"rows")
    store.files.write("out/part.parquet", b"published")
    drop_savepoint(store, pinned(store, made))
    assert store.files.size("_staged/1-7-alerts-00000-t0.parquet") == 4
    assert store.files.size("out/part.parquet") == 9


def test_a_self_contained_savepoint_frees_its_folder_and_leaves_what_others_put_there(
    store: CheckpointStore, made: Manifest, tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    copy = self_contained(store, made, folder)
    (folder / "notes.txt").write_text("ours")
    assert drop_savepoint(*open_savepoint(folder)[:2]) == size_of(made)
    assert everything(folder) == {"notes.txt"}
    assert copy.files.size("manifest.json") is None
    assert all(store.read_file(ref) for ref in made.files())


def test_a_self_contained_one_inside_the_store_of_its_job_takes_no_file_of_the_job_along(
    store: CheckpointStore, made: Manifest, tmp_path: Path
) -> None:
    """Both have files of the same paths, each from its own root."""
    store.commit(made)
    self_contained(store, made, tmp_path / "store/savepoints/copy")
    assert drop_savepoint(store, "savepoints/copy/manifest.json") == size_of(made)
    assert everything(tmp_path / "store/savepoints") == set()
    assert all(store.read_file(ref) for ref in made.files())


def test_while_somebody_reads_it_it_is_not_dropped_and_they_are_named(
    store: CheckpointStore, made: Manifest, tmp_path: Path
) -> None:
    path = pinned(store, made)
    before = everything(tmp_path / "store")
    with (
        claimed(store.files, path, "the rewrite of tuesday"),
        claimed(store.files, path, "a copy to /backup"),
        pytest.raises(
            SavepointInUseError, match=r"savepoints/sp/manifest\.json in use by a copy to /backup, the rewrite"
        ),
    ):
        drop_savepoint(store, path)
    assert everything(tmp_path / "store") == before
    drop_savepoint(store, path)


def test_a_claim_on_a_self_contained_one_keeps_it_however_it_is_named(
    store: CheckpointStore, made: Manifest, tmp_path: Path
) -> None:
    folder = tmp_path / "store/savepoints/copy"
    self_contained(store, made, folder)
    copy, path, _ = open_savepoint(folder)
    with claimed(copy.files, path, "job orders"):
        for at, named in [(copy, path), (store, "savepoints/copy/manifest.json")]:
            with pytest.raises(SavepointInUseError, match="job orders"):
                drop_savepoint(at, named)
    assert all(copy.read_file(ref) for ref in copy.manifest(path).files())


def test_a_claim_on_another_savepoint_is_in_nobodys_way(store: CheckpointStore, made: Manifest) -> None:
    path, other = pinned(store, made), pinned(store, made, "other")
    with claimed(store.files, other, "a copy"):
        assert drop_savepoint(store, path) == 0
    assert store.savepoints() == [other]


def test_who_claims_it_while_it_is_being_dropped_keeps_it(
    store: CheckpointStore, made: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pinned(store, made)
    data = store.files.read(path)
    delete = type(store.files).delete
    with ExitStack() as reader, monkeypatch.context() as patch:

        def claims_first(files: FileStore, deleted: str) -> None:
            if deleted == path:
                reader.enter_context(claimed(store.files, path, "a copy that began just now"))
            delete(files, deleted)

        patch.setattr(type(store.files), "delete", claims_first)
        with pytest.raises(SavepointInUseError, match="a copy that began just now"):
            drop_savepoint(store, path)
    assert store.files.read(path) == data
    assert all(store.read_file(ref) for ref in made.files())


def test_a_checkpoint_is_refused(store: CheckpointStore, made: Manifest) -> None:
    path = store.commit(made)
    with pytest.raises(
        ConfigurationError, match=r"found a checkpoint at .*000007\.json; expected a savepoint; .*their job"
    ):
        drop_savepoint(store, path)
    assert store.manifest(path) == made


def test_what_is_not_there_is_refused_and_so_is_what_is_no_manifest(store: CheckpointStore, made: Manifest) -> None:
    pinned(store, made)
    with pytest.raises(MissingFileError, match="savepoints/other"):
        drop_savepoint(store, "savepoints/other/manifest.json")
    store.files.write("savepoints/sp/manifest.json", b"{}")
    with pytest.raises(ManifestError, match="savepoints/sp"):
        drop_savepoint(store, "savepoints/sp/manifest.json")
    assert all(store.read_file(ref) for ref in made.files())


def test_when_another_manifest_cannot_be_read_no_file_is_removed(store: CheckpointStore, made: Manifest) -> None:
    path = pinned(store, made)
    store.files.write("manifests/000001-000000000009.json", b"{}")
    with pytest.raises(ManifestError, match="000000000009"):
        drop_savepoint(store, path)
    assert all(store.read_file(ref) for ref in made.files())


class CutOffError(Exception):
    """Stands for a kill."""


def cut_off_after(monkeypatch: pytest.MonkeyPatch, store: CheckpointStore, deletions: int) -> None:
    delete, delete_all = type(store.files).delete, type(store.files).delete_all
    left = [deletions]

    def count() -> None:
        if not left[0]:
            raise CutOffError
        left[0] -= 1

    def counted(files: FileStore, path: str) -> None:
        count()
        delete(files, path)

    def counted_all(files: FileStore, paths: Iterable[str]) -> None:
        for path in paths:
            count()
            delete_all(files, [path])

    monkeypatch.setattr(type(store.files), "delete", counted)
    monkeypatch.setattr(type(store.files), "delete_all", counted_all)


@pytest.mark.parametrize("deletions", range(7))
def test_cut_off_anywhere_a_self_contained_one_can_be_dropped_again(
    store: CheckpointStore, made: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deletions: int
) -> None:
    folder = tmp_path / "copy"
    copy = self_contained(store, made, folder)
    assert len(made.files()) == 6
    with monkeypatch.context() as patch:
        cut_off_after(patch, copy, deletions)
        with pytest.raises(CutOffError):
            drop_savepoint(*open_savepoint(folder)[:2])
    drop_savepoint(*open_savepoint(folder)[:2])
    assert everything(folder) == set()


@pytest.mark.parametrize("deletions", range(6))
def test_cut_off_anywhere_no_savepoint_by_reference_is_left_that_lacks_a_file(
    store: CheckpointStore, made: Manifest, monkeypatch: pytest.MonkeyPatch, deletions: int
) -> None:
    path = pinned(store, made)
    with monkeypatch.context() as patch:
        cut_off_after(patch, store, deletions)
        with pytest.raises(CutOffError):
            drop_savepoint(store, path)
    if deletions == 0:
        assert all(store.read_file(ref) for ref in store.manifest(path).files())
        assert drop_savepoint(store, path) == freed_by_reference(made)
    else:
        # What is left is for the next clean-up of the job.
        with pytest.raises(MissingFileError):
            drop_savepoint(store, path)
    assert store.savepoints() == []
