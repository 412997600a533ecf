"""A driver claims its generation only on a store that decides between two drivers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError
from statecore.runtime.generation.claim import claim
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage.conditional_put import MARKER
from tests.support.proxy import heedless, proxy_to
from tests.support.s3 import boto3_led_to
from tests.support.shell import register


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        yield opened


def test_a_store_that_tells_two_writers_that_they_created_a_file_is_refused_before_a_driver_runs(
    catalog: Catalog, s3_endpoint: str, s3_url: str
) -> None:
    store = CheckpointStore.at(s3_url)
    register(catalog, store)
    catalog.generations.claim("orders", log_path="log")
    with proxy_to(s3_endpoint) as proxy, boto3_led_to(proxy.url):
        proxy.always = heedless
        with pytest.raises(ConfigurationError, match=f"found that {s3_url} told"):
            claim(catalog, "orders", 1)
    newest = catalog.generations.newest("orders")
    assert newest is not None
    assert newest.state == "failed"
    assert f"found that {s3_url} told" in str(newest.error)
    assert store.newest_generation() is None


def test_the_first_driver_on_a_store_tries_it(catalog: Catalog, s3_url: str) -> None:
    store = CheckpointStore.at(s3_url)
    register(catalog, store)
    catalog.generations.claim("orders", log_path="log")
    assert claim(catalog, "orders", 1).generation == 1
    assert store.files.size(MARKER) is not None
    assert store.newest_generation() == 1
