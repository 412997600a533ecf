"""Which checkpoint a query goes on from after a rollback, and what keeps another job or run from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.catalog import Catalog, JobRecord
from statecore.errors import ConfigurationError
from statecore.model.key_groups import MAX_KEY_GROUPS
from statecore.operations.changes import RescaleRequest
from statecore.queries.copying.clone import clone
from statecore.queries.job.current_checkpoint import current_checkpoint, newest_batch
from statecore.queries.reading.checkpoint import open_checkpoint
from tests.unit.queries.handmade import Handmade, Operator, commit, make


class Place:
    def __init__(self, root: Path, catalog: Catalog, *, pending: bool) -> None:
        self.catalog = catalog
        self.old = make(root / "old", Operator(), batches=3, pending=pending)
        clone(open_checkpoint(str(self.old.root)), str(root / "new"))
        self.new = Handmade(root / "new", 3)
        catalog.jobs.register(
            "totals", artifact="/q.py", store=str(root / "store"), master_url="local", parallelism=2,
            max_parallelism=MAX_KEY_GROUPS, checkpoint=str(self.old.root),
        )  # fmt: skip
        catalog.jobs.set_desired("totals", state="running")
        catalog.leases.acquire("totals", "run", 60_000)
        catalog.jobs.set_desired("totals", parallelism=5, checkpoint=str(self.new.root))

    @property
    def job(self) -> JobRecord:
        return self.catalog.jobs.get("totals")

    def roll_back(self) -> JobRecord:
        self.catalog.leases.roll_back("totals", "run", 60_000, "a test")
        return self.job


@pytest.fixture(params=[False, True], ids=["", "pending"])
def place(request: pytest.FixtureRequest, tmp_path: Path, catalog_url: str) -> Place:
    return Place(tmp_path, Catalog(catalog_url), pending=request.param)


def test_the_old_one_while_the_new_one_has_nothing_of_its_own(place: Place) -> None:
    assert current_checkpoint(place.job) == str(place.new.root)
    job = place.roll_back()
    assert (job.checkpoint, job.left_checkpoint, job.parallelism) == (str(place.old.root), str(place.new.root), 2)
    assert current_checkpoint(job) == str(place.old.root)
    assert newest_batch(job) == 2


def test_the_new_one_once_a_batch_is_logged_there(place: Place) -> None:
    number = 3 if open_checkpoint(str(place.new.root)).pending is None else 4
    if number == 4:
        # The batch that was pending is repeated first; sinks have the same rows of it.
        place.new.write("commits/3", commit(3))
    place.new.write(f"offsets/{number}", (place.old.root / "offsets/2").read_bytes())
    job = place.roll_back()
    assert current_checkpoint(job) == str(place.new.root)
    assert newest_batch(job) == number - 1


def test_a_rollback_before_the_restart_leaves_nothing(place: Place) -> None:
    place.catalog.jobs.set_desired("totals", parallelism=2, checkpoint=str(place.old.root))
    assert place.roll_back().left_checkpoint is None


def test_another_definition_keeps_what_was_left_and_another_checkpoint_forgets_it(place: Place) -> None:
    job = place.roll_back()
    place.catalog.leases.release("totals", "run")
    same = {"artifact": job.artifact, "store": job.store, "master_url": "local[2]", "parallelism": 2}
    for checkpoint, left in ((str(place.old.root), str(place.new.root)), ("/other", None)):
        place.catalog.jobs.register("totals", **same, max_parallelism=MAX_KEY_GROUPS, checkpoint=checkpoint)
        assert place.job.left_checkpoint == left


def test_a_checkpoint_that_was_left_is_given_to_no_other_job(place: Place) -> None:
    place.roll_back()
    with pytest.raises(ConfigurationError, match="in use by job 'totals'"):
        place.catalog.jobs.register(
            "other", artifact="/q.py", store="/s", master_url="local", parallelism=2, max_parallelism=9,
            checkpoint=str(place.new.root),
        )  # fmt: skip


def test_a_rescale_waits_for_the_driver_that_settles_it(place: Place) -> None:
    place.roll_back()
    with pytest.raises(ConfigurationError, match=r"was rolled back and no driver has started since; expected one"):
        RescaleRequest(job="totals", parallelism=4).checked(place.catalog)
