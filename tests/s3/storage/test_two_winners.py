"""A real server whose conditional put looks first and writes then is refused before a job relies on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import ConfigurationError
from statecore.runtime.generation.claim import claim
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage import open_store
from statecore.storage.conditional_put import MARKER, RACES, require_one_winner
from tests.support import shell
from tests.support.s3 import boto3_led_to, new_store
from tests.support.s3_servers import s3mock


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3mock() as endpoint, boto3_led_to(endpoint):
        yield endpoint


@pytest.fixture
def url(endpoint: str) -> str:
    return new_store(endpoint)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
        catalog.create_schema()
        yield catalog


def test_the_check_finds_it_out_each_time_and_leaves_no_file(url: str) -> None:
    for _ in range(5):
        with pytest.raises(ConfigurationError, match=rf"found that {url} told [2-8] of 8 concurrent writers"):
            require_one_winner(open_store(url))
    assert open_store(url).list(RACES) == []


def test_a_job_on_it_is_not_registered(
    url: str, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file is none of a job; only what comes after its check is tried here.
    monkeypatch.setattr("statecore.cli.register.check_job_file", lambda *_, **__: None)
    (tmp_path / "job.py").write_text("1")
    done = shell.run(
        "register", "orders", "--catalog", f"sqlite:///{tmp_path}/catalog.db", "--artifact", tmp_path / "job.py",
        "--store", url, "--master", "local[2]", "--parallelism", "2",
    )  # fmt: skip
    shell.assert_refused(done, f"found that {url} told")
    assert catalog.jobs.all() == []
    assert open_store(url).size(MARKER) is None


def test_a_driver_of_a_job_that_was_registered_nevertheless_does_not_run(url: str, catalog: Catalog) -> None:
    store = CheckpointStore.at(url)
    shell.register(catalog, store)
    catalog.generations.claim("orders", log_path="log")
    with pytest.raises(ConfigurationError, match=f"found that {url} told"):
        claim(catalog, "orders", 1)
    newest = catalog.generations.newest("orders")
    assert newest is not None
    assert (newest.state, store.newest_generation()) == ("failed", None)
