"""Savepoints of jobs of either kind: their addresses, whether they are whole, and what is removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.errors import CheckpointDamagedError, SavepointInUseError, StepFailedError
from statecore.operations.kinds import kind_of
from statecore.queries.job.heads import Heads
from statecore.queries.job.savepoints import take_savepoint
from statecore.queries.job.start import begin_from
from statecore.queries.reading.files import INCOMPLETE
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.storage import open_store
from tests.support.handmade import written
from tests.unit.queries.copying.test_staging import attempt
from tests.unit.queries.handmade import Handmade, Operator, make


@pytest.fixture
def catalog(catalog_url: str, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog(catalog_url) as opened:
        for name, checkpoint in (("orders", None), ("totals", str(tmp_path / "checkpoint"))):
            opened.jobs.register(
                name, artifact="/q", store=str(tmp_path / name), master_url="local", parallelism=2, max_parallelism=8,
                checkpoint=checkpoint,
            )  # fmt: skip
        yield opened


@pytest.fixture
def made(tmp_path: Path) -> Handmade:
    return make(tmp_path / "checkpoint", Operator(), batches=3)


def test_a_job_of_statecore(catalog: Catalog, tmp_path: Path) -> None:
    savepoints = kind_of(catalog.jobs.get("orders")).savepoints
    store = CheckpointStore.at(str(tmp_path / "orders"))
    path = store.write_savepoint(written(store, 2), "noon", reason="", now_ms=0)
    address = savepoints.address("savepoints/noon")
    assert address == f"{tmp_path}/orders/savepoints/noon/manifest.json" == savepoints.address(store.describe(path))
    assert set(savepoints.spellings(address)) == {
        address, f"{tmp_path}/orders/savepoints/noon", "savepoints/noon/manifest.json", "savepoints/noon",
    }  # fmt: skip
    assert savepoints.check(address).endswith(" bytes")
    lost = tmp_path / "orders" / store.manifest(path).files()[0].path
    lost.unlink()
    with pytest.raises(CheckpointDamagedError, match=f"found 1 problems .*{lost.name}"):
        savepoints.check(address)
    savepoints.remove_surplus(catalog, 0)
    assert savepoints.drop(address, catalog) > 0
    assert savepoints.drop(address, catalog) == 0


def test_a_query_of_sparks_own(catalog: Catalog, tmp_path: Path, made: Handmade) -> None:
    savepoints = kind_of(catalog.jobs.get("totals")).savepoints
    url = take_savepoint(catalog, catalog.jobs.get("totals"), "noon", "", running=False).url
    assert savepoints.address("savepoints/noon") == url == savepoints.address(f"{url}/")
    assert savepoints.spellings(url) == [url, "savepoints/noon"]
    # Its state is made by hand, and means nothing: only what is missing is looked for here.
    (Path(url) / "state/0/1/3.delta").unlink()
    with pytest.raises(CheckpointDamagedError, match=r"is not whole: found no state of version 3 in state/0/1"):
        savepoints.check(url)
    catalog.jobs.set_desired("totals", checkpoint=url)
    with pytest.raises(SavepointInUseError):
        savepoints.drop(url, catalog)
    catalog.jobs.set_desired("totals", checkpoint=str(made.root))
    assert savepoints.drop(url, catalog) > 0
    assert savepoints.drop(url, catalog) == 0


def test_a_check_that_cannot_be_made_is_to_be_tried_again(
    catalog: Catalog, made: Handmade, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = take_savepoint(catalog, catalog.jobs.get("totals"), "noon", "", running=False).url
    monkeypatch.setattr("statecore.operations.savepoints.sys.executable", "/bin/false")
    with pytest.raises(StepFailedError, match="exit code 1 and without an answer") as failed:
        kind_of(catalog.jobs.get("totals")).savepoints.check(url)
    assert failed.value.is_retryable


@pytest.mark.parametrize(
    "keeper", ["its job", "another job", "a lease", "a run", "the newest head", "a recent head", "somebody who writes"]
)
def test_a_checkpoint_that_somebody_may_need_stays(catalog: Catalog, made: Handmade, keeper: str) -> None:
    job = catalog.jobs.get("totals")
    url = take_savepoint(catalog, job, "noon", "", running=False).url
    surplus = begin_from(job, url, "left").url
    untouched_ms = 0
    if keeper == "its job":
        catalog.jobs.set_desired("totals", checkpoint=f"{Path(surplus).parent}/./left")
    elif keeper == "another job":
        catalog.jobs.set_desired("orders", checkpoint=surplus)
    elif keeper == "a lease":
        catalog.leases.acquire("totals", "shell-1", 60_000)
    elif keeper == "a run":
        catalog.runs.start("r1", "totals", from_parallelism=2, to_parallelism=4)
    elif keeper == "the newest head":
        Heads(job.store).append(surplus, "registered", 1)
    elif keeper == "a recent head":
        Heads(job.store).append(surplus, "registered", 1)
        Heads(job.store).append(str(made.root), "start", 1, is_base=True)
        untouched_ms = 600_000
        for file in Path(surplus).rglob("*"):
            os.utime(file, (1, 1))
    else:
        untouched_ms = 600_000
    kind_of(job).savepoints.remove_surplus(catalog, untouched_ms)
    assert Path(surplus, "metadata").exists()


def test_a_checkpoint_that_nobody_needs_is_removed(catalog: Catalog, made: Handmade) -> None:
    job = catalog.jobs.get("totals")
    url = take_savepoint(catalog, job, "noon", "", running=False).url
    surplus = begin_from(job, url, "left").url
    kind_of(job).savepoints.remove_surplus(catalog, 0)
    assert not Path(surplus).exists()
    assert Path(url, "metadata").exists()
    assert Path(made.root, "metadata").exists()


@pytest.mark.parametrize("place", ["checkpoints", "savepoints"])
def test_what_a_killed_attempt_left_is_removed_and_one_that_is_at_work_stays(
    catalog: Catalog, made: Handmade, place: str
) -> None:
    job = catalog.jobs.get("totals")
    folder = Path(job.store, place)
    with attempt(f"{folder}/left", str(made.root)) as killed:
        kind_of(job).savepoints.remove_surplus(catalog, 0)
        (begun,) = folder.iterdir()
        killed.kill()
        killed.wait()
        kind_of(job).savepoints.remove_surplus(catalog, 600_000)
        assert list(folder.iterdir()) == [begun]
        kind_of(job).savepoints.remove_surplus(catalog, 0)
        assert list(folder.iterdir()) == []
    # Killed before it wrote anything.
    (folder / begun.name).mkdir()
    kind_of(job).savepoints.remove_surplus(catalog, 0)
    assert list(folder.iterdir()) == []


def test_what_a_killed_attempt_left_in_s3_is_removed_once_nothing_was_written_for_so_long(
    catalog: Catalog, tmp_path: Path, s3_url: str
) -> None:
    catalog.jobs.register(
        "far", artifact="/q", store=s3_url, master_url="local", parallelism=2, max_parallelism=8,
        checkpoint=str(make(tmp_path / "checkpoint of far", Operator(), batches=3).root),
    )  # fmt: skip
    job, store = catalog.jobs.get("far"), open_store(s3_url)
    take_savepoint(catalog, job, "noon", "", running=False)
    kept = store.list("savepoints")
    for left in ("savepoints/killed", "checkpoints/killed"):
        store.write(f"{left}/{INCOMPLETE}", b"of an attempt")
        store.write(f"{left}/state/0/0/1.delta", b"half")
    kind_of(job).savepoints.remove_surplus(catalog, 600_000)
    assert len(store.list("checkpoints")) == 2
    kind_of(job).savepoints.remove_surplus(catalog, 0)
    assert (store.list("savepoints"), store.list("checkpoints")) == (kept, [])
