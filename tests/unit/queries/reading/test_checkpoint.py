"""What a checkpoint says, and what is wrong with one that is not whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from statecore.errors import CheckpointDamagedError, CheckpointRefusedError
from statecore.queries.reading.checkpoint import open_checkpoint, require_unchanged
from statecore.storage import open_store
from statecore.storage.base import FileEntry
from statecore.storage.local import LocalFileStore
from tests.unit.queries.handmade import (
    JOIN,
    JOIN_STORES,
    PANDAS,
    QUERY_ID,
    ROCKSDB,
    Handmade,
    Operator,
    commit,
    hadoop_checksum,
    make,
    spark_checksum,
)


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator(partitions=3))


def test_it_stands_at_the_newest_committed_batch(made: Handmade) -> None:
    found = open_checkpoint(str(made.root))
    assert (found.query_id, found.batch, found.pending, found.version) == (QUERY_ID, 1, None, 2)
    assert (found.provider, found.partitions, found.checkpoint_format) == ("hdfs", 3, 1)
    assert found.url == str(made.root)
    assert list(found.offsets) == [1]
    assert found.offsets[1].sources == ('{"logOffset":1}',)
    assert found.offsets[1].watermark_ms == 1000


def test_a_batch_that_is_logged_and_not_committed_is_pending(tmp_path: Path) -> None:
    found = open_checkpoint(str(make(tmp_path / "checkpoint", Operator(), pending=True).root))
    assert (found.batch, found.pending, list(found.offsets)) == (1, 2, [1, 2])


def test_it_names_its_operators_and_their_stores(tmp_path: Path) -> None:
    properties = {"stateVariables": [{"stateName": "seen", "stateVariableType": "ListState"}]}
    made = make(
        tmp_path / "checkpoint",
        Operator(),
        Operator(JOIN, JOIN_STORES),
        Operator(PANDAS, version=2, properties=properties),
        provider=ROCKSDB,
        unique_ids=True,
    )
    found = open_checkpoint(str(made.root))
    assert [each.kind for each in found.operators] == [
        "aggregation",
        "stream-stream join",
        "transformWithStateInPandas",
    ]
    assert [each.metadata_version for each in found.operators] == [1, 1, 2]
    assert [each.has_lists for each in found.operators] == [False, False, True]
    assert [store.name for store in found.operators[1].stores] == list(JOIN_STORES)
    assert found.operators[1].stores[2].folder(1) == "state/1/1/right-keyToNumValues"
    assert found.operators[2].schemas == ("state/2/_stateSchema/default/0_fea84036",)
    assert all(open_store(found.url).size(path) for each in found.operators for path in each.schemas)
    assert (found.provider, found.checkpoint_format) == ("rocksdb", 2)
    assert found.commit.unique_ids is not None
    assert found.commit.unique_ids[1][0] == tuple(f"id-1-0-{store}-2" for store in range(4))


def test_metadata_counts_from_its_batch_on(tmp_path: Path) -> None:
    made = make(tmp_path / "checkpoint", Operator(PANDAS, version=2), provider=ROCKSDB)
    newest = json.loads((made.root / "state/0/_metadata/v2/0").read_text().split("\n")[1])
    for batch, name in ((1, "dedupe"), (2, "globalLimit")):
        newest["operatorInfo"]["operatorName"] = name
        made.write(f"state/0/_metadata/v2/{batch}", f"v2\n{json.dumps(newest)}")
    (operator,) = open_checkpoint(str(made.root)).operators
    assert (operator.name, operator.metadata_path) == ("dedupe", "state/0/_metadata/v2/1")


def test_an_operator_without_metadata_is_there(made: Handmade) -> None:
    shutil.rmtree(made.root / "state/0/_metadata")
    (operator,) = open_checkpoint(str(made.root)).operators
    assert (operator.metadata_version, operator.stores, operator.partitions) == (0, (), 0)


def test_a_query_without_state_has_no_operators(tmp_path: Path) -> None:
    found = open_checkpoint(str(make(tmp_path / "checkpoint").root))
    assert (found.operators, found.partitions) == ((), 2)


def test_it_may_lie_behind_a_link(made: Handmade, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(made.root)
    assert open_checkpoint(str(tmp_path / "link")).batch == 1


def test_it_may_lie_in_s3_under_sparks_scheme(made: Handmade, s3_url: str) -> None:
    store = open_store(s3_url)
    for path, data in made.files().items():
        store.write(path, data)
    found = open_checkpoint(s3_url.replace("s3://", "s3a://"))
    assert (found.url, found.batch, found.partitions) == (s3_url, 1, 3)


class TestRefused:
    def test_a_folder_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CheckpointRefusedError, match=r"found no checkpoint .*; expected .*; give the folder"):
            open_checkpoint(str(tmp_path))

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointRefusedError, match="found no checkpoint"):
            open_checkpoint(str(tmp_path / "nowhere"))

    def test_a_query_without_a_committed_batch(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator(), batches=0, pending=True)
        with pytest.raises(CheckpointRefusedError, match=r"no committed batch .*; let the query complete a batch"):
            open_checkpoint(str(made.root))

    @pytest.mark.parametrize("path", ["offsets/1", "commits/1", "state/0/_metadata/metadata"])
    def test_a_version_of_the_future(self, made: Handmade, path: str) -> None:
        made.write(path, (made.root / path).read_text().replace("v1", "v9", 1))
        with pytest.raises(CheckpointRefusedError, match=f"found {path} .* of version 9; expected .*; use a release"):
            open_checkpoint(str(made.root))

    def test_a_copy_that_is_not_whole(self, made: Handmade) -> None:
        made.write(".statecore-incomplete", "token")
        with pytest.raises(CheckpointRefusedError, match=r"a copy .* that is not whole"):
            open_checkpoint(str(made.root))


LOGS = ["metadata", "offsets/1", "commits/1", "state/0/_metadata/metadata"]
GARBAGE: list[tuple[str, str | bytes]] = [
    (path, data)
    for path in LOGS
    for data in ("", "garbage", "v1", "v1\n{", "v1\n[]", b"\xff\xfe", "vx\n{}")
    # A commit may have one line.
    if (path, data) != ("commits/1", "v1")
]


class TestDamaged:
    @pytest.mark.parametrize(("path", "data"), GARBAGE, ids=[f"{path} {data!r}" for path, data in GARBAGE])
    def test_garbage(self, made: Handmade, path: str, data: str | bytes) -> None:
        made.write(path, data)
        with pytest.raises(CheckpointDamagedError, match=f"found {path} .*; expected .*; restore"):
            open_checkpoint(str(made.root))

    @pytest.mark.parametrize("path", LOGS)
    def test_a_flipped_byte(self, made: Handmade, path: str) -> None:
        file = made.root / path
        file.write_bytes(file.read_bytes()[:-3] + b"x" + file.read_bytes()[-2:])
        with pytest.raises(CheckpointDamagedError, match=f"found {path} .*checksum"):
            open_checkpoint(str(made.root))

    @pytest.mark.parametrize("path", LOGS)
    def test_a_truncated_file(self, made: Handmade, path: str) -> None:
        file = made.root / path
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(CheckpointDamagedError, match=f"found {path} .*checksum"):
            open_checkpoint(str(made.root))

    @pytest.mark.parametrize("path", ["metadata", "offsets/1"])
    def test_a_missing_file(self, made: Handmade, path: str) -> None:
        made.remove(path)
        if path == "offsets/1":
            made.write("offsets/2", "v1\n{}")
        with pytest.raises(CheckpointDamagedError, match=f"found no file {path}"):
            open_checkpoint(str(made.root))

    def test_a_missing_newest_log(self, made: Handmade) -> None:
        made.remove("offsets/1")
        with pytest.raises(CheckpointDamagedError, match="commits up to batch 1 and offsets up to batch 0"):
            open_checkpoint(str(made.root))

    def test_two_batches_ahead(self, made: Handmade) -> None:
        made.write("offsets/3", "v1\n{}")
        with pytest.raises(CheckpointDamagedError, match="offsets up to batch 3"):
            open_checkpoint(str(made.root))

    def test_a_size_that_differs_from_sparks_own_checksum(self, made: Handmade) -> None:
        made.write("commits/1.crc", '{"algorithm":"CRC32C","value":-1,"mainFileSize":3}', checksum=False)
        with pytest.raises(CheckpointDamagedError, match=r"different from its checksum file commits/1\.crc"):
            open_checkpoint(str(made.root))

    def test_a_byte_that_differs_from_sparks_own_checksum(self, made: Handmade) -> None:
        data = (made.root / "commits/1").read_bytes()
        made.write("commits/1.crc", spark_checksum(data))
        assert open_checkpoint(str(made.root)).batch == 1
        made.write("commits/1", data.replace(b"1000", b"1001"))
        with pytest.raises(CheckpointDamagedError, match=r"different from its checksum file commits/1\.crc"):
            open_checkpoint(str(made.root))

    def test_a_checksum_that_is_garbage(self, made: Handmade) -> None:
        made.write("commits/1.crc", "nothing", checksum=False)
        with pytest.raises(CheckpointDamagedError, match=r"different from its checksum file commits/1\.crc"):
            open_checkpoint(str(made.root))
        (made.root / "commits/1.crc").unlink()
        (made.root / "commits/.1.crc").write_bytes(b"crc\0\0\0\0\0")
        with pytest.raises(CheckpointDamagedError, match=r"different from its checksum file commits/\.1\.crc"):
            open_checkpoint(str(made.root))

    def test_metadata_of_another_operator(self, made: Handmade) -> None:
        shutil.move(made.root / "state/0", made.root / "state/4")
        with pytest.raises(CheckpointDamagedError, match=r"found operator 0 .*; expected operator 4"):
            open_checkpoint(str(made.root))

    def test_a_schema_outside_of_the_checkpoint(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator(PANDAS, version=2), provider=ROCKSDB)
        path = "state/0/_metadata/v2/0"
        made.write(path, (made.root / path).read_text().replace("/_stateSchema/", "/other/"))
        with pytest.raises(CheckpointDamagedError, match="found the schema file"):
            open_checkpoint(str(made.root))


WHOLE = '{"batchWatermarkMs":2000,"batchTimestampMs":0,"conf":{}}'
CUT: list[str | bytes] = [
    "", "v", "v1", "v1\n", 'v1\n{"batchWater', f"v1\n{WHOLE}", f"v1\n{WHOLE}\n", f'v1\n{WHOLE}\n{{"logOf',
    b"v1\n" + bytes(20), b"\xff\xfe",
]  # fmt: skip


class TestCutLogOfABatchThatIsNotCommitted:
    """Spark 4.3.0 does not start a query with any of them, and plans the batch anew without the file."""

    @pytest.fixture
    def made(self, tmp_path: Path) -> Handmade:
        return make(tmp_path / "checkpoint", Operator(), pending=True)

    @pytest.mark.parametrize("checksum", ["none", "of what is there", "of the whole file"])
    @pytest.mark.parametrize("data", CUT, ids=repr)
    def test_it_need_not_come_from_a_backup(self, made: Handmade, data: str | bytes, checksum: str) -> None:
        path, crc = made.root / "offsets/2", made.root / "offsets/.2.crc"
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        if checksum == "none":
            crc.unlink()
        elif checksum == "of what is there":
            crc.write_bytes(hadoop_checksum(path.read_bytes()))
        with pytest.raises(CheckpointDamagedError) as raised:
            open_checkpoint(str(made.root))
        message = str(raised.value)
        assert message.startswith(f"found offsets/2 in the checkpoint {made.root} not whole, the log of a batch that")
        assert "if no sink has rows of batch 2, remove offsets/2 and offsets/.2.crc" in message
        made.remove("offsets/2")
        assert open_checkpoint(str(made.root)).pending is None

    def test_a_whole_one_with_a_wrong_checksum_is_not_called_cut(self, made: Handmade) -> None:
        (made.root / "offsets/.2.crc").write_bytes(hadoop_checksum(b"other"))
        with pytest.raises(CheckpointDamagedError, match="checksum") as raised:
            open_checkpoint(str(made.root))
        assert "not whole" not in str(raised.value)

    def test_that_of_a_committed_batch_is_damage(self, made: Handmade) -> None:
        made.write("offsets/1", "v1\n")
        with pytest.raises(CheckpointDamagedError, match=r"found offsets/1 .*; restore the checkpoint"):
            open_checkpoint(str(made.root))


class TestRunning:
    """A query that goes on while its checkpoint is opened."""

    def during(self, monkeypatch: pytest.MonkeyPatch, log: str, act: Callable[[], None]) -> None:
        """Act just after each listing of a log."""
        listed = LocalFileStore.list

        def acting(store: LocalFileStore, prefix: str, *, after: str = "") -> list[FileEntry]:
            found = listed(store, prefix, after=after)
            if prefix == log:
                act()
            return found

        monkeypatch.setattr(LocalFileStore, "list", acting)

    def batch(self, made: Handmade, batch: int) -> None:
        made.write(f"offsets/{batch}", (made.root / "offsets/1").read_text())
        made.write(f"commits/{batch}", commit(batch))

    def test_batches_between_the_listings_of_the_two_logs_are_no_contradiction(
        self, made: Handmade, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def go_on() -> None:
            if not (made.root / "commits/3").exists():
                for batch in (2, 3):
                    self.batch(made, batch)

        self.during(monkeypatch, "commits", go_on)
        assert open_checkpoint(str(made.root)).batch == 3

    def test_a_log_that_the_query_has_removed_is_not_missing(
        self, made: Handmade, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def go_on() -> None:
            if (made.root / "offsets/0").exists():
                self.batch(made, 2)
                for batch in (0, 1):
                    made.remove(f"offsets/{batch}")
                    made.remove(f"commits/{batch}")

        self.during(monkeypatch, "offsets", go_on)
        assert open_checkpoint(str(made.root)).batch == 2

    def test_a_log_that_is_missing_while_no_query_runs_is_damage(self, made: Handmade) -> None:
        (made.root / "commits/1").write_bytes(b"")
        with pytest.raises(CheckpointDamagedError, match="found commits/1"):
            open_checkpoint(str(made.root))


class TestUnchanged:
    def test_a_query_that_is_stopped(self, made: Handmade) -> None:
        require_unchanged(open_checkpoint(str(made.root)))

    def test_a_query_that_logs_a_batch(self, made: Handmade) -> None:
        found = open_checkpoint(str(made.root))
        made.write("offsets/2", "v1\n{}")
        with pytest.raises(CheckpointRefusedError, match=r"batch 2 logged .*; stop the query"):
            require_unchanged(found)

    def test_a_query_that_commits_the_pending_batch(self, tmp_path: Path) -> None:
        made = make(tmp_path / "checkpoint", Operator(), pending=True)
        found = open_checkpoint(str(made.root))
        made.write("commits/2", commit(2))
        with pytest.raises(CheckpointRefusedError, match="batch 2 committed"):
            require_unchanged(found)
