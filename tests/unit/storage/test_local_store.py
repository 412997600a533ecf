"""Promises of the local store alone."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statecore.errors import AlreadyExistsError, StorageError, UnsafePathError
from statecore.storage import LocalFileStore, open_store
from statecore.storage import local as local_module


def test_temporary_files_of_writers_at_work_are_never_listed(local: LocalFileStore, tmp_path: Path) -> None:
    local.write("m/1", b"1")
    (tmp_path / "root/m/.tmp-0123").write_bytes(b"half")
    assert [entry.path for entry in local.list("m")] == ["m/1"]


def test_no_write_leaves_a_temporary_file_behind_whether_it_wins_or_loses(
    local: LocalFileStore, tmp_path: Path
) -> None:
    local.write("m/1", b"1")
    local.put_if_absent("m/2", b"2")
    with pytest.raises(AlreadyExistsError):
        local.put_if_absent("m/2", b"3")
    assert sorted(file.name for file in (tmp_path / "root/m").iterdir()) == ["1", "2"]


def test_sweeping_removes_old_temporary_files_and_empty_folders_alone(local: LocalFileStore, tmp_path: Path) -> None:
    for path in ("m/.tmp-old", "m/.tmp-young", "m/kept/x", "m/gone/deep/.tmp-old", "m/young/.keep", "n/.tmp-old"):
        local.write(path, b"1")
    (tmp_path / "root/m/young/.keep").unlink()
    (tmp_path / "root/m/gone/empty").mkdir()
    for found in (tmp_path / "root").rglob("*"):
        os.utime(found, ns=(2_000_000, 2_000_000) if "young" in found.name else (1_000_000, 1_000_000))
    # Its own removals make a folder young; so a folder goes with the sweep after the one that emptied it.
    local.sweep("m", 2)
    left = {str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*")}
    assert left == {"m", "m/.tmp-young", "m/kept", "m/kept/x", "m/young", "m/gone", "m/gone/deep", "n", "n/.tmp-old"}
    local.sweep("m", time.time_ns() // 1_000_000 + 1000)
    left = {str(path.relative_to(tmp_path / "root")) for path in (tmp_path / "root").rglob("*")}
    assert left == {"m", "m/kept", "m/kept/x", "n", "n/.tmp-old"}


def test_deleting_the_last_file_of_a_folder_removes_the_folder(local: LocalFileStore, tmp_path: Path) -> None:
    for path in ("m/1/x", "m/1/y", "m/2/x", "m/2/y"):
        local.write(path, b"1")
    local.delete_all(["m/1/x", "m/1/y", "m/2/x"])
    assert sorted(path.name for path in (tmp_path / "root/m").iterdir()) == ["2"]


def test_a_folder_that_is_removed_again_and_again_keeps_no_writer_from_its_file(
    local: LocalFileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, left = local_module._make_directory, [3]

    def made_and_removed(directory: Path) -> None:
        make(directory)
        if left[0]:
            left[0] -= 1
            directory.rmdir()

    monkeypatch.setattr(local_module, "_make_directory", made_and_removed)
    local.write("m/1/x", b"1")
    assert local.read("m/1/x") == b"1"
    assert left == [0]


def test_every_new_folder_is_made_durable_before_the_write_returns(
    local: LocalFileStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(local_module, "_sync_directory", synced.append)

    local.write("state/totals/file", b"1")
    root = tmp_path / "root"
    assert synced == [tmp_path, root, root / "state", root / "state/totals"]

    synced.clear()
    local.put_if_absent("state/totals/other", b"1")
    assert synced == [root / "state/totals"]


def test_file_urls_may_hold_spaces_and_other_quoted_characters(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "50% #1?"
    folder.mkdir(parents=True)
    opened = open_store(folder.as_uri())
    opened.write("x", b"1")
    assert (folder / "x").read_bytes() == b"1"
    assert opened.url == str(folder)
    assert open_store(f"file://localhost{tmp_path}/plain").url == f"{tmp_path}/plain"


def test_a_path_with_characters_of_urls_is_a_path(tmp_path: Path) -> None:
    open_store(f"{tmp_path}/a b #1?x%20").write("x", b"1")
    assert (tmp_path / "a b #1?x%20" / "x").read_bytes() == b"1"


def test_a_relative_root_is_absolute_for_the_processes_that_open_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert LocalFileStore("root").url == str(tmp_path / "root")


class TestLinks:
    """Links are followed inside the store, never out of it."""

    @pytest.fixture
    def outside(self, tmp_path: Path) -> Path:
        outside = tmp_path / "root-but-another" / "secret"
        outside.parent.mkdir()
        outside.write_bytes(b"not yours")
        return outside

    @pytest.fixture
    def store(self, local: LocalFileStore, outside: Path, tmp_path: Path) -> LocalFileStore:
        local.write("a/x", b"1")
        (tmp_path / "root/links").mkdir()
        (tmp_path / "root/links/file").symlink_to(outside)
        (tmp_path / "root/links/folder").symlink_to(outside.parent)
        (tmp_path / "root/links/nothing").symlink_to(outside.parent / "nothing")
        (tmp_path / "root/links/relative").symlink_to("../../root-but-another/secret")
        return local

    @pytest.mark.parametrize("link", ["file", "nothing", "relative", "folder", "folder/secret", "folder/new/one"])
    def test_no_method_follows_a_link_out_of_the_root(self, store: LocalFileStore, outside: Path, link: str) -> None:
        path = f"links/{link}"
        uses: list[Callable[[], Any]] = [
            lambda: store.write(path, b""),
            lambda: store.put_if_absent(path, b""),
            lambda: store.read(path),
            lambda: store.read_range(path, 0, 1),
            lambda: store.open_input(path),
            lambda: store.size(path),
            lambda: store.list(path),
            lambda: store.list("links"),
            lambda: store.move("a/x", path),
            lambda: store.move(path, "b/x"),
            lambda: store.delete(path),
        ]
        message = r"found .*/links/.*, which leaves its store through a symbolic link; expected .*; remove"
        for use in uses:
            with pytest.raises(UnsafePathError, match=message):
                use()
        assert [file.name for file in outside.parent.iterdir()] == ["secret"]
        assert outside.read_bytes() == b"not yours"
        assert store.read("a/x") == b"1"

    def test_links_that_stay_within_the_store_are_followed_but_no_folder_is_listed_twice(
        self, local: LocalFileStore, tmp_path: Path
    ) -> None:
        local.write("a/x", b"1")
        (tmp_path / "root/a/file").symlink_to("x")
        (tmp_path / "root/a/folder").symlink_to(tmp_path / "root/a")
        assert local.read("a/file") == local.read("a/folder/x") == b"1"
        assert [entry.path for entry in local.list("a")] == ["a/file", "a/x"]

    def test_the_root_may_be_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to("real")
        store = LocalFileStore(tmp_path / "link")
        store.write("a/x", b"1")
        store.move("a/x", "a/y")
        assert store.read("a/y") == b"1"
        assert [entry.path for entry in store.list("a")] == ["a/y"]
        assert store.url == str(tmp_path / "link")

    def test_where_a_root_that_is_a_link_lies_is_found_anew_where_the_store_is_sent_to(self, tmp_path: Path) -> None:
        # The same mount path, but another disk on each machine.
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "one")
        sent = pickle.dumps(LocalFileStore(link))
        link.unlink()
        link.symlink_to(tmp_path / "two")
        (tmp_path / "two").mkdir()
        pickle.loads(sent).write("x", b"1")
        assert (tmp_path / "two/x").read_bytes() == b"1"


class TestFailingDisks:
    """Errors of the operating system name path and remedy, and leave nothing behind."""

    FULL = """
import resource, sys
from statecore.errors import StorageError
from statecore.storage import open_store

store = open_store(sys.argv[1])
store.write("state/old", b"old")
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for write in (store.write, store.put_if_absent):
    try:
        write("state/new", b"x" * 1_000_000)
    except StorageError as error:
        print(error)
store.write("state/small", b"small")
"""

    def test_a_file_that_does_not_fit_is_told_and_nothing_of_it_stays(self, tmp_path: Path) -> None:
        # A file size limit stops a write in the middle, as a full disk does.
        done = subprocess.run(
            [sys.executable, "-c", self.FULL, str(tmp_path / "root")], capture_output=True, text=True, check=True
        )
        messages = done.stdout.splitlines()
        assert (
            messages
            == [
                f"found File too large at {tmp_path}/root/state/new; expected to write it; "
                "free space there or raise the quota, then retry"
            ]
            * 2
        )
        assert sorted(file.name for file in (tmp_path / "root/state").iterdir()) == ["old", "small"]

    def test_a_folder_where_a_file_shall_be_is_told_and_kept(self, local: LocalFileStore, tmp_path: Path) -> None:
        local.write("a/b/x", b"1")
        local.write("y", b"2")
        for use in (lambda: local.write("a/b", b""), lambda: local.move("y", "a/b")):
            with pytest.raises(StorageError, match=r"found Is a directory at .*/a/b; expected to .*; check"):
                use()
        assert sorted(file.name for file in (tmp_path / "root/a").iterdir()) == ["b"]
        assert local.read("y") == b"2"

    def test_a_file_where_a_folder_shall_be_is_told(self, local: LocalFileStore) -> None:
        local.write("a", b"1")
        for use in (
            lambda: local.write("a/b/c", b""),
            lambda: local.put_if_absent("a/b", b""),
            lambda: local.move("a", "a/b"),
        ):
            with pytest.raises(StorageError, match=r"found .* at .*/a/b.*; expected to .*; check"):
                use()
        assert local.read("a") == b"1"

    def test_links_in_a_circle_are_told(self, local: LocalFileStore, tmp_path: Path) -> None:
        (tmp_path / "root").mkdir()
        (tmp_path / "root/a").symlink_to("b")
        (tmp_path / "root/b").symlink_to("a")
        for use in (local.read, lambda path: local.read_range(path, 0, 1), local.open_input, local.size):
            with pytest.raises(StorageError, match=r"found Too many levels of symbolic links at .*/a; expected to"):
                use("a")
