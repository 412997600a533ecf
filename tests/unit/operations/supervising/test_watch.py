"""The watch over all jobs: when it takes a sample, and what it says when it cannot."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from statecore.catalog import Catalog
from statecore.errors import CatalogError
from statecore.operations.supervising import watch
from statecore.operations.supervising.watch import Sample, Watch
from tests.support.waiting import wait


class Looks:
    """What a watch asks and calls: whether its supervisor acts, and a taker of samples, which fails."""

    def __init__(self) -> None:
        self.acts = True
        self.made = self.samples = 0

    def __call__(self) -> bool:
        self.made += 1
        return self.acts

    def take(self, _: Sample) -> None:
        self.samples += 1
        raise CatalogError("the database is away")


@contextmanager
def watching(url: str, looks: Looks) -> Iterator[None]:
    with Catalog(url) as catalog:
        made = Watch(catalog, looks.take, acts=looks)
        made.start()
        try:
            yield
        finally:
            made._repeating.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Several for each sample."""
    monkeypatch.setattr(watch, "INTERVAL_S", 0.05)
    monkeypatch.setattr(watch, "_LOOK_S", 0.001)
    return Looks()


def test_a_catalog_that_is_away_is_said_once_however_often_the_watch_looks_in_between(
    catalog_url: str, looks: Looks, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), watching(catalog_url, looks):
        wait(lambda: looks.samples > 2 and looks.made > looks.samples, "some samples, and a look in between")
    assert [each.message for each in caplog.records] == ["metrics failed; retrying: the database is away"]


def test_a_supervisor_that_does_not_act_samples_nothing_until_it_does(catalog_url: str, looks: Looks) -> None:
    looks.acts = False
    with watching(catalog_url, looks):
        wait(lambda: looks.made > 2, "some looks")
        assert looks.samples == 0
        looks.acts = True
        wait(lambda: looks.samples, "a sample")
