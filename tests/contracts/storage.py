"""What every store promises, wherever its files are.

A folder of tests gives it the fixtures ``url``, of a new and empty store, and ``store``.
"""

from __future__ import annotations

import io
import os
import pickle
import random
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statecore.errors import AlreadyExistsError, MissingFileError, UnsafePathError
from statecore.storage import FileStore, open_store
from tests.support.racers import CONTEXT, racer
from tests.support.waiting import PATIENCE_S

RACERS, ROUNDS = 4, 25
# Stores may send more than 16 MiB in parts.
LARGE = 2 * 16 * 2**20 + 12_345


def paths(store: FileStore, folder: str) -> list[str]:
    return [entry.path for entry in store.list(folder)]


def test_what_is_written_is_read_back_whole_and_may_be_empty(store: FileStore) -> None:
    data = bytes(range(256)) * 5000
    store.write("a/b/c.bin", data)
    store.write("a/empty", b"")

    assert store.read("a/b/c.bin") == data
    assert store.read("a/empty") == b""
    assert (store.size("a/b/c.bin"), store.size("a/empty")) == (len(data), 0)


def test_a_large_file_is_written_moved_and_read_whole(store: FileStore) -> None:
    data = random.Random(1).randbytes(LARGE)
    store.write("large", data)
    store.move("large", "moved/large")

    assert store.read("moved/large") == data
    assert paths(store, "moved") == ["moved/large"]
    assert store.size("large") is None


def test_a_path_has_one_file_however_it_is_spelled(store: FileStore) -> None:
    store.write("a//b", b"1")
    assert store.read("a/./b") == store.read("./a/b") == store.read("a/b/") == b"1"
    assert paths(store, "./a/") == ["a/b"]


@pytest.mark.parametrize("name", ["a b", "50% #1?x=+&", "ключ", "a%20b", "a:b", "$x'\"<>"])
def test_names_may_hold_any_other_character(store: FileStore, name: str) -> None:
    store.write(f"m/{name}", b"1")
    store.move(f"m/{name}", f"n/{name}")
    assert store.read(f"n/{name}") == b"1"
    assert paths(store, "n") == [f"n/{name}"]


def test_a_store_works_in_the_process_that_it_is_sent_to(store: FileStore) -> None:
    store.write("a", b"1")
    sent = pickle.loads(pickle.dumps(store))
    assert sent.url == store.url
    assert sent.read("a") == b"1"


def test_writing_again_replaces_the_file(store: FileStore) -> None:
    store.write("a", b"long old content")
    store.write("a", b"new")
    assert store.read("a") == b"new"


def test_the_url_opens_the_same_store_again(store: FileStore) -> None:
    store.write("a", b"1")
    assert open_store(store.url).read("a") == b"1"


def test_an_open_file_can_be_read_from_any_offset(store: FileStore) -> None:
    store.write("a/b", b"0123456789")
    with store.open_input("a/b") as file:
        file.seek(6)
        assert file.read(2) == b"67"
        assert file.size() == 10


def test_a_range_is_read_alone_and_ends_with_the_file(store: FileStore) -> None:
    store.write("a/b", b"0123456789")
    assert store.read_range("a/b", 3, 4) == b"3456"
    assert store.read_range("a/b", 0, 10) == b"0123456789"
    assert store.read_range("a/b", 8, 5) == b"89"
    assert store.read_range("a/b", 10, 1) == b""


def test_one_column_of_a_parquet_file_can_be_read(store: FileStore) -> None:
    table = pa.table({"key": range(50_000), "payload": random.Random(2).choices(["x" * 40, "y" * 40, "z"], k=50_000)})
    written = io.BytesIO()
    pq.write_table(table, written, row_group_size=10_000)
    store.write("state/part.parquet", written.getvalue())

    with store.open_input("state/part.parquet") as file, pq.ParquetFile(file) as parquet:
        assert parquet.read_row_group(3, columns=["key"]) == table.select(["key"]).slice(30_000, 10_000)
        assert parquet.read() == table


@pytest.mark.parametrize("path", ["nothing", "no/folder/either", "folder", "folder/file/below"])
def test_what_is_no_file_is_named_as_missing_and_deleted_without_error(store: FileStore, path: str) -> None:
    store.write("folder/file", b"1")

    for read in (store.read, store.open_input, lambda path: store.read_range(path, 0, 1)):
        with pytest.raises(MissingFileError) as raised:
            read(path)
        assert f"{store.url}/{path}" in str(raised.value)
    assert store.size(path) is None
    store.delete(path)
    assert paths(store, "folder") == ["folder/file"]


@pytest.mark.parametrize("path", ["nothing", "no/folder/either", "folder", "folder/file/below"])
def test_what_is_not_there_cannot_be_moved(store: FileStore, path: str) -> None:
    store.write("folder/file", b"1")
    with pytest.raises(MissingFileError) as raised:
        store.move(path, "target")
    assert f"{store.url}/{path}" in str(raised.value)
    assert paths(store, "folder") == ["folder/file"]


def test_a_listing_holds_the_files_below_a_folder_sorted(store: FileStore) -> None:
    for path in ("m/2", "m/1", "m/deep/er/0", "n/1", "mm/1"):
        store.write(path, b"")

    assert paths(store, "m") == ["m/1", "m/2", "m/deep/er/0"]
    assert paths(store, "m/deep") == ["m/deep/er/0"]
    assert paths(store, "nothing") == []


def test_a_listing_may_begin_after_a_path(store: FileStore) -> None:
    for path in ("m/1", "m/2", "m/deep/er/0", "n/1"):
        store.write(path, b"")

    assert [entry.path for entry in store.list("m", after="m/1")] == ["m/2", "m/deep/er/0"]
    assert [entry.path for entry in store.list("m", after="m/15")] == ["m/2", "m/deep/er/0"]
    assert store.list("m", after="m/deep/er/0") == []


def test_a_long_listing_is_whole(store: FileStore) -> None:
    # S3 answers in pages, which are short in tests.
    names = [f"m/{number:03d}" for number in range(101)]
    for name in reversed(names):
        store.write(name, b"")
    assert paths(store, "m") == names


def test_an_entry_says_how_large_a_file_is_and_when_it_was_written(store: FileStore) -> None:
    # S3 timestamps have whole seconds, and a file system's clock is milliseconds behind.
    before_ms = int(time.time() - 1) * 1000
    store.write("m/1", b"123")
    store.put_if_absent("m/2", b"")
    after_ms = time.time() * 1000

    entries = store.list("m")
    assert [(entry.path, entry.size) for entry in entries] == [("m/1", 3), ("m/2", 0)]
    assert all(before_ms <= entry.modified_ms <= after_ms for entry in entries)


def test_deleting_is_done_once_and_harmless_twice(store: FileStore) -> None:
    store.write("a/b", b"1")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")
    assert (store.size("a/b"), paths(store, "a")) == (None, [])


def test_many_files_are_deleted_at_once_and_others_stay(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of S3, in several requests.
    monkeypatch.setattr("statecore.storage.s3._KEYS_IN_REQUEST", 10)
    names = [f"m/{number:04d}" for number in range(23)]
    for name in (*names, "m/stays", "mm/stays", "top"):
        store.write(name, b"")
    store.delete_all(iter(["m/was-gone", *names, "never/was", "top"]))
    assert paths(store, "m") == ["m/stays"]
    assert paths(store, "mm") == ["mm/stays"]
    assert store.size("top") is None
    store.delete_all([])


def test_deleting_many_refuses_a_path_that_leaves_the_root(store: FileStore) -> None:
    store.write("a", b"1")
    with pytest.raises(UnsafePathError):
        store.delete_all(["../a"])
    assert store.read("a") == b"1"


def test_the_folders_below_a_folder_are_listed_without_their_files(store: FileStore) -> None:
    for path in ("m/2/x", "m/1/deep/x", "m/file", "mm/3/x"):
        store.write(path, b"")
    assert store.folders("m") == ["m/1", "m/2"]
    assert store.folders("m/1") == ["m/1/deep"]
    assert store.folders("nothing") == []


def test_sweeping_keeps_every_file(store: FileStore) -> None:
    store.write("m/1/x", b"1")
    store.sweep("m", 2**50)
    store.sweep("nothing", 2**50)
    assert store.read("m/1/x") == b"1"


def test_moving_keeps_the_content_and_replaces_what_was_there(store: FileStore) -> None:
    store.write("staged/x", b"new")
    store.write("final/deep/x", b"old")

    store.move("staged/x", "final/deep/x")

    assert store.read("final/deep/x") == b"new"
    assert paths(store, "staged") == []


def test_moving_a_file_to_where_it_is_keeps_it(store: FileStore) -> None:
    store.write("a/x", b"1")
    store.move("a/x", "a//x")
    assert store.read("a/x") == b"1"


def test_a_lost_put_if_absent_changes_nothing(store: FileStore) -> None:
    store.put_if_absent("m/1", b"first")
    with pytest.raises(AlreadyExistsError, match=r"m/1.*expected.*discard"):
        store.put_if_absent("m/1", b"second")
    assert store.read("m/1") == b"first"
    assert paths(store, "m") == ["m/1"]


def test_after_a_delete_the_name_is_free_again(store: FileStore) -> None:
    store.put_if_absent("m/1", b"first")
    store.delete("m/1")
    store.put_if_absent("m/1", b"second")
    assert store.read("m/1") == b"second"


ESCAPES = ["..", "../x", "a/../../x", "a/..", "/etc/passwd", "a\0b", "a\\..\\b", "", "."]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_method_follows_a_path_out_of_the_root(store: FileStore, path: str) -> None:
    store.write("a/x", b"1")
    uses: list[Callable[[], Any]] = [
        lambda: store.write(path, b""),
        lambda: store.put_if_absent(path, b""),
        lambda: store.read(path),
        lambda: store.read_range(path, 0, 1),
        lambda: store.open_input(path),
        lambda: store.size(path),
        lambda: store.list(path),
        lambda: store.move("a/x", path),
        lambda: store.move(path, "b/x"),
        lambda: store.delete(path),
    ]
    for use in uses:
        with pytest.raises(UnsafePathError, match="expected a relative path"):
            use()
    assert paths(store, "a") == ["a/x"]


def _content(number: int, turn: int) -> bytes:
    # Far larger than a pipe or a page, so that a half-written winner would show.
    return f"{number}-{turn};".encode() * 20_000


def _race(url: str, number: int, barrier: Barrier, results: Any) -> None:
    store = open_store(url)
    for turn in range(ROUNDS):
        barrier.wait(PATIENCE_S)
        try:
            store.put_if_absent(f"m/{turn}", _content(number, turn))
        except AlreadyExistsError:
            # Once a writer has lost, the winner's file is complete.
            results.put((turn, number, False, store.read(f"m/{turn}") in [_content(r, turn) for r in range(RACERS)]))
        else:
            results.put((turn, number, True, store.read(f"m/{turn}") == _content(number, turn)))


def test_of_processes_that_race_for_a_name_exactly_one_wins_and_its_content_is_whole(url: str) -> None:
    barrier, results = CONTEXT.Barrier(RACERS, timeout=PATIENCE_S), CONTEXT.Queue()
    racers = [racer(_race, url, number, barrier, results) for number in range(RACERS)]
    found = [results.get(timeout=PATIENCE_S) for _ in range(RACERS * ROUNDS)]
    for process in racers:
        process.join(30)

    store = open_store(url)
    for turn in range(ROUNDS):
        winners = [number for at, number, won, _ in found if at == turn and won]
        assert len(winners) == 1, f"round {turn}: {winners}"
        assert store.read(f"m/{turn}") == _content(winners[0], turn)
    assert all(whole for *_, whole in found)
    assert paths(store, "m") == sorted(f"m/{turn}" for turn in range(ROUNDS))


def _write_until_killed(url: str, size: int, started: Any) -> None:
    store = open_store(url)
    started.set()
    while True:
        store.write("state/file", b"x" * size)
        store.delete("state/file")


@pytest.mark.parametrize("size", [4_000_000, LARGE])
def test_a_killed_writer_leaves_nothing_that_a_listing_shows_in_part(url: str, size: int) -> None:
    started = CONTEXT.Event()
    writer = racer(_write_until_killed, url, size, started)
    store = open_store(url)
    seen: set[int | None] = set()
    looks = 0
    try:
        assert started.wait(PATIENCE_S)
        while looks < 100 or not seen:
            looks += 1
            seen |= {store.size("state/file")} - {None}
    finally:
        os.kill(writer.pid or 0, 9)
        writer.join(30)

    assert seen == {size}
    assert [(entry.path, entry.size) for entry in store.list("state")] in ([], [("state/file", size)])
    assert store.size("state/file") in (None, size)
