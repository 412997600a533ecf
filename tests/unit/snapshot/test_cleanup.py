"""Clean-up: what anybody needs stays, what nobody needs goes, wherever it is cut off."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import ManifestError
from statecore.model import key_group_range
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.claims import Claim, claimed
from statecore.snapshot.cleanup import Removed, clean_up
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
from statecore.storage import FileEntry
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
    made = manifest(
        lineage=lineage,
        epoch=epoch,
        operators=(operator([SubtaskState(keyed=(*before, changelog(store, epoch, lineage)))]),),
        outputs=(StagedOutput(sink="alerts", file=ref(store, staged), rows=1),),
        progress=(ProgressFile(name=f"offsets/{epoch}", file=ref(store, f"progress/000001/spark/offsets/{epoch}")),),
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
    **options: Any,
) -> Removed:
    return clean_up(
        store, newest=newest or store.committed()[-1], retained=retained, before_ms=before_ms, **options
    )  # fmt: skip


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
        "progress/000009/spark/offsets/3",
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
    list_files = type(store.files).list

    def still_listed(files: Any, prefix: str) -> list[FileEntry]:
        return [*gone, *listed] if prefix == "manifests" else list_files(files, prefix)

    monkeypatch.setattr(type(store.files), "list", still_listed)
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
        self.do("commit", 0)

    def do(self, what: str, choice: int) -> None:
        before = {path: modified_ms(self.root / path) for path in listing(self.root)}
        getattr(self, what)(*([choice] if what in CHOOSING else []))
        after = listing(self.root)
        for path in after:
            if before.get(path) != modified_ms(self.root / path):
                age(self.root, self.now_ms, path)
        for path in before.keys() - after:
            self.check_removal(what, path, before[path])
        assert_whole(self.store)

    def check_removal(self, what: str, path: str, modified: int) -> None:
        assert what in ("clean_up", "late_clean_up", "drop", "release"), f"{what} removed {path}"
        if what.endswith("clean_up"):
            assert modified < self.now_ms - GRACE, f"{path} was young"
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
            ProgressFile(name="metadata", file=ref(self.store, "progress/000001/spark/metadata"))
        ]
        offsets = ref(self.store, f"progress/{self.number:06d}/spark/offsets/{epoch}")
        staged = ref(self.store, f"_staged/{lineage}-{epoch}-alerts-00000-s{self.number}.parquet")
        self.newest = manifest(
            lineage=lineage, epoch=epoch, parallelism=len(subtasks), operators=(operator(subtasks),),
            progress=(*progress, ProgressFile(name=f"offsets/{epoch}", file=offsets)),
            outputs=(StagedOutput(sink="alerts", file=staged, rows=1),),
            artifact=self.store.keep_artifact("job.py", f"program {self.number // 8}".encode()),
        )  # fmt: skip
        self.store.commit(self.newest)
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
        clean_up(self.store, newest=newest, retained=choice % 3 + 1, before_ms=self.now_ms - GRACE, keep=keep)

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
