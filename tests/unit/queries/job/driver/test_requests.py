"""What a driver of a query does for requests and before its start, as far as it needs no query for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import CommitError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.queries.copying.clone import clone
from statecore.queries.job.driver import resuming
from statecore.queries.job.driver.control import answer_savepoint
from statecore.queries.job.driver.generation import run_query
from statecore.queries.job.driver.lifecycle import QueryLifecycle
from statecore.queries.job.driver.resuming import resumed
from statecore.queries.job.heads import Heads
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.unit.queries.handmade import Handmade, Operator, make

JOB = "totals"


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator(), batches=3)


@pytest.fixture
def catalog(tmp_path: Path, catalog_url: str, made: Handmade) -> Catalog:
    catalog = Catalog(catalog_url)
    catalog.jobs.register(
        JOB, artifact="/q.py", store=str(tmp_path / "store"), master_url="local", parallelism=2,
        max_parallelism=MAX_KEY_GROUPS, checkpoint=str(made.root),
    )  # fmt: skip
    catalog.jobs.set_desired(JOB, state="running")
    return catalog


class TestSavepoint:
    def ask(self, catalog: Catalog, key: str, **more: str) -> int:
        request = catalog.requests.send(JOB, "savepoint", {"name": "noon", "reason": "test", **more}, key)
        answer_savepoint(catalog, catalog.jobs.get(JOB), request, running=True)
        return request.id

    def test_it_is_answered_with_the_clone_and_asked_again_with_the_same(
        self, catalog: Catalog, tmp_path: Path
    ) -> None:
        url = str(tmp_path / "store/savepoints/noon")
        expected = {"savepoint": "savepoints/noon", "url": url, "lineage": 1, "epoch": 2}
        for key in ("a", "b"):
            assert catalog.requests.get(self.ask(catalog, key)).result == expected
        assert open_checkpoint(url).batch == 2
        assert [each.path for each in catalog.savepoints.of(JOB)] == [url]

    def test_a_name_that_another_querys_savepoint_has_is_refused(self, catalog: Catalog, tmp_path: Path) -> None:
        other = make(tmp_path / "other", Operator())
        other.write("metadata", '{"id": "another"}')
        clone(open_checkpoint(str(other.root)), str(tmp_path / "store/savepoints/noon"))
        assert "choose another name" in str(catalog.requests.get(self.ask(catalog, "a")).error)

    def test_a_copy_of_one_is_refused(self, catalog: Catalog) -> None:
        assert "leave --copy-to out" in str(catalog.requests.get(self.ask(catalog, "a", target="/t")).error)


@pytest.mark.parametrize("overtaken", [False, True])
def test_only_the_newest_driver_lets_the_query_resume_from_a_copy(
    catalog: Catalog, made: Handmade, monkeypatch: pytest.MonkeyPatch, overtaken: bool
) -> None:
    catalog.jobs.set_desired(JOB, parallelism=5)
    catalog.generations.claim(JOB, log_path="/l")

    def copy(job: object, source: str, target: str) -> None:
        """Stand in for Spark, which the tests of the driver start."""
        assert source == str(made.root)
        make(Path(target), Operator(partitions=5), batches=3)
        if overtaken:
            catalog.generations.end(JOB, 1, state="failed", error="overtaken")

    monkeypatch.setattr(resuming, "_copy", copy)
    if overtaken:
        with pytest.raises(CommitError, match="a newer generation runs the job"):
            resumed(catalog, catalog.jobs.get(JOB), 1)
        assert [head.checkpoint for head in Heads(catalog.jobs.get(JOB).store)] == [str(made.root)]
    else:
        job = resumed(catalog, catalog.jobs.get(JOB), 1)
        assert str(job.checkpoint).endswith("/store/checkpoints/head-2-at-2-p5")


def test_a_driver_of_an_old_generation_changes_nothing(catalog: Catalog) -> None:
    catalog.generations.claim(JOB, log_path="/l")
    with pytest.raises(CommitError, match="which this driver was launched for"):
        run_query(catalog, JOB, 7)
    newest = catalog.generations.newest(JOB)
    assert newest is not None
    assert newest.state == "launching"


def test_a_superseded_lifecycle_is_closed_once() -> None:
    lifecycle = QueryLifecycle()
    lifecycle.supersede()
    lifecycle.supersede()
    assert lifecycle.closed
    assert lifecycle.superseded
