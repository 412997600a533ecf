"""A catalog is lost, and comes back from what the jobs' stores say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from statecore.catalog import Catalog
from statecore.catalog.rebuild import rebuild_job
from statecore.errors import ConfigurationError, ManifestError
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, write_definition
from tests.support.handmade import manifest, written

DEFINITION = JobDefinition(
    artifact_sha256="ab" * 32,
    name="orders",
    artifact="/jobs/orders.py",
    store="/where/it/was",
    master_url="spark://127.0.0.1:7077",
    cluster=None,
    conf={"spark.cores.max": "2"},
    settings={"input": "/in"},
    parallelism=3,
    max_parallelism=16,
)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    """The store of a job whose seventh driver committed epoch 7 at parallelism 2."""
    store = CheckpointStore.at(str(tmp_path / "store"))
    for generation in range(1, 8):
        store.claim_generation(generation)
    write_definition(store.files, DEFINITION)
    committed = written(store, 2, generation=7)
    store.commit(committed)
    store.write_savepoint(committed, "late", reason="before a change", now_ms=2_000)
    older = manifest(epoch=5, generation=3)
    store.write_savepoint(older, "early", reason="storage is down", now_ms=1_000)
    return store


def register(catalog: Catalog, store: CheckpointStore, **changes: Any) -> None:
    definition = msgspec.structs.replace(DEFINITION, store=store.files.url)
    wanted = {**msgspec.to_builtins(definition), **changes}
    catalog.jobs.register(wanted.pop("name"), **{key: wanted[key] for key in wanted.keys() - {"withheld"}})


def test_the_job_is_registered_as_it_was_at_the_parallelism_of_its_newest_epoch_and_stopped(
    catalog: Catalog, store: CheckpointStore
) -> None:
    found = rebuild_job(catalog, store.files.url)
    job = catalog.jobs.get("orders")
    assert found.job == job
    assert (job.artifact, job.store, job.master_url) == ("/jobs/orders.py", store.files.url, "spark://127.0.0.1:7077")
    assert (job.conf, job.settings) == ({"spark.cores.max": "2"}, {"input": "/in"})
    assert (job.desired_state, job.start_from, job.parallelism, job.max_parallelism) == ("stopped", None, 2, 16)
    assert (found.lineage, found.epoch, found.savepoints) == (1, 7, 2)
    assert (found.registered_before, found.withheld, found.lost_cluster, found.problems) == (False, (), None, ())


def test_its_next_driver_gets_a_number_that_none_had_and_one_that_still_runs_is_told_to_stop(
    catalog: Catalog, store: CheckpointStore
) -> None:
    rebuild_job(catalog, store.files.url)
    newest = catalog.generations.newest("orders")
    assert newest is not None and newest.ended
    assert (newest.generation, newest.lineage, newest.epoch) == (7, 1, 7)
    assert not catalog.generations.heartbeat("orders", 7)
    claimed = catalog.generations.claim("orders", log_path="/l")
    store.claim_generation(claimed.generation)
    assert claimed.generation == 8


def test_its_savepoints_are_listed_by_the_time_when_they_were_taken(catalog: Catalog, store: CheckpointStore) -> None:
    rebuild_job(catalog, store.files.url)
    listed = [(each.path, each.epoch, each.created_ms, each.reason) for each in catalog.savepoints.of("orders")]
    folder = f"{store.files.url}/savepoints"
    assert listed == [
        (f"{folder}/late/manifest.json", 7, 2_000, "before a change"),
        (f"{folder}/early/manifest.json", 5, 1_000, "storage is down"),
    ]


def test_a_job_that_never_committed_an_epoch_comes_back_too(catalog: Catalog, tmp_path: Path) -> None:
    store = CheckpointStore.at(str(tmp_path / "new"))
    store.claim_generation(1)
    write_definition(store.files, DEFINITION)
    found = rebuild_job(catalog, store.files.url)
    assert (found.lineage, found.epoch, found.savepoints, found.job.parallelism) == (None, None, 0, 3)
    assert catalog.generations.claim("orders", log_path="/l").generation == 2


def test_the_number_of_a_driver_is_also_known_from_what_it_committed(catalog: Catalog, store: CheckpointStore) -> None:
    store.files.delete("generations/000007")
    rebuild_job(catalog, store.files.url)
    assert catalog.generations.claim("orders", log_path="/l").generation == 8


def test_a_savepoint_that_cannot_be_read_is_named_and_the_rest_comes_back(
    catalog: Catalog, store: CheckpointStore
) -> None:
    store.files.write("savepoints/early/manifest.json", b"{}")
    found = rebuild_job(catalog, store.files.url)
    (problem,) = found.problems
    assert isinstance(problem, ManifestError) and "savepoints/early/manifest.json" in str(problem)
    assert [each.epoch for each in catalog.savepoints.of("orders")] == [7]
    assert found.savepoints == 1


def test_where_the_newest_epoch_cannot_be_read_nothing_is_changed_and_it_can_be_tried_again(
    catalog: Catalog, store: CheckpointStore
) -> None:
    path = store.manifest_path(1, 7)
    whole = store.files.read(path)
    store.files.write(path, whole.replace(b"orders", b"0rders"))
    with pytest.raises(ManifestError, match=path):
        rebuild_job(catalog, store.files.url)
    assert catalog.jobs.all() == []
    store.files.write(path, whole)
    assert rebuild_job(catalog, store.files.url).epoch == 7


class TestCluster:
    def test_a_cluster_that_the_catalog_knows_is_the_jobs_again(self, catalog: Catalog, store: CheckpointStore) -> None:
        write_definition(store.files, msgspec.structs.replace(DEFINITION, cluster="big"))
        catalog.clusters.register("big", "standalone", {}, 1)
        found = rebuild_job(catalog, store.files.url)
        assert (found.job.cluster, found.lost_cluster) == ("big", None)

    def test_one_that_it_does_not_know_is_named(self, catalog: Catalog, store: CheckpointStore) -> None:
        write_definition(store.files, msgspec.structs.replace(DEFINITION, cluster="big"))
        found = rebuild_job(catalog, store.files.url)
        assert (found.job.cluster, found.lost_cluster) == (None, "big")


class TestJobInTheCatalog:
    def test_one_with_its_history_is_left_alone(self, catalog: Catalog, store: CheckpointStore) -> None:
        rebuild_job(catalog, store.files.url)
        catalog.jobs.set_desired("orders", state="running", parallelism=4)
        before = (catalog.jobs.all(), catalog.generations.of("orders"), catalog.savepoints.of("orders"))
        with pytest.raises(ConfigurationError, match=r"found job 'orders' in the catalog with generation 7; expected"):
            rebuild_job(catalog, store.files.url)
        assert (catalog.jobs.all(), catalog.generations.of("orders"), catalog.savepoints.of("orders")) == before

    @pytest.mark.parametrize("started", [False, True])
    def test_one_that_was_registered_anew_keeps_its_registration_and_gets_its_history(
        self, catalog: Catalog, store: CheckpointStore, started: bool
    ) -> None:
        register(catalog, store, artifact="/jobs/newer.py", parallelism=5)
        if started:
            catalog.generations.claim("orders", log_path="/l")
        found = rebuild_job(catalog, store.files.url)
        assert found.registered_before
        job = catalog.jobs.get("orders")
        assert (job.artifact, job.parallelism) == ("/jobs/newer.py", 5)
        assert len(catalog.savepoints.of("orders")) == 2
        # A driver that was started without its history is told to stop, too.
        assert not (started and catalog.generations.heartbeat("orders", 1))
        assert catalog.generations.claim("orders", log_path="/l").generation == 8

    def test_one_with_another_store_is_left_alone(
        self, catalog: Catalog, store: CheckpointStore, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        register(catalog, elsewhere)
        with pytest.raises(ConfigurationError, match=f"store {elsewhere.files.url}; expected {store.files.url}"):
            rebuild_job(catalog, store.files.url)
        assert catalog.generations.of("orders") == []

    def test_a_store_that_is_reached_by_a_link_is_the_same(
        self, catalog: Catalog, store: CheckpointStore, tmp_path: Path
    ) -> None:
        (tmp_path / "link").symlink_to(store.files.url)
        register(catalog, CheckpointStore.at(str(tmp_path / "link")))
        assert rebuild_job(catalog, store.files.url).registered_before
