"""The contract of stores on versitygw, whose code has nothing in common with moto's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from statecore.storage import FileStore, open_store, require_conditional_puts
from statecore.storage.conditional_put import MARKER, RACES
from tests.contracts.storage import *
from tests.support.s3 import boto3_led_to, new_store
from tests.support.s3_servers import versitygw

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with versitygw() as endpoint, boto3_led_to(endpoint):
        yield endpoint


@pytest.fixture
def url(endpoint: str) -> str:
    return new_store(endpoint)


@pytest.fixture
def store(url: str) -> FileStore:
    return open_store(url)


def test_it_passes_the_check_of_conditional_puts(store: FileStore) -> None:
    require_conditional_puts(store)
    assert store.size(MARKER) is not None
    assert store.list(RACES) == []
