"""What a clean-up removes: what nobody needs; what anybody needs stays."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from statecore.errors import ManifestError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import Claim, claimed
from statecore.snapshot.cleanup import CleanUp, Removed
from statecore.snapshot.manifest import (
    SubtaskState,
)
from statecore.storage import FileEntry, LocalFileStore
from tests.support.handmade import operator
from tests.unit.snapshot.cleaning import (
    BEFORE,
    OLD,
    YOUNG,
    age,
    assert_whole,
    changelog,
    checkpoint,
    clean,
    copied,
    keyed,
    listing,
    named_by,
    ref,
)


def test_of_old_checkpoints_nothing_is_left_but_what_newer_ones_share_with_them(
    store: CheckpointStore, root: Path
) -> None:
    first = checkpoint(store, 1)
    second = checkpoint(store, 2, keyed(first))
    third = checkpoint(store, 3)
    fourth = checkpoint(store, 4, keyed(third))
    age(root, OLD)
    gone = (named_by(first) | named_by(second)) - (named_by(third) | named_by(fourth))
    size = sum((root / path).stat().st_size for path in gone)

    assert clean(store, retained=2) == Removed(files=len(gone), bytes=size, manifests=2)
    assert store.committed() == [(1, 3), (1, 4)]
    assert listing(root) == named_by(third) | named_by(fourth) | {e.path for e in store.checkpoints()}
    assert clean(store, retained=2) == Removed(files=0, bytes=0, manifests=0)


def test_the_newest_checkpoints_are_those_of_the_newest_lineage(store: CheckpointStore, root: Path) -> None:
    for lineage, epoch in [(1, 8), (1, 90), (2, 7), (2, 8)]:
        checkpoint(store, epoch, lineage=lineage)
    age(root, OLD)
    clean(store, retained=2)
    assert store.committed() == [(2, 7), (2, 8)]
    assert_whole(store)


def test_files_of_attempts_that_were_never_committed_go(store: CheckpointStore, root: Path) -> None:
    made = checkpoint(store, 3)
    lost = [
        "state/totals/000001-000000000003/00000-lost-total.arrow",
        "state/totals/rewritten-never-finished/00000-x-total.parquet",
        "state/gone/000001-000000000002/00000-lost-total.arrow",
        "progress/000009/000001-000000000003-offsets-3",
        "artifacts/def/job.py",
        "_staged/1-3-alerts-00000-lost.parquet",
        "conditional-puts/killed/01",
    ]
    for path in lost:
        ref(store, path)
    age(root, OLD)
    assert clean(store).files == len(lost)
    assert listing(root) == {*named_by(made), store.manifest_path(1, 3)}


@pytest.mark.parametrize(("modified_ms", "stays"), [(OLD, False), (BEFORE - 1, False), (BEFORE, True), (YOUNG, True)])
def test_nothing_that_is_young_goes(store: CheckpointStore, root: Path, modified_ms: int, stays: bool) -> None:
    first = checkpoint(store, 1)
    checkpoint(store, 2)
    lost = ref(store, "state/totals/000001-000000000001/00000-lost-total.arrow").path
    age(root, OLD)
    age(root, modified_ms, lost, store.manifest_path(1, 1))
    clean(store)
    assert (store.files.size(lost) is not None) is stays
    assert (store.find(1, 1) is not None) is stays
    # They are old, but what names them is not.
    assert all((store.files.size(path) is not None) is stays for path in named_by(first) - {"artifacts/abc/job.py"})
    assert_whole(store)


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        ("state/totals/000002-000000000006/00000-x-total.arrow", True),
        ("state/totals/000003-000000000001/00000-x-total.arrow", True),
        ("_staged/2-6-alerts-00000-x.parquet", True),
        ("_staged/10-1-alerts-00000-x.parquet", True),
        ("progress/000004/000002-000000000006-offsets-6", True),
        ("progress/000004/000003-000000000001-metadata", True),
        ("progress/000004/000002-000000000005-offsets-5", False),
        ("progress/000004/000001-000000000099-commits-98", False),
        ("state/totals/000002-000000000005/00000-x-total.arrow", False),
        ("state/totals/000001-000000000099/00000-x-total.arrow", False),
        ("_staged/2-5-alerts-00000-x.parquet", False),
        ("_staged/1-99-alerts-00000-x.parquet", False),
    ],
)
def test_what_belongs_to_an_epoch_after_the_newest_stays_however_old_it_is(
    store: CheckpointStore, root: Path, path: str, stays: bool
) -> None:
    """The epoch in flight may take longer than anybody thought, and another driver may be ahead of this one."""
    checkpoint(store, 5, lineage=2)
    ref(store, path)
    age(root, OLD)
    clean(store)
    assert (store.files.size(path) is not None) is stays


def test_a_driver_that_woke_up_late_removes_nothing_of_its_successor(store: CheckpointStore, root: Path) -> None:
    for epoch in range(1, 8):
        checkpoint(store, epoch)
    in_flight = changelog(store, 8).file.path
    age(root, OLD)
    clean(store, newest=(1, 2), retained=3)
    assert store.committed() == [(1, 5), (1, 6), (1, 7)]
    assert store.files.size(in_flight) is not None
    assert_whole(store)


def test_a_savepoint_keeps_its_files_for_as_long_as_it_is_there(store: CheckpointStore, root: Path) -> None:
    first = checkpoint(store, 1)
    path = store.write_savepoint(first, "sp", reason="", now_ms=0)
    checkpoint(store, 2)
    age(root, OLD)
    clean(store)
    assert store.committed() == [(1, 2)]
    assert all(store.read_file(each) for each in store.manifest(path).files())
    # What is staged is the job's to publish.
    assert store.files.size("_staged/1-1-alerts-00000-t.parquet") is None

    store.files.delete(path)
    clean(store)
    assert store.files.list("savepoints") == []
    assert store.files.size(keyed(first)[0].file.path) is None


def test_a_self_contained_savepoint_in_the_store_is_left_alone_and_keeps_nothing_of_the_jobs(
    store: CheckpointStore, root: Path
) -> None:
    first = checkpoint(store, 1)
    folder = copied(store, first, "copy")
    checkpoint(store, 2)
    age(root, OLD)
    before = {path for path in listing(root) if path.startswith(folder)}
    clean(store)
    assert {path for path in listing(root) if path.startswith(folder)} == before
    assert store.files.size(keyed(first)[0].file.path) is None
    assert_whole(store)


def test_a_checkpoint_that_somebody_reads_stays_with_its_files_until_they_are_done(
    store: CheckpointStore, root: Path
) -> None:
    checkpoint(store, 1)
    first, second = store.manifest_path(1, 1), store.manifest_path(1, 2)
    for epoch in (2, 3):
        checkpoint(store, epoch)
    age(root, OLD)
    with claimed(store.files, second, "a copy"):
        clean(store)
        assert store.committed() == [(1, 2), (1, 3)]
        assert_whole(store)
    assert store.files.size(first) is None
    clean(store)
    assert store.committed() == [(1, 3)]


def test_files_of_a_rewrite_that_takes_longer_than_the_grace_period_stay_while_it_claims_its_savepoint(
    store: CheckpointStore, root: Path
) -> None:
    path = store.write_savepoint(checkpoint(store, 1), "sp", reason="", now_ms=0)
    rewritten = ref(store, "state/totals/rewritten-sp2/00000-x-total.parquet").path
    lost = ref(store, "state/totals/000001-000000000001/00000-lost-total.arrow").path
    age(root, OLD)
    with claimed(store.files, path, "the rewrite sp2"):
        clean(store)
        assert (store.files.size(rewritten) is None, store.files.size(lost)) == (False, None)
    clean(store)
    assert store.files.size(rewritten) is None


def test_files_of_a_rewrite_that_ends_during_a_clean_up_stay(
    store: CheckpointStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = checkpoint(store, 1)
    path = store.write_savepoint(made, "sp", reason="", now_ms=0)
    rewritten = ref(store, "state/totals/rewritten-sp2/00000-x-total.parquet")
    age(root, OLD)
    claim, list_files = ExitStack(), LocalFileStore.list
    claim.enter_context(claimed(store.files, path, "the rewrite sp2"))

    def ends_after_the_listing(files: Any, prefix: str, **options: Any) -> list[FileEntry]:
        found = list_files(files, prefix, **options)
        if prefix == "savepoints":
            claim.close()
            file = msgspec.structs.replace(keyed(made)[0], file=rewritten)
            done = msgspec.structs.replace(made, operators=(operator([SubtaskState(keyed=(file,))]),))
            monkeypatch.setattr(LocalFileStore, "list", list_files)
            store.write_savepoint(done, "sp2", reason="", now_ms=0)
        return found

    monkeypatch.setattr(LocalFileStore, "list", ends_after_the_listing)
    clean(store, newest=(1, 1))
    assert len(store.savepoints()) == 2
    assert_whole(store)


def test_what_the_caller_needs_stays(store: CheckpointStore, root: Path) -> None:
    checkpoint(store, 1)
    merged, other = (ref(store, f"state/totals/000001-000000000001/00000-{name}.arrow").path for name in "ab")
    age(root, OLD)
    clean(store, keep=[merged])
    assert (store.files.size(merged), store.files.size(other)) == (len(f"content of {merged}"), None)


OTHERS = [
    "out/epoch=1-1/part-0.parquet",
    "out/_staged/1-1-alerts-00000-x.parquet",
    "out/state/totals/000001-000000000001/x.arrow",
    "_published/alerts/1-1",
    "savepoints/notes.txt",
    "savepoints/unfinished/state/totals/000001-000000000001/x.arrow",
    "README.md",
    "states/totals/000001-000000000001/x.arrow",
    "_staged2/1-1-x.parquet",
    "models/artifacts/x",
]


def test_files_of_other_folders_are_never_touched(store: CheckpointStore, root: Path) -> None:
    for epoch in (1, 2):
        checkpoint(store, epoch)
    for path in OTHERS:
        ref(store, path)
    age(root, OLD)
    clean(store)
    assert listing(root) >= set(OTHERS)


def test_a_claim_that_has_expired_goes_and_one_in_force_stays(store: CheckpointStore, root: Path) -> None:
    checkpoint(store, 1)
    for name, expires_ms in (("expired", 1), ("in-force", 2**60)):
        claim = Claim(manifest="manifests/x.json", holder="a copy", expires_ms=expires_ms)
        store.files.write(f"claims/{name}.json", msgspec.json.encode(claim))
    age(root, OLD)
    clean(store)
    assert [entry.path for entry in store.files.list("claims")] == ["claims/in-force.json"]


@pytest.mark.parametrize(
    "path",
    [
        "manifests/000001-000000000001.json",
        "manifests/000001-000000000003.json",
        "manifests/notes.txt",
        "savepoints/sp/manifest.json",
        "savepoints/theirs/manifest.json",
        "claims/x.json",
    ],
    ids=["of a checkpoint to go", "of one to stay", "a stranger", "of a savepoint", "of another program", "a claim"],
)
@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"format":"statecore.manifest","version":99}'], ids=str)
def test_when_a_manifest_or_a_claim_cannot_be_read_nothing_is_removed(
    store: CheckpointStore, root: Path, path: str, data: bytes
) -> None:
    first = checkpoint(store, 1)
    store.write_savepoint(first, "sp", reason="", now_ms=0)
    checkpoint(store, 2)
    checkpoint(store, 3)
    store.files.write(path, data)
    age(root, OLD)
    before = listing(root)
    with pytest.raises(ManifestError, match=path.rsplit("/", 1)[-1]):
        clean(store, newest=(1, 3))
    assert listing(root) == before


def test_a_manifest_whose_bytes_were_changed_counts_as_unreadable(store: CheckpointStore, root: Path) -> None:
    checkpoint(store, 1)
    checkpoint(store, 2)
    path = store.manifest_path(1, 2)
    store.files.write(path, store.files.read(path).replace(b"t1e2-total", b"t1e3-total"))
    age(root, OLD)
    before = listing(root)
    with pytest.raises(ManifestError):
        clean(store)
    assert listing(root) == before


def test_of_young_checkpoints_the_newest_stay_and_the_first_of_each_minute_and_lineage(
    store: CheckpointStore, root: Path
) -> None:
    minutes = {(1, 1): 0, (1, 2): 0.5, (1, 3): 1, (1, 4): 1.2, (1, 5): 1.4, (2, 5): 1.6, (2, 6): 1.8, (2, 7): 2.9}
    for (lineage, epoch), minute in minutes.items():
        checkpoint(store, epoch, lineage=lineage)
        age(root, int((100 + minute) * 60_000), store.manifest_path(lineage, epoch))
    with claimed(store.files, store.manifest_path(1, 4), "a copy"):
        removed = CleanUp(store, retained=2).thin_out(before_ms=100 * 60_000 - 1)
    assert removed == 2
    assert store.committed() == [(1, 1), (1, 3), (1, 4), (2, 5), (2, 6), (2, 7)]
    assert CleanUp(store, retained=2).thin_out(before_ms=100 * 60_000 + 1) == 2
    assert store.committed() == [(1, 3), (2, 5), (2, 6), (2, 7)]


def test_files_of_a_checkpoint_that_was_thinned_out_stay_until_they_are_old(store: CheckpointStore, root: Path) -> None:
    made = [checkpoint(store, epoch) for epoch in (1, 2, 3)]
    age(root, YOUNG)
    clean_ups = CleanUp(store, retained=1)
    assert clean_ups.run(newest=(1, 3), before_ms=BEFORE) == Removed(manifests=1)
    assert store.committed() == [(1, 1), (1, 3)]
    assert listing(root) >= named_by(made[1])
    clean_ups.run(newest=(1, 3), before_ms=YOUNG + 1)
    assert not listing(root) & (named_by(made[1]) - named_by(made[2]))


def test_what_killed_writers_leave_behind_goes_temporary_files_and_empty_folders(
    store: CheckpointStore, root: Path
) -> None:
    checkpoint(store, 1)
    for folder in ("state/totals/000001-000000000001", "state/gone/000001-000000000000", "progress/000001", "claims"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / ".tmp-0123").write_bytes(b"half")
    (root / "state/totals/000001-000000000000").mkdir()
    (root / "others").mkdir()
    (root / "others/.tmp-0123").write_bytes(b"not ours")
    for _ in range(3):
        for path in root.rglob("*"):
            os.utime(path, ns=(OLD * 1_000_000, OLD * 1_000_000))
        checkpoint(store, store.committed()[-1][1] + 1)
        clean(store)
    assert [path.relative_to(root).as_posix() for path in root.rglob(".tmp-*")] == ["others/.tmp-0123"]
    folders = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()}
    assert "state/gone" not in folders
    assert not [path for path in folders if path.startswith("state/totals/") and not [*(root / path).iterdir()]]
    assert_whole(store)
