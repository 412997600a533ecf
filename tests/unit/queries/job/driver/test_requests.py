"""What a driver of a query does for requests and after a rollback, as far as it needs no query for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import CommitError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.queries.copying.clone import clone
from statecore.queries.job.driver import going_back
from statecore.queries.job.driver.control import answer_savepoint
from statecore.queries.job.driver.generation import run_query
from statecore.queries.job.driver.going_back import settled
from statecore.queries.job.driver.lifecycle import QueryLifecycle
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


class TestGoingBack:
    @pytest.fixture
    def new(self, catalog: Catalog, made: Handmade, tmp_path: Path) -> Handmade:
        """The checkpoint that a rollback has left."""
        clone(open_checkpoint(str(made.root)), str(tmp_path / "new"))
        catalog.leases.acquire(JOB, "run", 60_000)
        catalog.jobs.set_desired(JOB, parallelism=5, checkpoint=str(tmp_path / "new"))
        catalog.leases.roll_back(JOB, "run", 60_000, "a test")
        catalog.generations.claim(JOB, log_path="/l")
        return Handmade(tmp_path / "new", 3)

    def test_without_a_rollback_nothing_is_settled(self, catalog: Catalog) -> None:
        job = catalog.jobs.get(JOB)
        assert settled(catalog, job, 1) == job

    def test_a_new_one_without_a_batch_of_its_own_is_forgotten(
        self, catalog: Catalog, made: Handmade, new: Handmade
    ) -> None:
        job = settled(catalog, catalog.jobs.get(JOB), 1)
        assert (job.checkpoint, job.left_checkpoint) == (str(made.root), None)

    @pytest.mark.parametrize("overtaken", [False, True])
    def test_one_with_a_batch_is_copied_back_by_the_newest_driver(
        self, catalog: Catalog, new: Handmade, monkeypatch: pytest.MonkeyPatch, overtaken: bool
    ) -> None:
        new.write("offsets/3", (new.root / "offsets/2").read_bytes())

        def copy(job: object, source: str, target: str) -> None:
            """Stand in for Spark, which the tests of the driver start."""
            assert source == str(new.root)
            if overtaken:
                catalog.generations.end(JOB, 1, state="failed", error="overtaken")

        monkeypatch.setattr(going_back, "_copy", copy)
        if overtaken:
            with pytest.raises(CommitError, match="a newer generation runs the job"):
                settled(catalog, catalog.jobs.get(JOB), 1)
            assert catalog.jobs.get(JOB).left_checkpoint == str(new.root)
        else:
            job = settled(catalog, catalog.jobs.get(JOB), 1)
            assert str(job.checkpoint).endswith("/store/checkpoints/new-back-to-2")
            assert job.left_checkpoint is None


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
