"""Clones: what is in one, that the checkpoint stays as it is, and that nothing names it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError, NotProvenError, StorageError
from statecore.queries.copying import clone as module
from statecore.queries.copying.clone import Clone, clone
from statecore.queries.copying.staging import staged as stage
from statecore.queries.reading.checkpoint import open_checkpoint
from statecore.queries.reading.files import files_below, read_checked
from statecore.queries.reading.origin import ORIGIN, read_origin
from statecore.storage import FileEntry, open_store
from tests.unit.queries.handmade import (
    AGGREGATION,
    JOIN,
    JOIN_STORES,
    PANDAS,
    ROCKSDB,
    Handmade,
    Operator,
    commit,
    files_of,
    folder_of,
    make,
    spark_checksum,
    write_state,
)

OPERATORS = (Operator(), Operator(JOIN, JOIN_STORES), Operator(AGGREGATION, keyless=True))
RUNNING = "stop the query"


def cloned(made: Handmade, target: str | Path) -> Clone:
    before = made.files()
    try:
        return clone(open_checkpoint(str(made.root)), str(target))
    finally:
        assert made.files() == before


def in_s3(made: Handmade, url: str) -> str:
    """Put a checkpoint into S3; as there, nothing has Hadoop's checksums."""
    for path, data in made.files().items():
        if not path.endswith(".crc"):
            open_store(url).write(path, data)
    return url


def objects(url: str) -> dict[str, bytes]:
    return {entry.path: open_store(url).read(entry.path) for entry in files_below(url)}


class TestLocal:
    @pytest.mark.parametrize("unique_ids", [False, True])
    def test_it_has_every_file(self, tmp_path: Path, unique_ids: bool) -> None:
        made = make(tmp_path / "checkpoint", *OPERATORS, provider=ROCKSDB, pending=True, unique_ids=unique_ids)
        found = cloned(made, tmp_path / "target")
        copied = files_of(tmp_path / "target")
        assert copied.pop(ORIGIN)
        assert copied == made.files()
        assert (found.batch, found.pending, found.partitions) == (1, 2, 2)
        assert (found.files, found.linked) == (len(copied), len(copied))
        assert found.bytes == sum(map(len, copied.values()))

    def test_files_are_hard_links(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", *OPERATORS)
        cloned(made, tmp_path / "target")
        assert (made.root / "state/0/1/2.delta").samefile(tmp_path / "target/state/0/1/2.delta")

    def test_files_are_copied_where_there_are_no_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = make(tmp_path / "checkpoint", *OPERATORS)

        def refuse(*_: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        with monkeypatch.context() as patch:
            patch.setattr(os, "link", refuse)
            found = cloned(made, tmp_path / "target")
        assert found.linked == 0
        assert {**files_of(tmp_path / "target"), ORIGIN: b""} == {**made.files(), ORIGIN: b""}

    def test_state_of_an_attempt_comes_along_because_a_sink_may_skip_the_batch(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", *OPERATORS, pending=True)
        for number, operator in enumerate(OPERATORS):
            write_state(made, number, operator, 3)
        expected = made.files()
        made.write("commits/.2.aaaa.tmp", "half of a commit")
        cloned(made, tmp_path / "target")
        assert {**files_of(tmp_path / "target"), ORIGIN: b""} == {**expected, ORIGIN: b""}

    @pytest.mark.parametrize("ids", [False, True], ids=["format-1", "format-2"])
    def test_state_that_no_batch_needs_stays_behind(self, tmp_path: Path, ids: bool) -> None:
        made = make(tmp_path / "checkpoint", Operator(), pending=ids, provider=ROCKSDB, unique_ids=ids)
        write_state(made, 0, Operator(), 3, ROCKSDB, unique_ids=ids)
        cloned(made, tmp_path / "target")
        copied = files_of(tmp_path / "target")
        assert any("/2" in path for path in copied)
        assert not any(path.endswith(".zip") and "/3" in path for path in copied)

    def test_it_says_where_it_came_from(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", *OPERATORS, pending=True)
        cloned(made, tmp_path / "one")
        origin = read_origin(open_store(str(tmp_path / "one")))
        assert origin is not None
        assert (origin.path, origin.action, origin.batch, origin.pending) == (str(made.root), "clone", 1, 2)
        assert (origin.partitions_before, origin.partitions_after) == (2, 2)
        clone(open_checkpoint(str(tmp_path / "one")), str(tmp_path / "two"))
        second = read_origin(open_store(str(tmp_path / "two")))
        assert second is not None and second.path == str(tmp_path / "one")
        assert read_origin(open_store(str(made.root))) is None

    def test_metadata_with_absolute_paths_is_written_anew(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator(PANDAS, version=2), provider=ROCKSDB)
        path = "state/0/_metadata/v2/0"
        made.write(f"{path}.crc", spark_checksum((made.root / path).read_bytes()))
        target = tmp_path / "a longer name"
        cloned(made, target)
        text = (target / path).read_text()
        assert text == (made.root / path).read_text().replace(str(made.root), str(target))
        # No stale checksum lies beside it: Spark would refuse the file.
        assert sorted(each.name for each in (target / path).parent.iterdir()) == ["0"]
        assert read_checked(open_store(str(target)), path)
        assert open_checkpoint(str(target)).operators == open_checkpoint(str(made.root)).operators

    def test_metadata_of_a_batch_that_was_not_committed_stays_behind(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator(PANDAS, version=2), provider=ROCKSDB, pending=True)
        made.write("state/0/_metadata/v2/2", (made.root / "state/0/_metadata/v2/0").read_text())
        cloned(made, tmp_path / "target")
        assert not (tmp_path / "target/state/0/_metadata/v2/2").exists()

    @pytest.mark.parametrize("path", ["metadata", "offsets/0", "commits/0", "state/0/_metadata/metadata"])
    def test_a_log_that_names_the_checkpoint_is_refused(self, tmp_path: Path, path: str) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        version, *lines = (made.root / path).read_text().split("\n")
        made.write(path, "\n".join((version, *lines, f'{{"path":"file:{made.root}/in"}}')))
        if path in ("offsets/0", "commits/0"):
            with pytest.raises(NotProvenError, match=f"found {path} of the copy that names"):
                cloned(made, tmp_path / "target")
            assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint"]

    def test_a_longer_name_is_another_name(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        text = (made.root / "offsets/0").read_text()
        made.write("offsets/0", f'{text}\n{{"path":"file:{made.root}-of-another/in"}}\n{{"path":"/x{made.root}"}}')
        cloned(made, tmp_path / "target")

    def test_an_empty_target_folder_is_taken(self, tmp_path: Path) -> None:
        (tmp_path / "target").mkdir()
        cloned(make(tmp_path / "checkpoint", Operator()), tmp_path / "target")
        assert open_checkpoint(str(tmp_path / "target")).batch == 1

    def test_missing_parents_are_made(self, tmp_path: Path) -> None:
        cloned(make(tmp_path / "checkpoint", Operator()), tmp_path / "a/b/target")
        assert open_checkpoint(str(tmp_path / "a/b/target")).batch == 1

    def test_a_relative_target(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert cloned(make(tmp_path / "checkpoint", Operator()), "target").target == str(tmp_path / "target")

    def test_progress_is_told(self, tmp_path: Path) -> None:
        made, told = make(tmp_path / "checkpoint", Operator()), list[tuple[int, int]]()
        clone(open_checkpoint(str(made.root)), str(tmp_path / "target"), lambda *each: told.append(each))
        count = len(made.files())
        assert told == [(done, count) for done in range(1, count + 1)]


class TestDamaged:
    @pytest.mark.parametrize("operator", OPERATORS, ids=["aggregation", "join", "global"])
    def test_a_missing_version_of_a_partition(self, tmp_path: Path, operator: Operator) -> None:
        made = make(tmp_path / "checkpoint", operator)
        folder = folder_of(0, 0 if operator.keyless else 1, operator.stores[-1])
        made.remove(f"{folder}/2.delta")
        with pytest.raises(CheckpointDamagedError, match=f"no state of version 2 in {folder} "):
            cloned(made, tmp_path / "target")
        assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint"]

    def test_only_the_version_of_another_attempt(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator(), provider=ROCKSDB, unique_ids=True)
        file = made.root / "state/0/1/2_id-0-1-0-2.zip"
        file.rename(file.with_name("2_of-another.zip"))
        with pytest.raises(CheckpointDamagedError, match="no state of version 2 in state/0/1 "):
            cloned(made, tmp_path / "target")

    @pytest.mark.parametrize("data", [b"", b"\0\2v2", b"\0\2v2\0\0\0\1\0\2{}", b"\0\2v1\0\x09garbage!!"], ids=repr)
    def test_a_schema_that_is_garbage(self, tmp_path: Path, data: bytes) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        made.write("state/0/0/_metadata/schema", data)
        with pytest.raises(CheckpointDamagedError, match="found state/0/0/_metadata/schema"):
            cloned(made, tmp_path / "target")

    def test_a_schema_of_the_future(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        made.write("state/0/0/_metadata/schema", b"\0\2v9")
        with pytest.raises(CheckpointRefusedError, match="of version 'v9'"):
            cloned(made, tmp_path / "target")


class TestRefused:
    @pytest.mark.parametrize("name", ["file", "folder", "link"])
    def test_a_target_that_exists(self, tmp_path: Path, name: str) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        target = tmp_path / name
        if name == "file":
            target.write_text("mine")
        elif name == "folder":
            target.mkdir()
            (target / "mine").write_text("mine")
        else:
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder/mine").write_text("mine")
            target.symlink_to(tmp_path / "folder")
        before = files_of(tmp_path)
        with pytest.raises(CheckpointRefusedError, match="already there"):
            cloned(made, target)
        assert files_of(tmp_path) == before

    @pytest.mark.parametrize("target", ["checkpoint", "checkpoint/inside", "checkpoint/../checkpoint/x", "link/x", "."])
    def test_a_target_in_the_checkpoint_or_around_it(self, tmp_path: Path, target: str) -> None:
        made = make(tmp_path / "checkpoint", Operator())
        (tmp_path / "link").symlink_to(made.root)
        with pytest.raises(CheckpointRefusedError, match="one in the other"):
            cloned(made, f"{tmp_path}/{target}")

    def test_a_target_with_a_longer_name_lies_elsewhere(self, tmp_path: Path) -> None:
        cloned(make(tmp_path / "checkpoint", Operator()), tmp_path / "checkpoint-2")

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError, match="expected to make"):
            cloned(make(tmp_path / "checkpoint", Operator()), tmp_path / "file/target")


class TestRunning:
    """A query that goes on while its checkpoint is cloned."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Handmade:
        return make(tmp_path / "checkpoint", Operator())

    def during(self, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], None]) -> None:
        """Act just before each attempt."""
        attempts = iter(range(100))

        def staged(target: str, source: str) -> object:
            act(next(attempts))
            return stage(target, source)

        monkeypatch.setattr(module, "staged", staged)

    def batch(self, made: Handmade, batch: int) -> None:
        made.write(f"offsets/{batch}", (made.root / "offsets/1").read_text())
        write_state(made, 0, Operator(), batch + 1)
        made.write(f"commits/{batch}", commit(batch))

    def test_one_more_batch_is_cloned_with_it(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.during(monkeypatch, lambda attempt: self.batch(made, 2) if attempt == 0 else None)
        found = clone(open_checkpoint(str(made.root)), str(tmp_path / "target"))
        assert found.batch == 2
        assert open_checkpoint(str(tmp_path / "target")).batch == 2

    def test_a_query_that_goes_on_and_on_is_refused(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.during(monkeypatch, lambda attempt: self.batch(made, 2 + attempt))
        with pytest.raises(CheckpointRefusedError, match=RUNNING):
            clone(open_checkpoint(str(made.root)), str(tmp_path / "target"))
        assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint"]

    def test_what_a_running_query_has_removed_is_not_damage(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def go_on(attempt: int) -> None:
            if attempt == 0:
                self.batch(made, 2)
                for partition in range(2):
                    made.remove(f"state/0/{partition}/2.delta")

        self.during(monkeypatch, go_on)
        assert clone(open_checkpoint(str(made.root)), str(tmp_path / "target")).batch == 2

    def vanishing(self, monkeypatch: pytest.MonkeyPatch, *files: Path) -> None:
        """Remove one more file just after each listing of the checkpoint."""
        left = iter(files)

        def listed(url: str) -> list[FileEntry]:
            found = files_below(url)
            if ".attempt-" not in url and (file := next(left, None)) is not None:
                file.unlink()
            return found

        monkeypatch.setattr(module, "files_below", listed)

    @pytest.mark.parametrize("running", [False, True])
    def test_an_old_version_that_the_clean_up_removes_is_not_damage_although_no_batch_follows(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, running: bool
    ) -> None:
        self.vanishing(monkeypatch, made.root / "state/0/1/1.delta", made.root / "offsets/0")
        assert clone(open_checkpoint(str(made.root)), str(tmp_path / "target"), running=running).batch == 1
        assert not (tmp_path / "target/state/0/1/1.delta").exists()
        assert (tmp_path / "target/state/0/1/2.delta").exists()

    def test_tables_that_are_uploaded_between_two_looks_at_a_folder_come_with_their_snapshot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = make(tmp_path / "snapshots", Operator(), provider=ROCKSDB)
        table, listings = "state/0/1/SSTs/000002-abc.sst", list[str]()

        def listed(url: str) -> list[FileEntry]:
            # A folder is not listed in one moment: the table was not there yet, the snapshot that needs it was.
            first = url not in listings
            listings.append(url)
            return [each for each in files_below(url) if not (first and each.path == table)]

        assert (made.root / table).exists()
        monkeypatch.setattr(module, "files_below", listed)
        clone(open_checkpoint(str(made.root)), str(tmp_path / "target"), running=True)
        assert (tmp_path / "target" / table).exists()

    def test_old_versions_that_go_on_and_on_vanishing_are_refused_and_not_called_damage(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = ("state/0/0/1.delta", "state/0/1/1.delta", "offsets/0")
        self.vanishing(monkeypatch, *(made.root / path for path in old))
        with pytest.raises(CheckpointRefusedError, match=r"in each of 3 attempts .*; expected .*; raise "):
            clone(open_checkpoint(str(made.root)), str(tmp_path / "target"))
        assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint"]

    @pytest.mark.parametrize(
        ("path", "found"),
        [("state/0/1/2.delta", "no state of version 2 in state/0/1 "), ("metadata", "no file metadata")],
    )
    def test_a_file_of_the_newest_batch_that_vanishes_is_damage(
        self, made: Handmade, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, found: str
    ) -> None:
        self.vanishing(monkeypatch, made.root / path)
        with pytest.raises(CheckpointDamagedError, match=f"found {found}"):
            clone(open_checkpoint(str(made.root)), str(tmp_path / "target"))
        assert sorted(each.name for each in tmp_path.iterdir()) == ["checkpoint"]


class TestS3:
    @pytest.fixture
    def made(self, tmp_path: Path) -> Handmade:
        return make(tmp_path / "checkpoint", *OPERATORS, Operator(PANDAS, version=2), provider=ROCKSDB, pending=True)

    def expected(self, made: Handmade, root: str) -> dict[str, bytes]:
        return {
            path: data.replace(f"file:{made.root}".encode(), root.encode())
            for path, data in made.files().items()
            if not path.endswith(".crc")
        }

    def test_from_a_folder_to_s3(self, made: Handmade, s3_url: str) -> None:
        found = cloned(made, s3_url)
        copied = objects(s3_url)
        assert copied.pop(ORIGIN)
        assert copied == self.expected(made, s3_url.replace("s3://", "s3a://"))
        assert (found.target, found.linked) == (s3_url, 0)

    def test_within_s3(self, made: Handmade, s3_url: str) -> None:
        source = in_s3(made, f"{s3_url}/source")
        before = objects(source)
        clone(open_checkpoint(source), f"{s3_url}/target")
        copied = objects(f"{s3_url}/target")
        assert copied.pop(ORIGIN)
        assert copied == self.expected(made, f"{s3_url}/target".replace("s3://", "s3a://"))
        assert objects(source) == before

    def test_from_s3_to_a_folder(self, made: Handmade, s3_url: str, tmp_path: Path) -> None:
        clone(open_checkpoint(in_s3(made, s3_url)), str(tmp_path / "target"))
        copied = files_of(tmp_path / "target")
        assert copied.pop(ORIGIN)
        assert copied == self.expected(made, f"file:{tmp_path}/target")

    def test_a_target_that_exists(self, made: Handmade, s3_url: str) -> None:
        open_store(s3_url).write("mine", b"mine")
        with pytest.raises(CheckpointRefusedError, match="already there"):
            cloned(made, s3_url)
        assert objects(s3_url) == {"mine": b"mine"}

    def test_a_target_in_the_checkpoint(self, made: Handmade, s3_url: str) -> None:
        source = in_s3(made, s3_url)
        with pytest.raises(CheckpointRefusedError, match="one in the other"):
            clone(open_checkpoint(source), f"{s3_url}/inside")

    def test_a_missing_file(self, made: Handmade, s3_url: str, tmp_path: Path) -> None:
        found = open_checkpoint(in_s3(made, s3_url))
        open_store(s3_url).delete("state/0/1/2.zip")
        with pytest.raises(CheckpointDamagedError, match="no state of version 2 in state/0/1 "):
            clone(found, str(tmp_path / "target"))
