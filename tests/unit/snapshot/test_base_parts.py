"""A base is read only as far as some key groups need it, and what is read is checked."""

from __future__ import annotations

import random
from itertools import combinations_with_replacement

import msgspec
import pyarrow as pa
import pytest

from statecore.errors import CorruptFileError, ManifestError, MissingFileError
from statecore.model import KeyGroupRange, key_group_range
from statecore.snapshot import base_parts, keyed_files
from statecore.snapshot.base_parts import read_keyed
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.compaction import base_tables, carry_out, whole_bases
from statecore.snapshot.keyed_files import decode_base, encode_base, footer_of, read_base
from statecore.snapshot.manifest import FileKind, KeyedFile, SubtaskState, decode_manifest, encode_manifest
from statecore.snapshot.rescale import rescale_by_reference
from statecore.snapshot.restore import apply_keyed_files
from statecore.snapshot.verify import verify
from statecore.state import HeapKeyedStateBackend
from statecore.storage import LocalFileStore, s3_client
from tests.support.handmade import MAX_PARALLELISM, keyed_file, manifest, operator
from tests.support.proxy import proxy_to

PATH = "state/totals/base.parquet"
ROW_GROUPS = 16


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row group for each of 16 key groups, and ranges however small the file is."""
    monkeypatch.setattr(keyed_files, "_ROW_GROUP_ROWS", MAX_PARALLELISM // ROW_GROUPS)
    monkeypatch.setattr(base_parts, "_WHOLE_BYTES", 0)


class Clock:
    def now_ms(self) -> int:
        return 0


def big_base(store: CheckpointStore) -> KeyedFile:
    values = {group: random.Random(group).getrandbits(60) for group in range(MAX_PARALLELISM)}
    return keyed_file(store, PATH, values, (0, MAX_PARALLELISM - 1), kind=FileKind.BASE, token="t")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What was read: first byte and size."""
    seen: list[tuple[int, int]] = []
    read, read_range = LocalFileStore.read, LocalFileStore.read_range

    def whole(store: LocalFileStore, path: str) -> bytes:
        data = read(store, path)
        seen.append((0, len(data)))
        return data

    def ranged(store: LocalFileStore, path: str, start: int, size: int) -> bytes:
        seen.append((start, size))
        return read_range(store, path, start, size)

    monkeypatch.setattr(LocalFileStore, "read", whole)
    monkeypatch.setattr(LocalFileStore, "read_range", ranged)
    return seen


def test_any_key_groups_are_read_as_from_the_whole_file(store: CheckpointStore) -> None:
    item = big_base(store)
    data = store.read_file(item.file)
    for start, end in combinations_with_replacement(range(MAX_PARALLELISM), 2):
        wanted = KeyGroupRange(start, end)
        read = decode_base(read_keyed(store, item, wanted), wanted)
        assert read == decode_base(data, wanted)
        assert read.keys == [(f"k{group}",) for group in range(start, end + 1)]


def test_a_few_key_groups_take_two_requests_of_a_part_of_the_file(
    store: CheckpointStore, requests: list[tuple[int, int]]
) -> None:
    item = big_base(store)
    assert item.footer is not None
    read_keyed(store, item, KeyGroupRange(4, 5))
    footer, rows = requests
    assert footer == (item.footer.start, item.footer.size)
    assert 0 < rows[0] < rows[0] + rows[1] < item.footer.start
    assert rows[1] < item.footer.start / ROW_GROUPS * 3


def test_a_small_base_a_changelog_and_a_base_without_a_footer_take_one_request(
    store: CheckpointStore, requests: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = big_base(store)
    changelog = keyed_file(store, "c", {1: 1}, (0, 15), kind=FileKind.CHANGELOG, token="t")
    read_keyed(store, changelog, KeyGroupRange(0, 1))
    read_keyed(store, msgspec.structs.replace(item, footer=None), KeyGroupRange(0, 1))
    monkeypatch.setattr(base_parts, "_WHOLE_BYTES", item.file.size)
    read_keyed(store, item, KeyGroupRange(0, 1))
    assert requests == [(0, size) for size in (changelog.file.size, item.file.size, item.file.size)]


def test_after_a_rescale_the_subtasks_together_read_little_more_than_the_file_once(
    store: CheckpointStore, requests: list[tuple[int, int]]
) -> None:
    item = big_base(store)
    assert item.footer is not None
    made = manifest(parallelism=1, operators=(operator([SubtaskState(keyed=(item,))]),))
    rescaled = rescale_by_reference(made, 4)
    restored = {}
    for index, subtask in enumerate(rescaled.operators[0].subtasks):
        own = key_group_range(MAX_PARALLELISM, 4, index)
        backend = HeapKeyedStateBackend(MAX_PARALLELISM, own, Clock())
        apply_keyed_files(backend, store, rescaled.operators[0], subtask.keyed, dict.fromkeys(own, 0))
        for group, rows in backend.tables["total"].groups.items():
            restored.update({(group, key): value for key, value in rows.items()})
    rows_read = sum(size for start, size in requests if start != item.footer.start)
    assert len(requests) == 8
    assert rows_read <= item.file.size
    assert {key: value for (_, key), value in restored.items()} == {
        (f"k{group}",): random.Random(group).getrandbits(60) for group in range(MAX_PARALLELISM)
    }


def test_a_merge_after_a_rescale_reads_its_subtasks_part_alone(
    store: CheckpointStore, requests: list[tuple[int, int]]
) -> None:
    item = big_base(store)
    made = manifest(parallelism=1, operators=(operator([SubtaskState(keyed=(item,))]),))
    merges = whole_bases(rescale_by_reference(made, 4))
    (table,) = base_tables(store, merges[1])
    assert table.column("_key_group").to_pylist() == list(range(MAX_PARALLELISM // 4, MAX_PARALLELISM // 2))
    assert sum(size for _, size in requests) < item.file.size


@pytest.mark.parametrize("place", ["footer", "row group"])
def test_damage_where_it_is_read_is_refused_with_the_path(store: CheckpointStore, place: str) -> None:
    item = big_base(store)
    assert item.footer is not None
    data = bytearray(store.files.read(PATH))
    data[item.footer.start + 5 if place == "footer" else item.footer.start - 5] ^= 1
    store.files.write(PATH, bytes(data))
    last = KeyGroupRange(MAX_PARALLELISM - 1, MAX_PARALLELISM - 1)
    with pytest.raises(CorruptFileError, match=rf"found SHA-256 .* of {store.describe(PATH)}; expected .*; restore"):
        read_keyed(store, item, last)
    assert verify(store, manifest(parallelism=1, operators=(operator([SubtaskState(keyed=(item,))]),)))


def test_every_byte_of_a_row_group_is_checked(store: CheckpointStore) -> None:
    item = big_base(store)
    assert item.footer is not None
    data = store.files.read(PATH)
    everything = KeyGroupRange(0, MAX_PARALLELISM - 1)
    # The first four bytes are the format's, and say nothing.
    for place in range(4, item.footer.start, 7):
        damaged = bytearray(data)
        damaged[place] ^= 1
        store.files.write(PATH, bytes(damaged))
        with pytest.raises(CorruptFileError, match=PATH):
            read_keyed(store, item, everything)


@pytest.mark.parametrize("kept", [0, 3, 500, -1])
def test_a_base_that_was_cut_off_or_is_gone_is_refused_with_its_path(store: CheckpointStore, kept: int) -> None:
    item = big_base(store)
    store.files.write(PATH, store.files.read(PATH)[:kept])
    with pytest.raises(CorruptFileError, match=PATH):
        read_keyed(store, item, KeyGroupRange(0, 3))
    store.files.delete(PATH)
    with pytest.raises(MissingFileError, match=PATH):
        read_keyed(store, item, KeyGroupRange(0, 3))


def test_a_merged_base_names_its_footer(store: CheckpointStore) -> None:
    made = manifest(parallelism=1, operators=(operator([SubtaskState(keyed=(big_base(store),))]),))
    (merge,) = whole_bases(made)
    output = carry_out(store, merge, "merged").output
    assert output.footer == footer_of(store.read_file(output.file))
    everything = KeyGroupRange(0, MAX_PARALLELISM - 1)
    assert decode_base(read_keyed(store, output, everything), everything).keys


def test_a_base_of_a_base_has_the_row_groups_of_its_own(store: CheckpointStore) -> None:
    item, wanted = big_base(store), KeyGroupRange(3, 9)
    again = encode_base(read_base(store.read_file(item.file), wanted))
    copy = msgspec.structs.replace(item, file=store.write_file("again", again), footer=footer_of(again))
    assert decode_base(read_keyed(store, copy, wanted), wanted) == decode_base(store.read_file(item.file), wanted)


def test_a_footer_that_does_not_end_with_the_file_is_refused(store: CheckpointStore) -> None:
    item = big_base(store)
    assert item.footer is not None
    wrong = msgspec.structs.replace(item, footer=msgspec.structs.replace(item.footer, start=item.footer.start + 1))
    made = manifest(parallelism=1, operators=(operator([SubtaskState(keyed=(wrong,))]),))
    with pytest.raises(ManifestError, match=r"a footer of \d+ bytes at byte \d+ of 'state/totals/base.parquet'"):
        decode_manifest(encode_manifest(made), "x")


def test_in_s3_a_few_key_groups_are_two_requests_for_ranges(
    s3_endpoint: str, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore.at(s3_url)
    item, wanted = big_base(store), KeyGroupRange(4, 5)
    assert item.footer is not None
    with proxy_to(s3_endpoint) as proxy, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy.url)
        s3_client._client_of.cache_clear()
        read = decode_base(read_keyed(store, item, wanted), wanted)
        seen = list(proxy.seen)
    s3_client._client_of.cache_clear()
    assert read.keys == [("k4",), ("k5",)]
    assert [method for method, _, _ in seen] == ["GET", "GET"]
    ranges = [tuple(map(int, str(header).removeprefix("bytes=").split("-"))) for *_, header in seen]
    assert ranges[0] == (item.footer.start, item.file.size - 1)
    assert 0 < ranges[1][1] - ranges[1][0] < item.footer.start / ROW_GROUPS * 3


def test_an_empty_base_has_no_rows(store: CheckpointStore) -> None:
    columns = {"k": pa.string(), "_key_group": pa.int32(), "_value": pa.int64()}
    data = encode_base(pa.table({name: pa.array([], kind) for name, kind in columns.items()}))
    item = msgspec.structs.replace(big_base(store), file=store.write_file("empty", data), footer=footer_of(data))
    wanted = KeyGroupRange(0, 9)
    assert read_base(read_keyed(store, item, wanted), wanted).num_rows == 0
