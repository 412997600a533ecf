"""What every store promises, whatever lies behind it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from statecore.errors import AlreadyExistsError, MissingFileError, UnsafePathError
from statecore.storage import FileStore, open_store

RACERS, ROUNDS = 4, 25


def test_what_is_written_is_read_back_whole_and_may_be_empty(store: FileStore) -> None:
    data = bytes(range(256)) * 5000
    store.write("a/b/c.bin", data)
    store.write("a/empty", b"")

    assert store.read("a/b/c.bin") == data
    assert store.read("a/empty") == b""
    assert (store.size("a/b/c.bin"), store.size("a/empty")) == (len(data), 0)


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


@pytest.mark.parametrize("path", ["nothing", "no/folder/either", "folder", "folder/file/below"])
def test_what_is_no_file_is_named_as_missing_and_deleted_without_error(store: FileStore, path: str) -> None:
    store.write("folder/file", b"1")

    for read in (store.read, store.open_input):
        with pytest.raises(MissingFileError) as raised:
            read(path)
        assert f"{store.url}/{path}" in str(raised.value)
    assert store.size(path) is None
    store.delete(path)
    assert store.list("folder") == ["folder/file"]


@pytest.mark.parametrize("path", ["nothing", "no/folder/either", "folder/file/below"])
def test_what_is_not_there_cannot_be_moved(store: FileStore, path: str) -> None:
    store.write("folder/file", b"1")
    with pytest.raises(MissingFileError) as raised:
        store.move(path, "target")
    assert f"{store.url}/{path}" in str(raised.value)
    assert store.list("folder") == ["folder/file"]


def test_a_listing_holds_the_files_below_a_folder_sorted(store: FileStore) -> None:
    for path in ("m/2", "m/1", "m/deep/er/0", "n/1", "mm/1"):
        store.write(path, b"")

    assert store.list("m") == ["m/1", "m/2", "m/deep/er/0"]
    assert store.list("m/deep") == ["m/deep/er/0"]
    assert store.list("nothing") == []


def test_deleting_is_done_once_and_harmless_twice(store: FileStore) -> None:
    store.write("a/b", b"1")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")
    assert (store.size("a/b"), store.list("a")) == (None, [])


def test_moving_keeps_the_content_and_replaces_what_was_there(store: FileStore) -> None:
    store.write("staged/x", b"new")
    store.write("final/deep/x", b"old")

    store.move("staged/x", "final/deep/x")

    assert store.read("final/deep/x") == b"new"
    assert store.list("staged") == []


def test_a_lost_put_if_absent_changes_nothing(store: FileStore) -> None:
    store.put_if_absent("m/1", b"first")
    with pytest.raises(AlreadyExistsError, match=r"m/1.*expected.*discard"):
        store.put_if_absent("m/1", b"second")
    assert store.read("m/1") == b"first"
    assert store.list("m") == ["m/1"]


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
    assert store.list("a") == ["a/x"]


def _content(racer: int, turn: int) -> bytes:
    # Far larger than a pipe or a page, so that a half-written winner would show.
    return f"{racer}-{turn};".encode() * 20_000


def _race(url: str, racer: int, barrier: Barrier, results: Any) -> None:
    store = open_store(url)
    for turn in range(ROUNDS):
        barrier.wait(60)
        try:
            store.put_if_absent(f"m/{turn}", _content(racer, turn))
        except AlreadyExistsError:
            # The winner is whole for a loser from the moment that it lost.
            results.put((turn, racer, False, store.read(f"m/{turn}") in [_content(r, turn) for r in range(RACERS)]))
        else:
            results.put((turn, racer, True, store.read(f"m/{turn}") == _content(racer, turn)))


def test_of_processes_that_race_for_a_name_exactly_one_wins_and_its_content_is_whole(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(RACERS), spawn.Queue()
    racers = [spawn.Process(target=_race, args=(url, racer, barrier, results)) for racer in range(RACERS)]
    for process in racers:
        process.start()
    found = [results.get(timeout=90) for _ in range(RACERS * ROUNDS)]
    for process in racers:
        process.join(30)

    store = open_store(url)
    for turn in range(ROUNDS):
        winners = [racer for at, racer, won, _ in found if at == turn and won]
        assert len(winners) == 1, f"round {turn}: {winners}"
        assert store.read(f"m/{turn}") == _content(winners[0], turn)
    assert all(whole for *_, whole in found)
    assert store.list("m") == sorted(f"m/{turn}" for turn in range(ROUNDS))


def _write_until_killed(url: str, started: Any) -> None:
    store = open_store(url)
    started.set()
    while True:
        store.write("state/file", b"x" * 4_000_000)
        store.delete("state/file")


def test_a_killed_writer_leaves_nothing_that_a_listing_shows_in_part(url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    started = spawn.Event()
    writer = spawn.Process(target=_write_until_killed, args=(url, started))
    writer.start()
    assert started.wait(60)
    store = open_store(url)
    seen = {size for _ in range(300) if (size := store.size("state/file")) is not None}
    os.kill(writer.pid or 0, 9)
    writer.join(30)

    assert seen <= {4_000_000}
    assert store.list("state") in ([], ["state/file"])
    assert store.size("state/file") in (None, 4_000_000)
