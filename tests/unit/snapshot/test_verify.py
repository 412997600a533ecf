"""Whatever happens to a file of a savepoint, verification and a restore say which file it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import CorruptFileError, ForeignFileError, MissingFileError, StatecoreError
from statecore.model import key_group_range
from statecore.runtime.epoch.progress import QuerySources, lay_down_progress
from statecore.snapshot.checkpoints import CheckpointStore, open_savepoint
from statecore.snapshot.claims import claimed
from statecore.snapshot.manifest import Manifest, ProgressFile, SavepointInfo, SourcePositions, encode_manifest
from statecore.snapshot.restore import apply_keyed_files, operator_snapshots
from statecore.snapshot.verify import verify, verify_presence
from statecore.state import HeapKeyedStateBackend
from statecore.storage import LocalFileStore
from statecore.testing import ManualClock
from tests.support.examples import examples
from tests.support.handmade import written
from tests.support.waiting import PATIENCE_S

OFFSETS = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1700000000000}\n{"logOffset":7}'


def with_everything(store: CheckpointStore, parallelism: int = 2) -> Manifest:
    """Write all that a savepoint can name: state of both scopes, source positions, the job file."""
    progress = [
        ProgressFile(name=name, file=store.write_file(f"progress/000001/spark/{name}", data))
        for name, data in (("metadata", b'{"id":"x"}'), ("offsets/7", OFFSETS))
    ]
    return written(
        store,
        parallelism,
        progress=tuple(progress),
        sources=(SourcePositions(name="in", positions=()),),
        artifact=store.keep_artifact("orders.py", b"def build(job): ...\n"),
        watermark_ms=1_700_000_000_000,
    )


def by_reference(folder: Path) -> Path:
    store = CheckpointStore.at(str(folder / "store"))
    committed = with_everything(store)
    store.commit(committed)
    return (folder / "store" / store.write_savepoint(committed, "kept", reason="test", now_ms=0)).parent


def self_contained(folder: Path | str) -> str:
    store = CheckpointStore.at(str(folder))
    info = SavepointInfo(name="copy", reason="test", created_ms=0)
    manifest = msgspec.structs.replace(with_everything(store), root=".", savepoint=info)
    store.files.put_if_absent("manifest.json", encode_manifest(manifest))
    return store.files.url


class Case:
    """A savepoint in a folder, and the ways to look at it."""

    def __init__(self, url: str | Path) -> None:
        self.url = str(url)
        store, path, manifest = open_savepoint(self.url)
        self.manifest_file = Path(store.describe(path))
        self.files = [self.manifest_file, *(Path(store.describe(ref.path)) for ref in manifest.files())]

    def verify(self) -> list[str]:
        """Return what the command line prints."""
        try:
            store, _, manifest = open_savepoint(self.url)
            return [str(problem) for problem in verify(store, manifest)]
        except StatecoreError as error:
            return [str(error)]

    def restored(self) -> list[str]:
        """Do what a driver and its workers do at a start; return the error that ends it."""
        try:
            self._restore()
        except StatecoreError as error:
            return [str(error)]
        return []

    def _restore(self) -> None:
        store, _, manifest = open_savepoint(self.url)
        verify_presence(store, manifest)
        sources = QuerySources(("in",), ticks=False)
        lay_down_progress(manifest, store, self.manifest_file.parent.parent / "spark", sources)
        for operator in manifest.operators:
            for index, subtask in enumerate(operator.subtasks):
                own = key_group_range(manifest.max_parallelism, manifest.parallelism, index)
                backend = HeapKeyedStateBackend(manifest.max_parallelism, own, ManualClock())
                apply_keyed_files(backend, store, operator, subtask.keyed, dict.fromkeys(own, 0))
                operator_snapshots(store, operator.states, subtask.operator)

    @contextmanager
    def damaged(self, file: Path, data: bytes | None) -> Iterator[None]:
        """Have other bytes in a file, or no file."""
        whole = file.read_bytes()
        file.unlink()
        if data is not None:
            file.write_bytes(data)
        try:
            yield
        finally:
            file.write_bytes(whole)

    def assert_found(self, file: Path) -> None:
        for found in (self.verify(), self.restored()):
            (message,) = found
            assert str(file) in message
            assert not [other for other in self.files if other != file and str(other) in message]
            assert message.count(";") >= 2 and "expected" in message


@pytest.fixture(scope="module", params=["by reference", "self-contained"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("savepoint")
    make: Callable[[Path], Path | str] = by_reference if request.param == "by reference" else self_contained
    return Case(make(folder / "made"))


@pytest.fixture
def savepoint(store: CheckpointStore) -> Manifest:
    return written(store, 3)


class TestEveryFile:
    """Manifest, keyed and operator state, source positions and job file, in a store and in a folder of its own."""

    def test_a_whole_savepoint_has_no_problem_and_restores(self, case: Case) -> None:
        assert len(case.files) == 1 + 4 + 2 + 1
        assert (case.verify(), case.restored()) == ([], [])

    @given(st.data())
    @examples(300)
    def test_every_flipped_bit_of_every_file_is_found_by_name(self, case: Case, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(case.files))
        flipped = bytearray(file.read_bytes())
        flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        with case.damaged(file, bytes(flipped)):
            case.assert_found(file)

    @given(st.data())
    @examples(100)
    def test_every_file_that_is_cut_short_or_goes_on_is_found_by_name(self, case: Case, data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(case.files))
        whole = file.read_bytes()
        short = st.integers(0, len(whole) - 1).map(lambda end: whole[:end])
        long = st.binary(min_size=1, max_size=9).map(lambda more: whole + more)
        with case.damaged(file, data.draw(short | long)):
            case.assert_found(file)

    def test_every_file_that_is_gone_is_found_by_name(self, case: Case) -> None:
        for file in case.files:
            with case.damaged(file, None):
                case.assert_found(file)

    @pytest.mark.parametrize("name", ["notes.txt", ".hidden", "deeper/manifest.json", "claims.json"])
    def test_a_file_that_the_savepoint_does_not_name_is_found_by_name(self, case: Case, name: str) -> None:
        stranger = case.manifest_file.parent / name
        stranger.parent.mkdir(exist_ok=True)
        stranger.write_bytes(b"")
        case.assert_found(stranger)
        stranger.unlink()
        assert (case.verify(), case.restored()) == ([], [])

    def test_somebody_who_reads_it_is_no_stranger(self, case: Case) -> None:
        store, path, _ = open_savepoint(case.url)
        with claimed(store.files, path, "a test"):
            assert (case.verify(), case.restored()) == ([], [])


def test_all_that_is_wrong_is_named_at_once(tmp_path: Path) -> None:
    case = Case(self_contained(tmp_path / "made"))
    _, gone, flipped, *_ = case.files
    gone.unlink()
    data = bytearray(flipped.read_bytes())
    data[0] ^= 1
    flipped.write_bytes(data)
    strangers = [case.manifest_file.parent / name for name in ("state/extra", "zz")]
    for stranger in strangers:
        stranger.write_bytes(b"x")
    store, _, manifest = open_savepoint(case.url)
    problems = verify(store, manifest)
    assert {type(problem) for problem in problems[:2]} == {MissingFileError, CorruptFileError}
    assert [type(problem) for problem in problems[2:]] == [ForeignFileError] * 2
    for file in (gone, flipped, *strangers):
        assert sum(str(file) in str(problem) for problem in problems) == 1


def test_a_file_in_a_folder_for_claims_of_a_savepoint_in_a_store_is_a_stranger(tmp_path: Path) -> None:
    case = Case(by_reference(tmp_path))
    stranger = case.manifest_file.parent / "claims/x.json"
    stranger.parent.mkdir()
    stranger.write_bytes(b"")
    case.assert_found(stranger)


def test_files_of_a_store_that_no_checkpoint_names_yet_are_no_strangers(tmp_path: Path) -> None:
    path = by_reference(tmp_path)
    store = CheckpointStore.at(str(tmp_path / "store"))
    store.write_file("state/totals/000001-000000000008/x", b"of an epoch at work")
    store.write_savepoint(written(store, 2), "another", reason="", now_ms=0)
    assert Case(path).verify() == []
    checkpoint = store.manifest(store.manifest_path(1, 7))
    assert verify(store, checkpoint) == []


@pytest.mark.parametrize("where", ["moved", "link", "file URL", "file URL of a link"])
def test_a_folder_of_its_own_is_whole_wherever_it_is_and_however_it_is_reached(tmp_path: Path, where: str) -> None:
    folder = tmp_path / "made"
    self_contained(folder)
    moved = folder.rename(tmp_path / "moved to")
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "newest"
    link.symlink_to(moved)
    url = {"moved": str(moved), "link": str(link), "file URL": moved.as_uri(), "file URL of a link": link.as_uri()}
    case = Case(url[where])
    assert (case.verify(), case.restored()) == ([], [])
    (moved / "stranger").write_bytes(b"")
    assert all("stranger" in message for (message,) in (case.verify(), case.restored()))


class TestS3:
    def test_damage_and_strangers_are_found_by_name(self, request: pytest.FixtureRequest) -> None:
        url = self_contained(request.getfixturevalue("s3_url"))
        store, _, manifest = open_savepoint(url)
        assert verify(store, manifest) == []
        verify_presence(store, manifest)
        flipped, gone, *_ = manifest.files()
        data = bytearray(store.files.read(flipped.path))
        data[3] ^= 1
        store.files.write(flipped.path, bytes(data))
        store.files.delete(gone.path)
        store.files.write("stranger", b"")
        problems = verify(store, manifest)
        assert [type(problem) for problem in problems] == [CorruptFileError, MissingFileError, ForeignFileError]
        for problem, name in zip(problems, (flipped.path, gone.path, "stranger"), strict=True):
            assert f"{url}/{name}" in str(problem)
        with pytest.raises(ForeignFileError, match=f"{url}/stranger"):
            verify_presence(store, manifest)

    def test_a_bucket_that_is_a_savepoint_is_verified_and_restored(self, request: pytest.FixtureRequest) -> None:
        bucket = request.getfixturevalue("s3_url").removesuffix("/store")
        store, _, manifest = open_savepoint(self_contained(bucket))
        assert verify(store, manifest) == []
        verify_presence(store, manifest)


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


class Remote(LocalFileStore):
    """Answers the first questions for a size once they are all asked."""

    def __init__(self, root: str, together: int) -> None:
        super().__init__(root)
        self._together = threading.Barrier(together, timeout=PATIENCE_S)
        self._first = together
        self._lock = threading.Lock()
        self._at_once = self.most_at_once = 0

    def size(self, path: str) -> int | None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            is_first = self._first > 0
            self._first -= 1
        if is_first:
            self._together.wait(60)
        with self._lock:
            self._at_once -= 1
        return super().size(path)


def test_presence_asks_for_many_files_at_once_but_for_a_bounded_number(tmp_path: Path) -> None:
    made = with_everything(CheckpointStore.at(str(tmp_path)), parallelism=14)
    assert len(made.files()) > 16
    remote = Remote(str(tmp_path), together=16)
    verify_presence(CheckpointStore(remote), made)
    assert remote.most_at_once == 16


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
