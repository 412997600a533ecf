"""What only the store on a file system promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import AlreadyExistsError, ConfigurationError
from statecore.storage import LocalFileStore, open_store
from statecore.storage import local as local_module


def test_temporary_files_of_writers_at_work_are_never_listed(local: LocalFileStore, tmp_path: Path) -> None:
    local.write("m/1", b"1")
    (tmp_path / "root/m/.tmp-0123").write_bytes(b"half")
    assert local.list("m") == ["m/1"]


def test_no_write_leaves_a_temporary_file_behind_whether_it_wins_or_loses(
    local: LocalFileStore, tmp_path: Path
) -> None:
    local.write("m/1", b"1")
    local.put_if_absent("m/2", b"2")
    with pytest.raises(AlreadyExistsError):
        local.put_if_absent("m/2", b"3")
    assert sorted(file.name for file in (tmp_path / "root/m").iterdir()) == ["1", "2"]


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


@pytest.mark.parametrize("url", ["s3://bucket/x", "hdfs://host/x", "http://host/x", "file://elsewhere/x", "c:/x"])
def test_an_unknown_scheme_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store(url)
    assert url in str(raised.value)
    assert "expected a path or file:///path" in str(raised.value)


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
