"""URLs of stores: supported schemes and parsing."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.errors import ConfigurationError, UnsafePathError
from statecore.storage import open_store, resolve_url, split_url


@pytest.mark.parametrize("url", ["hdfs://host/x", "s3a://bucket/x", "http://host/x", "file://elsewhere/x", "c:/x"])
def test_an_unknown_scheme_is_refused_by_name_and_the_known_ones_are_listed(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store(url)
    assert url in str(raised.value)
    assert "expected a path, file:///path or s3://bucket/prefix" in str(raised.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "s3:bucket/x", "s3:/bucket/x"])
def test_an_s3_url_without_a_bucket_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected .*s3://bucket/prefix; "):
        open_store(url)


@pytest.mark.parametrize("url", ["s3://key:hidden@bucket/x", "s3://key:hidden/x", "hdfs://user:hidden@host/x"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_store(url)
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "opened"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3://bucket/a//./b", "s3://bucket/a/b"),
        ("s3://bucket/a b/50% #1?x", "s3://bucket/a b/50% #1?x"),
        ("file:///a/b%20c/", "/a/b c"),
        ("/a/b/", "/a/b"),
    ],
)
def test_a_store_says_its_url_in_one_spelling(url: str, opened: str) -> None:
    assert open_store(url).url == opened
    assert open_store(opened).url == opened


@pytest.mark.parametrize(
    ("url", "parent", "name"),
    [
        ("/a/b", "/a", "b"),
        ("/a/b/", "/a", "b"),
        ("/a", "/", "a"),
        ("//a///b", "/a", "b"),
        ("/a/x/../b", "/a", "b"),
        ("/a/50% #1?x", "/a", "50% #1?x"),
        ("file:///a%20b/c%20d", "file:///a%20b", "c d"),
        ("s3://bucket/a/b", "s3://bucket/a", "b"),
        ("s3://bucket/a/b/", "s3://bucket/a", "b"),
        ("s3://bucket/a", "s3://bucket", "a"),
        ("s3://bucket/a%20b/c%20d", "s3://bucket/a%20b", "c%20d"),
    ],
)
def test_a_url_is_split_into_its_parent_and_its_last_name(url: str, parent: str, name: str) -> None:
    assert split_url(url) == (parent, name)


@pytest.mark.parametrize("url", ["/data/a\\b", "s3://bucket/a\\b", "file:///data/a%5Cb"])
def test_a_backslash_is_refused_with_the_path_as_it_was_given(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        split_url(url)
    assert str(raised.value).startswith(f"found a backslash in the last name of the path {url}; expected ")
    assert "manifest" not in str(raised.value)


def test_a_backslash_in_a_folder_further_up_does_no_harm() -> None:
    assert split_url("/a\\b/c") == ("/a\\b", "c")


def test_a_relative_path_is_split_as_seen_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_url("savepoints/sp") == (f"{tmp_path}/savepoints", "sp")
    assert split_url("sp") == (str(tmp_path), "sp")
    assert split_url("../sp") == (str(tmp_path.parent), "sp")


@pytest.mark.parametrize("url", ["/", "s3://bucket", "s3://bucket/", "file:///"])
def test_a_root_has_no_last_name(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"a root; expected a file or folder below a root; add its path"):
        split_url(url)


@pytest.mark.parametrize(
    ("url", "relative", "resolved"),
    [
        ("/store/savepoints/sp", "../..", "/store"),
        ("/store/manifests", "..", "/store"),
        ("/store/sp", ".", "/store/sp"),
        ("/store/sp/", "../other/x", "/store/other/x"),
        ("/store", "..", "/"),
        ("file:///a%20b/sp", "../c d", "file:///a%20b/c%20d"),
        ("s3://bucket/jobs/totals/savepoints/sp", "../..", "s3://bucket/jobs/totals"),
        ("s3://bucket/manifests", "..", "s3://bucket"),
        ("s3://bucket", ".", "s3://bucket"),
        ("s3://bucket", "state/50% x", "s3://bucket/state/50% x"),
    ],
)
def test_a_relative_path_leads_on_from_a_folder(url: str, relative: str, resolved: str) -> None:
    assert resolve_url(url, relative) == resolved


@pytest.mark.parametrize(
    ("url", "relative"),
    [
        ("s3://bucket/sp", "../.."),
        ("s3://bucket", ".."),
        ("s3://bucket/sp", "../../bucket/sp"),
        ("s3://bucket/sp", "/etc"),
        ("/sp", "../.."),
        ("file:///sp", "../.."),
        ("/sp", "a\0b"),
    ],
)
def test_a_relative_path_that_leaves_its_root_is_refused(url: str, relative: str) -> None:
    with pytest.raises(UnsafePathError, match="expected a relative path that stays below the root"):
        resolve_url(url, relative)


def test_what_is_split_and_resolved_opens(tmp_path: Path) -> None:
    folder = tmp_path / "a b" / "50%"
    folder.mkdir(parents=True)
    (folder / "c d").write_bytes(b"1")
    for url in (f"{folder}/c d", (folder / "c d").as_uri()):
        parent, name = split_url(url)
        assert open_store(parent).read(name) == b"1"
        assert open_store(resolve_url(parent, "..")).read(f"50%/{name}") == b"1"
