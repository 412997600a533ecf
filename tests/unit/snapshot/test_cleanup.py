"""Clean-up: what anybody needs stays, what nobody needs goes, wherever it is cut off."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ManifestError
from statecore.model import key_group_range
from statecore.snapshot import cleanup as cleanup_module
from statecore.snapshot.checkpoints import CheckpointStore, epoch_of
from statecore.snapshot.claims import Claim, claimed
from statecore.snapshot.cleanup import CleanUp, Removed
from statecore.snapshot.compaction import Merge, Merged, carry_out, with_merged
from statecore.snapshot.manifest import (
    Artifact,
    FileKind,
    FileRef,
    KeyedFile,
    Manifest,
    ProgressFile,
    SavepointInfo,
    StagedOutput,
    SubtaskState,
    encode_manifest,
)
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.savepoints import drop_savepoint
from statecore.storage import FileEntry, LocalFileStore
from tests.support.examples import examples
from tests.support.handmade import MAX_PARALLELISM, keyed_file, manifest, operator, operator_file

# The machine may be busy; slowness proves nothing here.
ALL = (0, MAX_PARALLELISM - 1)
OLD, BEFORE, YOUNG = 1_000_000, 2_000_000, 2_000_001


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> CheckpointStore:
    return CheckpointStore.at(str(root))


def ref(store: CheckpointStore, path: str) -> FileRef:
    return store.write_file(path, f"content of {path}".encode())


def changelog(store: CheckpointStore, epoch: int, lineage: int = 1) -> KeyedFile:
    path = f"state/totals/{lineage:06d}-{epoch:012d}/00000-t{lineage}e{epoch}-total.arrow"
    return KeyedFile(
        file=ref(store, path), state="total", kind=FileKind.CHANGELOG, token=f"t{epoch}", key_groups=ALL, rows=1
    )


def checkpoint(
    store: CheckpointStore, epoch: int, before: Sequence[KeyedFile] = (), *, lineage: int = 1, **changes: Any
) -> Manifest:
    """Commit an epoch with a changelog, a staged output, Spark's bookkeeping and the job file."""
    staged = f"_staged/{lineage}-{epoch}-alerts-00000-t.parquet"
    offsets = ref(store, f"progress/000001/{lineage:06d}-{epoch:012d}-offsets-{epoch}")
    made = manifest(
        lineage=lineage,
        epoch=epoch,
        operators=(operator([SubtaskState(keyed=(*before, changelog(store, epoch, lineage)))]),),
        outputs=(StagedOutput(sink="alerts", file=ref(store, staged), rows=1),),
        progress=(ProgressFile(name=f"offsets/{epoch}", file=offsets),),
        artifact=Artifact(name="job.py", file=ref(store, "artifacts/abc/job.py")),
        **changes,
    )
    store.commit(made)
    return made


def keyed(made: Manifest) -> tuple[KeyedFile, ...]:
    return made.operators[0].subtasks[0].keyed


def age(root: Path, modified_ms: int, *paths: str) -> None:
    """Let files, or all there are, be as old as that."""
    for path in [root / path for path in paths] or [path for path in root.rglob("*") if path.is_file()]:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def listing(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def clean(
    store: CheckpointStore,
    newest: tuple[int, int] | None = None,
    retained: int = 1,
    before_ms: int = BEFORE,
    keep: Sequence[str] = (),
    on_delete: Callable[[], None] = lambda: None,
) -> Removed:
    """Clean up; ``on_delete`` is called before each file that is deleted, also within a batch."""
    newest = newest or store.committed()[-1]
    watched = CheckpointStore(OneByOne(store.files.url, on_delete))
    return CleanUp(watched, retained=retained).run(newest=newest, before_ms=before_ms, keep=keep)


class OneByOne(LocalFileStore):
    """A kill may come between any two files of a batch."""

    def __init__(self, root: str, on_delete: Callable[[], None]) -> None:
        super().__init__(root)
        self._on_delete = on_delete

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._on_delete()
            super().delete_all([path])


def assert_whole(store: CheckpointStore) -> None:
    """Check that every file that any manifest names is there, and whole."""
    for path in [*(entry.path for entry in store.checkpoints()), *store.savepoints()]:
        at, _, found = store.open(path)
        outputs = [output.file for output in found.outputs] if found.savepoint is None else []
        for each in [*found.files(), *outputs]:
            at.read_file(each)


def named_by(made: Manifest) -> set[str]:
    return {each.path for each in [*made.files(), *(output.file for output in made.outputs)]}


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


def copied(store: CheckpointStore, made: Manifest, name: str) -> str:
    """Make a self-contained savepoint as ``copy_savepoint`` does; return its folder."""
    folder = f"savepoints/{name}"
    for each in made.files():
        store.files.write(f"{folder}/{each.path}", store.read_file(each))
    info = SavepointInfo(name=name, reason="", created_ms=0)
    contained = msgspec.structs.replace(made, root=".", savepoint=info, outputs=())
    store.files.write(f"{folder}/manifest.json", encode_manifest(contained))
    return folder


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

    threads = [threading.Thread(target=run) for _ in range(2)]
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
    gone = [listed[0]._replace(path=store.manifest_path(1, epoch)) for epoch in (1, 2)]
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


# --- what a clean-up reads and lists ---


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


# --- everything at random ---

MINUTE = 60_000
GRACE = 60 * MINUTE


class World:
    """A job that runs, is asked for savepoints, is rolled back and rescaled, and whose store is cleaned up.

    Attributes:
        now_ms: The time, also of files as they are written.
        newest: What the job goes on from.
        in_flight: Files of the epoch that is not committed yet.
        merged: Merges that are carried out and that no manifest names yet.

    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.store = CheckpointStore.at(str(root))
        self.now_ms = 100 * GRACE
        self.newest = manifest(epoch=-1)
        self.next_lineage = 1
        self.in_flight: tuple[KeyedFile, ...] = ()
        self.merged: list[Merged] = []
        self.claims: list[ExitStack] = []
        self.number = 0
        # One that goes on for as long as the job, and so remembers.
        self.clean_ups = CleanUp(self.store, retained=2)
        self.do("commit", 0)

    def do(self, what: str, choice: int) -> None:
        before = {path: modified_ms(self.root / path) for path in listing(self.root)}
        getattr(self, what)(*([choice] if what in CHOOSING else []))
        after = listing(self.root)
        self.stand_ins = {minute_of(path, before[path]) for path in before.keys() & after if is_checkpoint(path)}
        for path in after:
            if before.get(path) != modified_ms(self.root / path):
                age(self.root, self.now_ms, path)
        for path in before.keys() - after:
            self.check_removal(what, path, before[path])
        assert_whole(self.store)

    def check_removal(self, what: str, path: str, modified: int) -> None:
        assert what in ("clean_up", "late_clean_up", "drop", "release"), f"{what} removed {path}"
        if what.endswith("clean_up"):
            # A checkpoint that is young may go if another one of its lineage and minute stays.
            thinned_out = is_checkpoint(path) and minute_of(path, modified) in self.stand_ins
            assert modified < self.now_ms - GRACE or thinned_out, f"{path} was young"
            assert path not in {item.file.path for item in self.in_flight}
            assert path not in {each.output.file.path for each in self.merged}

    def begin(self) -> None:
        """Write the files of the next epoch; those of an attempt before are lost."""
        self.number += 1
        folder = f"state/totals/{self.next_lineage:06d}-{self.newest.epoch + 1:012d}"
        token = f"a{self.number}"
        made = []
        for index in range(self.newest.parallelism):
            own = key_groups_of(self.newest, index)
            path = f"{folder}/{index:05d}-{token}-total.arrow"
            made.append(keyed_file(self.store, path, {own[0]: self.number}, own, kind=FileKind.CHANGELOG, token=token))
        self.in_flight = tuple(made)

    def commit(self) -> None:
        if not self.in_flight:
            self.begin()
        self.number += 1
        epoch, lineage = self.newest.epoch + 1, self.next_lineage
        subtasks = []
        for index, (before, written) in enumerate(zip(self.newest.operators[0].subtasks, self.in_flight, strict=True)):
            merged = [each for each in self.merged if each.merge.subtask == index]
            elements = before.operator
            if self.number % 3 == 0:
                path = f"state/totals/{lineage:06d}-{epoch:012d}/{index:05d}-o{self.number}-operator-waiting.arrow"
                elements = (operator_file(self.store, path, [1, 2]),)
            subtasks.append(SubtaskState(keyed=(*with_merged(before.keyed, merged), written), operator=elements))
        progress = [item for item in self.newest.progress if item.name == "metadata"] or [
            ProgressFile(name="metadata", file=ref(self.store, f"progress/000001/{lineage:06d}-{epoch:012d}-metadata"))
        ]
        offsets = ref(self.store, f"progress/{self.number:06d}/{lineage:06d}-{epoch:012d}-offsets-{epoch}")
        staged = ref(self.store, f"_staged/{lineage}-{epoch}-alerts-00000-s{self.number}.parquet")
        self.newest = manifest(
            lineage=lineage, epoch=epoch, parallelism=len(subtasks), operators=(operator(subtasks),),
            progress=(*progress, ProgressFile(name=f"offsets/{epoch}", file=offsets)),
            outputs=(StagedOutput(sink="alerts", file=staged, rows=1),),
            artifact=self.store.keep_artifact("job.py", f"program {self.number // 8}".encode()),
        )  # fmt: skip
        self.store.commit(self.newest)
        self.clean_ups.committed(self.newest)
        self.in_flight, self.merged = (), []

    def merge(self, choice: int) -> None:
        index = choice % self.newest.parallelism
        files = self.newest.operators[0].subtasks[index].keyed
        own = key_groups_of(self.newest, index)
        if len(files) < 2 or files[-1].key_groups != own:
            return
        of_job = self.newest.operators[0]
        tail = files[-2:]
        changelogs = all(item.kind is FileKind.CHANGELOG and item.key_groups == own for item in tail)
        kind = FileKind.CHANGELOG if changelogs and choice % 2 else FileKind.BASE
        due = Merge(
            uid=of_job.uid, subtask=index, state=of_job.states[0], key_fields=of_job.key_fields, key_groups=own,
            max_parallelism=MAX_PARALLELISM, inputs=tail if kind is FileKind.CHANGELOG else files, kind=kind, now_ms=0,
        )  # fmt: skip
        folder = f"state/totals/{self.newest.lineage:06d}-{self.newest.epoch:012d}"
        self.merged.append(carry_out(self.store, due, folder))

    def savepoint(self) -> None:
        self.number += 1
        self.store.write_savepoint(self.newest, f"sp{self.number}", reason="", now_ms=0)

    def copy(self) -> None:
        self.number += 1
        copied(self.store, self.newest, f"copy{self.number}")

    def drop(self, choice: int) -> None:
        there = self.unclaimed()
        if there:
            drop_savepoint(self.store, there[choice % len(there)])

    def unclaimed(self) -> list[str]:
        return [path for path in self.store.savepoints() if path not in self.store.claimed()]

    def claim(self, choice: int) -> None:
        there = [*self.store.savepoints(), *(entry.path for entry in self.store.checkpoints())]
        stack = ExitStack()
        stack.enter_context(claimed(self.store.files, there[choice % len(there)], "somebody"))
        self.claims.append(stack)

    def release(self) -> None:
        if self.claims:
            self.claims.pop(0).close()

    def roll_back(self, choice: int) -> None:
        """Go on from a savepoint in a new lineage, as a new generation does."""
        there = [self.store.manifest(path) for path in self.store.savepoints()]
        asked = [each for each in there if each.root != "."]
        if asked:
            self.next_generation(asked[choice % len(asked)], len(asked[0].operators[0].subtasks))
            self.next_lineage = max(lineage for lineage, _ in self.store.committed()) + 1
            # The savepoint is claimed until this is done.
            self.commit()

    def rescale(self, choice: int) -> None:
        self.next_generation(self.newest, choice % 3 + 1)
        self.commit()

    def next_generation(self, made: Manifest, parallelism: int) -> None:
        self.newest = rescale_by_reference(made, parallelism)
        self.in_flight, self.merged = (), []

    def tick(self, choice: int) -> None:
        self.now_ms += [5 * MINUTE, 40 * MINUTE, 90 * MINUTE][choice % 3]

    def clean_up(self, choice: int) -> None:
        self._clean_up(self.store.committed()[-1], choice, {each.output.file.path for each in self.merged})

    def late_clean_up(self, choice: int) -> None:
        """Another driver cleans up, which woke up after its successor committed."""
        committed = self.store.committed()
        if len(committed) > 1:
            self._clean_up(committed[choice % (len(committed) - 1)], choice, set())

    def _clean_up(self, newest: tuple[int, int], choice: int, keep: set[str]) -> None:
        clean_ups = self.clean_ups if choice % 2 else CleanUp(self.store, retained=choice % 3 + 1)
        if choice % 4 == 1:
            clean_ups.thin_out(before_ms=self.now_ms - GRACE)
        clean_ups.run(newest=newest, before_ms=self.now_ms - GRACE, keep=keep)

    def end(self) -> None:
        """Let go of everything but the newest epoch."""
        while self.claims:
            self.release()
        for path in self.store.savepoints():
            drop_savepoint(self.store, path)
        self.in_flight, self.merged = (), []
        self.now_ms += 2 * GRACE
        self._clean_up((self.next_lineage, self.newest.epoch + 1), 0, set())


CHOOSING = ("merge", "drop", "claim", "roll_back", "rescale", "tick", "clean_up", "late_clean_up")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["begin", *["commit"] * 4, *["merge"] * 2, "savepoint", "copy", "drop", "claim", "release", "roll_back",
             "rescale", *["tick"] * 3, *["clean_up"] * 3, "late_clean_up"]
        ),
        st.integers(0, 11),
    ),
    min_size=20,
    max_size=40,
)  # fmt: skip


def is_checkpoint(path: str) -> bool:
    return path.startswith("manifests/")


def minute_of(path: str, modified_ms: int) -> tuple[int, int]:
    return epoch_of(path)[0], modified_ms // MINUTE


def modified_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000


def key_groups_of(made: Manifest, index: int) -> tuple[int, int]:
    own = key_group_range(made.max_parallelism, made.parallelism, index)
    return own.start, own.end


@examples(25)
@given(STEPS)
def test_whatever_happens_every_manifest_has_its_files_and_in_the_end_nothing_else_is_left(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    for what, choice in steps:
        world.do(what, choice)
    world.end()
    assert listing(world.root) == {
        *named_by(world.newest),
        world.store.manifest_path(world.newest.lineage, world.newest.epoch),
    }
