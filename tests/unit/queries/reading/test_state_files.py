"""State files of the HDFS-backed provider: which make a version up, what is in them, and how damage shows."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statecore.errors import CheckpointDamagedError
from statecore.queries.providers.hdfs import newest
from statecore.queries.providers.hdfs.codecs import codec
from statecore.queries.providers.hdfs.files import StateFiles
from statecore.queries.providers.hdfs.records import Records, parse, serialise
from statecore.queries.rows.byte_columns import ByteColumn
from statecore.storage import open_store
from tests.support.examples import examples
from tests.unit.queries.handmade import hadoop_checksum

FOLDER = "state/0/1"
CODEC = "spark.sql.streaming.stateStore.compression.codec"
CHECKSUMS = "spark.sql.streaming.stateStore.rowChecksum.enabled"
CODECS = ("lz4", "snappy", "zstd", "lzf")

Change = tuple[bytes, bytes | None]

# Written by Spark 4.3.0: sum and count of eight keys.
OF_SPARK = Path(__file__).with_name("sums.delta")


@dataclass(frozen=True)
class Partition:
    """A state partition to be, and the same as StateFiles."""

    root: Path
    conf: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> StateFiles:
        return StateFiles.of(open_store(str(self.root)), FOLDER, self.conf)

    def path(self, name: str) -> Path:
        return self.root / FOLDER / name

    def write(self, name: str, changes: Iterable[Change], *, end: bytes = b"\xff" * 4, checksum: bool = True) -> None:
        """Write a file as Spark does."""
        has_checksums = self.conf.get(CHECKSUMS) == "true"
        content = b"".join(encode(key, value, has_checksums) for key, value in changes) + end
        self.write_raw(name, codec(self.conf.get(CODEC, "lz4")).compress(memoryview(content)), checksum)

    def write_raw(self, name: str, data: bytes, checksum: bool = True) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        self.path(name).write_bytes(data)
        if checksum:
            self.path(f".{name}.crc").write_bytes(hadoop_checksum(data))

    def load(self, version: int) -> dict[bytes, bytes]:
        return rows(self.files.load(version))


def encode(key: bytes, value: bytes | None, has_checksums: bool = False) -> bytes:
    if value is None:
        key = google_crc32c.value(key).to_bytes(4, "little") + key if has_checksums else key
        return struct.pack(">i", len(key)) + key + struct.pack(">i", -1)
    if has_checksums:
        value = google_crc32c.value(key + value).to_bytes(4, "little") + value
    return struct.pack(">i", len(key)) + key + struct.pack(">i", len(value)) + value


def rows(records: Records) -> dict[bytes, bytes]:
    keys, values = records.keys.to_arrow().to_pylist(), records.values.to_arrow().to_pylist()
    assert len(set(keys)) == len(keys)
    assert keys == list(records.keys.values()) and values == list(records.values.values())
    return dict(zip(keys, values, strict=True))


def key(number: int) -> bytes:
    return struct.pack("<qq", 0, number)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return Partition(tmp_path)


class TestVersions:
    def test_version_zero_has_no_rows(self, partition: Partition) -> None:
        assert partition.load(0) == {}

    def test_deltas_are_applied_from_the_first(self, partition: Partition) -> None:
        partition.write("1.delta", [(key(1), b"one"), (key(2), b"two")])
        partition.write("2.delta", [(key(1), b"1"), (key(3), b"three")])
        partition.write("3.delta", [(key(2), None)])
        assert partition.load(1) == {key(1): b"one", key(2): b"two"}
        assert partition.load(2) == {key(1): b"1", key(2): b"two", key(3): b"three"}
        assert partition.load(3) == {key(1): b"1", key(3): b"three"}

    def test_the_newest_snapshot_that_is_not_newer_comes_first(self, partition: Partition) -> None:
        partition.write("2.snapshot", [(key(2), b"old")])
        partition.write("4.snapshot", [(key(4), b"four")])
        partition.write("5.delta", [(key(5), b"five")])
        partition.write("6.delta", [])
        partition.write("10.snapshot", [(key(10), b"ten")])
        assert partition.load(4) == {key(4): b"four"}
        assert partition.load(6) == {key(4): b"four", key(5): b"five"}
        assert partition.load(10) == {key(10): b"ten"}

    def test_a_key_may_change_several_times_in_one_file(self, partition: Partition) -> None:
        changes = [(key(1), b"a"), (key(2), b"b"), (key(1), None), (key(2), b"c"), (key(3), None), (key(1), b"d")]
        partition.write("1.delta", changes)
        assert partition.load(1) == {key(1): b"d", key(2): b"c"}

    @pytest.mark.parametrize("missing", ("1.delta", "2.delta", "3.delta"))
    def test_a_missing_delta_is_named(self, partition: Partition, missing: str) -> None:
        for version in (1, 2, 3):
            partition.write(f"{version}.delta", [(key(version), b"")])
        partition.path(missing).unlink()
        with pytest.raises(CheckpointDamagedError, match=rf"found no file {FOLDER}/{missing}"):
            partition.load(3)

    def test_a_missing_partition_is_damage(self, partition: Partition) -> None:
        with pytest.raises(CheckpointDamagedError, match=rf"found no file {FOLDER}/1.delta"):
            partition.load(3)
        assert not partition.files.exist()

    def test_a_snapshot_that_removes_is_damage(self, partition: Partition) -> None:
        partition.write("3.snapshot", [(key(1), b""), (key(2), None)])
        with pytest.raises(CheckpointDamagedError, match=rf"removed rows in {FOLDER}/3.snapshot"):
            partition.load(3)

    def test_a_file_that_spark_wrote_is_read(self, partition: Partition) -> None:
        partition.write_raw("1.delta", OF_SPARK.read_bytes())
        found = {
            struct.unpack("<q", name[8:])[0]: struct.unpack("<qq", value[8:])
            for name, value in partition.load(1).items()
        }
        assert found == {
            2: (1146, 12), 4: (1170, 12), 5: (1182, 12), 8: (1218, 12), 12: (1266, 12), 14: (1089, 11), 15: (1100, 11),
            16: (1111, 11),
        }  # fmt: skip


_KEYS = st.integers(0, 12).map(key) | st.sampled_from([b"", b"\0", b"\0\0", key(1) + b"longer" * 9, key(1)[:8]])
_CHANGES = st.tuples(_KEYS, st.none() | st.binary(max_size=3) | st.just(b"v" * 24))
_FILES = st.lists(st.lists(_CHANGES, max_size=40), min_size=1, max_size=4)


def _model(files: Iterable[Iterable[Change]]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for changes in files:
        for name, value in changes:
            if value is None:
                state.pop(name, None)
            else:
                state[name] = value
    return state


class TestRows:
    @examples(200)
    @given(files=_FILES, checksums=st.booleans())
    def test_files_add_up_as_a_dictionary_does(
        self, tmp_path_factory: pytest.TempPathFactory, files: list[list[Change]], checksums: bool
    ) -> None:
        made = Partition(tmp_path_factory.mktemp("state"), {CHECKSUMS: str(checksums).lower()})
        for version, changes in enumerate(files, 1):
            made.write(f"{version}.delta", changes)
        found = made.load(len(files))
        bare = {name: value[4:] for name, value in found.items()} if checksums else found
        assert bare == _model(files)
        assert list(found) == list(dict.fromkeys(found))

    @examples(60)
    @given(files=_FILES)
    def test_keys_whose_hashes_collide_are_told_apart(self, files: list[list[Change]]) -> None:
        parsed = [parse(b"".join(encode(*each) for each in changes) + b"\xff" * 4, "file") for changes in files]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(newest, "_hashes", lambda keys: np.zeros(len(keys), np.uint64))
            assert rows(newest.newest_of_each_key(parsed)) == _model(files)

    @pytest.mark.parametrize("count", (1, 15, 16, 17, 63, 64, 65, 1000))
    def test_runs_of_equal_sizes_and_what_interrupts_them_are_read(self, count: int) -> None:
        run = [(key(number), b"v" * 16) for number in range(count)]
        others = [(key(-1), None), (b"short", b""), (key(-2), b"v" * 17)]
        changes = run + others + [(key(number + count), b"w" * 16) for number in range(count)] + others[:1]
        parsed = parse(b"".join(encode(*each) for each in changes) + b"\xff" * 4, "file")
        assert list(parsed.keys.values()) == [name for name, _ in changes]
        assert parsed.removals.tolist() == [value is None for _, value in changes]
        kept = parsed[~parsed.removals]
        assert list(kept.values.values()) == [value for _, value in changes if value is not None]

    @pytest.mark.parametrize("name", CODECS)
    @pytest.mark.parametrize("changes", ([], [(key(1), b"")], [(key(n), b"v" * (n % 3)) for n in range(999)]), ids=len)
    def test_what_is_saved_is_loaded(self, tmp_path: Path, name: str, changes: list[tuple[bytes, bytes]]) -> None:
        made = Partition(tmp_path, {CODEC: name})
        parts = [changes[:100], changes[100:]]
        contents = [serialise(_column(k for k, _ in part), _column(v for _, v in part)).data for part in parts if part]
        assert made.files.save(7, contents) == made.path("7.snapshot").stat().st_size
        assert made.load(7) == dict(changes)
        assert [each.name for each in made.path("").iterdir()] == ["7.snapshot"]

    def test_state_in_s3_is_saved_and_loaded(self, s3_url: str) -> None:
        files = StateFiles.of(open_store(s3_url), FOLDER, {})
        assert not files.exist()
        files.save(3, [serialise(_column([key(1)]), _column([b"v"])).data])
        assert files.exist()
        assert rows(files.load(3)) == {key(1): b"v"}


def _column(values: Iterable[bytes]) -> ByteColumn:
    return ByteColumn.of(pa.array(values, pa.binary()))


class TestColumns:
    @examples(100)
    @given(values=st.lists(st.binary(max_size=5), max_size=20), start=st.integers(0, 5), stop=st.integers(0, 20))
    def test_a_column_of_arrow_is_described_from_any_slice(self, values: list[bytes], start: int, stop: int) -> None:
        column = ByteColumn.of(pa.array(values, pa.binary())[start:stop])
        assert list(column.values()) == values[start:stop] == column.to_arrow().to_pylist()

    @examples(100)
    @given(
        places=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.booleans()), max_size=12),
        ordered=st.booleans(),
    )
    def test_values_come_from_where_they_lie(self, places: list[tuple[int, int, bool]], ordered: bool) -> None:
        data = bytes(range(40))
        places = sorted(places) if ordered else places
        starts, sizes, valid = (np.array([each[index] for each in places]) for index in range(3))
        column = ByteColumn(np.frombuffer(data, np.uint8), starts.astype(np.int64), sizes.astype(np.int64))
        expected = [data[at : at + size] for at, size, _ in places]
        assert column.to_arrow().to_pylist() == expected
        marked = [value if is_valid else None for value, (_, _, is_valid) in zip(expected, places, strict=True)]
        assert column.to_arrow(valid.astype(np.bool_)).to_pylist() == marked


class TestDamage:
    CHANGES = ((key(1), b"v" * 16), (key(2), b"w" * 16), (key(3), None))

    def test_a_changed_byte_is_found_by_the_checksum_beside_the_file(self, partition: Partition) -> None:
        partition.write("1.delta", self.CHANGES)
        whole = partition.path("1.delta").read_bytes()
        for at in range(len(whole)):
            partition.path("1.delta").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(CheckpointDamagedError, match=f"{FOLDER}/1.delta"):
                partition.load(1)

    @pytest.mark.parametrize("name", CODECS)
    def test_a_cut_file_is_found_at_every_length(self, tmp_path: Path, name: str) -> None:
        made = Partition(tmp_path, {CODEC: name})
        made.write("1.delta", self.CHANGES, checksum=False)
        whole = made.path("1.delta").read_bytes()
        for size in range(len(whole)):
            made.write_raw("1.delta", whole[:size], checksum=False)
            with pytest.raises(CheckpointDamagedError, match=f"of what {FOLDER}/1.delta holds|of {FOLDER}/1.delta"):
                made.load(1)

    def test_a_stale_checksum_is_damage(self, partition: Partition) -> None:
        partition.write("1.delta", self.CHANGES)
        partition.write("1.delta", self.CHANGES[:1], checksum=False)
        with pytest.raises(
            CheckpointDamagedError, match=f"{FOLDER}/1.delta in the checkpoint .* checksum file {FOLDER}/.1.delta.crc"
        ):
            partition.load(1)

    @pytest.mark.parametrize("by", (0, 1))
    def test_sparks_own_checksum_is_compared(self, partition: Partition, by: int) -> None:
        partition.write("1.delta", self.CHANGES, checksum=False)
        data = partition.path("1.delta").read_bytes()
        signed = struct.unpack("<i", struct.pack("<I", google_crc32c.value(data) ^ by))[0]
        partition.path("1.delta.crc").write_text(
            f'{{"algorithm":"CRC32C","value":{signed},"mainFileSize":{len(data)}}}'
        )
        if by == 0:
            assert len(partition.load(1)) == 2
            return
        with pytest.raises(CheckpointDamagedError, match=f"different from its checksum file {FOLDER}/1.delta.crc"):
            partition.load(1)

    SIZES = struct.Struct(">i")

    @pytest.mark.parametrize(
        ("content", "found"),
        (
            (b"", "the end of the file without an end mark at byte 0"),
            (encode(b"key", b"value"), "the end of the file without an end mark at byte 16"),
            (encode(b"key", b"value") + b"\xff" * 4 + b"more", "4 bytes after the end mark at byte 16"),
            (SIZES.pack(-2) + bytes(20), "a key of -2 bytes, and 24 bytes until the end at byte 0"),
            (SIZES.pack(99) + bytes(20), "a key of 99 bytes, and 24 bytes until the end at byte 0"),
            (SIZES.pack(1) + b"k" + SIZES.pack(-3) + bytes(9), "a value of -3 bytes, and 18 bytes"),
            (SIZES.pack(1) + b"k" + SIZES.pack(99) + bytes(9), "a value of 99 bytes, and 18 bytes"),
            (SIZES.pack(2**31 - 1) + bytes(20), "a key of 2,147,483,647 bytes"),
        ),
    )
    def test_sizes_that_cannot_be_true_are_found(self, content: bytes, found: str) -> None:
        with pytest.raises(CheckpointDamagedError, match=f"found {found}.*some/file"):
            parse(content, "some/file")

    @examples(200)
    @given(at=st.integers(0, 10_000), to=st.integers(0, 255), cut=st.integers(0, 10_000))
    def test_any_damage_to_records_is_an_error_or_other_records(self, at: int, to: int, cut: int) -> None:
        whole = bytearray(b"".join(encode(key(n), b"v" * (16 if n < 40 else n % 5)) for n in range(60)) + b"\xff" * 4)
        whole[at % len(whole)] = to
        del whole[max(cut % len(whole), 1) :]
        with pytest.raises(CheckpointDamagedError):
            parse(bytes(whole), "file")


class TestRowChecksums:
    CONF: ClassVar[Mapping[str, str]] = {CHECKSUMS: "true"}
    CHANGES: ClassVar[tuple[Change, ...]] = ((key(1), b"v" * 16), (key(2), b"w" * 3), (key(1), None), (key(3), b""))

    def test_rows_keep_their_checksums_and_removals_find_their_keys(self, tmp_path: Path) -> None:
        made = Partition(tmp_path, self.CONF)
        made.write("1.delta", self.CHANGES)
        expected = {key(2): b"w" * 3, key(3): b""}
        found = made.load(1)
        assert {name: value[4:] for name, value in found.items()} == expected
        made.files.save(2, [serialise(_column(found), _column(found.values())).data])
        assert made.load(2) == found

    @pytest.mark.parametrize("at", range(len(b"".join(encode(*each, True) for each in CHANGES))))
    def test_a_changed_byte_is_found(self, tmp_path: Path, at: int) -> None:
        made = Partition(tmp_path, self.CONF)
        content = bytearray(b"".join(encode(*each, True) for each in self.CHANGES) + b"\xff" * 4)
        content[at] ^= 1
        made.write_raw("1.delta", codec("lz4").compress(memoryview(bytes(content))))
        with pytest.raises(CheckpointDamagedError, match=r"1\.delta"):
            made.load(1)

    def test_rows_without_a_checksum_are_damage(self, tmp_path: Path) -> None:
        Partition(tmp_path).write("1.delta", [(b"k", b"v")])
        with pytest.raises(CheckpointDamagedError, match=r"record 0 of .*1.delta without a checksum"):
            Partition(tmp_path, self.CONF).load(1)
