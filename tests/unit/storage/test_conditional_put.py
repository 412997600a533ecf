"""A store is tried for two winners before anything relies on it, once per store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.errors import AlreadyExistsError, ConfigurationError
from statecore.storage import LocalFileStore, open_store, require_conditional_puts
from statecore.storage.conditional_put import MARKER, RACES, ROUNDS, WRITERS, require_one_winner
from tests.support.proxy import Proxy, heedless, proxy_to
from tests.support.s3 import boto3_led_to


class Flawed(LocalFileStore):
    """Treats the last round, and no other, in a way of its own."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.last = threading.Barrier(WRITERS)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if path.endswith(f"/{ROUNDS}"):
            self.put_last(path, data)
        else:
            super().put_if_absent(path, data)

    def put_last(self, path: str, data: bytes) -> None:
        raise NotImplementedError


class CheckThenWrite(Flawed):
    def put_last(self, path: str, data: bytes) -> None:
        exists = self.size(path) is not None
        self.last.wait()
        if exists:
            raise AlreadyExistsError
        self.write(path, data)


class NobodyWins(Flawed):
    def put_last(self, path: str, data: bytes) -> None:
        self.write(path, data)
        raise AlreadyExistsError


class KeepsTheLoser(Flawed):
    def put_last(self, path: str, data: bytes) -> None:
        lost = False
        try:
            super(Flawed, self).put_if_absent(path, data)
        except AlreadyExistsError:
            lost = True
        self.last.wait()
        if lost:
            self.write(path, data)
            raise AlreadyExistsError


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (CheckThenWrite, f"told {WRITERS} of {WRITERS} concurrent writers that they created a file"),
        (NobodyWins, f"told 0 of {WRITERS} concurrent writers that they created a file"),
        (KeepsTheLoser, "told one of 8 concurrent writers that it created a file, and kept another's"),
    ],
)
def test_one_round_of_twenty_without_exactly_one_winner_refuses_the_store_by_name(
    tmp_path: Path, kind: type[Flawed], found: str
) -> None:
    store = kind(tmp_path)
    with pytest.raises(ConfigurationError) as raised:
        require_one_winner(store)
    assert f"found that {tmp_path} {found}; expected exactly one" in str(raised.value)
    assert "; use a storage, or a newer release of it, that decides conditional puts" in str(raised.value)
    assert store.list(RACES) == []


def test_a_file_system_passes_and_needs_no_marker(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    require_one_winner(store)
    assert store.list(RACES) == []
    require_conditional_puts(store)
    assert store.size(MARKER) is None


class TestOncePerStore:
    @pytest.fixture
    def proxy(self, s3_endpoint: str) -> Iterator[Proxy]:
        with proxy_to(s3_endpoint) as proxy, boto3_led_to(proxy.url):
            yield proxy

    def test_what_has_passed_is_not_tried_again_and_leaves_a_marker_alone(self, s3_url: str, proxy: Proxy) -> None:
        require_conditional_puts(open_store(s3_url))
        assert proxy.count("PUT") == ROUNDS * WRITERS + 1
        bucket, _, folder = s3_url.rpartition("/")
        assert [entry.path for entry in open_store(bucket).list(folder)] == [f"{folder}/{MARKER}"]

        proxy.seen.clear()
        require_conditional_puts(open_store(s3_url))
        assert [method for method, *_ in proxy.seen] == ["GET"]

        # The marker was copied with the store, and the other storage is another one.
        copy = open_store(f"{s3_url}-copied")
        copy.write(MARKER, open_store(s3_url).read(MARKER))
        proxy.always = heedless
        with pytest.raises(ConfigurationError, match=f"found that {copy.url} told"):
            require_conditional_puts(copy)

    def test_a_store_that_is_refused_has_no_marker(self, s3_url: str, proxy: Proxy) -> None:
        proxy.always = heedless
        with pytest.raises(ConfigurationError, match=f"found that {s3_url} told"):
            require_conditional_puts(open_store(s3_url))
        assert open_store(s3_url).size(MARKER) is None
