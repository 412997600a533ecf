from __future__ import annotations

from typing import Any

import pytest

from statecore.catalog import Catalog, ClaimedSavepoint
from statecore.errors import (
    ConfigurationError,
    InvalidParallelismError,
    MaxParallelismError,
    UnknownClusterError,
    UnknownJobError,
)

CLAIMED = ClaimedSavepoint("/sp", "c0ffee")
JOB: dict[str, Any] = {
    "artifact": "/a.py",
    "store": "/s",
    "master_url": "local[2]",
    "parallelism": 2,
    "max_parallelism": 128,
}


def test_a_new_job_is_stopped_and_starts_from_its_newest_epoch(catalog: Catalog, job: str) -> None:
    record = catalog.jobs.get(job)
    assert (record.desired_state, record.start_from, record.cluster) == ("stopped", None, None)
    assert record.conf == {"spark.cores.max": "2"}
    assert catalog.jobs.all() == [record]


def test_registering_again_updates_the_definition_and_keeps_what_is_wanted(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="running", start_from="/sp/manifest.json")
    catalog.jobs.register(job, **{**JOB, "artifact": "/b.py", "parallelism": 3})
    record = catalog.jobs.get(job)
    assert (record.artifact, record.parallelism, record.conf) == ("/b.py", 3, {})
    assert (record.desired_state, record.start_from) == ("running", "/sp/manifest.json")


def test_max_parallelism_of_a_registered_job_cannot_change(catalog: Catalog, job: str) -> None:
    with pytest.raises(MaxParallelismError, match=r"max parallelism 128, found 256.*rewrite"):
        catalog.jobs.register(job, **{**JOB, "max_parallelism": 256})


@pytest.mark.parametrize(("parallelism", "max_parallelism"), [(0, 128), (129, 128), (1, 0), (1, 32769)])
def test_a_job_of_impossible_parallelism_is_refused(catalog: Catalog, parallelism: int, max_parallelism: int) -> None:
    with pytest.raises(InvalidParallelismError):
        catalog.jobs.register("j", **{**JOB, "parallelism": parallelism, "max_parallelism": max_parallelism})
    assert catalog.jobs.all() == []


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b", "x" * 201])
def test_a_name_that_could_not_be_a_file_name_is_refused(catalog: Catalog, name: str) -> None:
    with pytest.raises(ConfigurationError, match="job name"):
        catalog.jobs.register(name, **JOB)
    with pytest.raises(ConfigurationError, match="cluster name"):
        catalog.clusters.register(name, "standalone", {}, 1)


def test_a_job_on_an_unknown_cluster_is_refused(catalog: Catalog) -> None:
    catalog.clusters.register("small", "standalone", {}, 1)
    with pytest.raises(UnknownClusterError, match="'big' is not registered; known clusters: small"):
        catalog.jobs.register("j", **JOB, cluster="big")
    assert catalog.jobs.register("j", **JOB, cluster="small").cluster == "small"


def test_a_cluster_belongs_to_one_job(catalog: Catalog) -> None:
    catalog.clusters.register("big", "standalone", {}, 2)
    for _ in range(2):
        catalog.jobs.register("j", **JOB, cluster="big")
    with pytest.raises(ConfigurationError, match="found cluster 'big' in use by job 'j'"):
        catalog.jobs.register("k", **JOB, cluster="big")
    with pytest.raises(ConfigurationError, match="in use by job 'j'"):
        catalog.clusters.remove("big")
    catalog.jobs.register("j", **JOB, cluster=None)
    assert catalog.jobs.register("k", **JOB, cluster="big").cluster == "big"
    catalog.jobs.register("k", **JOB, cluster=None)
    assert catalog.clusters.remove("big").name == "big" and catalog.clusters.all() == []


def test_an_unknown_job_is_named_together_with_the_known_ones(catalog: Catalog, job: str) -> None:
    for act in (
        lambda: catalog.jobs.get("fligths"),
        lambda: catalog.jobs.set_desired("fligths", state="running"),
        lambda: catalog.generations.claim("fligths", log_path="/l"),
        lambda: catalog.leases.acquire("fligths", "me", 1),
    ):
        with pytest.raises(UnknownJobError, match="'fligths' is not registered; known jobs: flights"):
            act()


def test_set_desired_changes_what_is_given_and_nothing_else(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="running", parallelism=4, start_from="/sp")
    assert catalog.jobs.set_desired(job, parallelism=3).start_from == "/sp"
    record = catalog.jobs.set_desired(job, start_from=None)
    assert (record.desired_state, record.parallelism, record.start_from) == ("running", 3, None)
    with pytest.raises(InvalidParallelismError):
        catalog.jobs.set_desired(job, state="stopped", parallelism=129)
    assert catalog.jobs.get(job) == record


def test_a_savepoint_to_start_from_brings_its_wishes_and_the_newest_generation(catalog: Catalog, job: str) -> None:
    for number in (1, 2):
        assert catalog.generations.claim(job, log_path="/l").generation == number
        catalog.generations.end(job, number, state="stopped")
    record = catalog.jobs.set_desired(
        job, start_from="/sp", roll_back=True, claims_savepoint=CLAIMED, max_parallelism=256
    )
    assert (record.start_from, record.roll_back, record.claims_savepoint) == ("/sp", True, CLAIMED)
    assert (record.start_after_generation, record.max_parallelism, record.parallelism) == (2, 256, 2)
    # Until the next one is given, all of it stays.
    assert catalog.jobs.set_desired(job, state="running", parallelism=3).start_after_generation == 2
    again = catalog.jobs.set_desired(job, start_from="/sp")
    assert (again.roll_back, again.claims_savepoint, again.max_parallelism) == (False, None, 256)
    none = catalog.jobs.set_desired(job, start_from=None, roll_back=True, claims_savepoint=CLAIMED)
    assert (none.start_from, none.roll_back, none.claims_savepoint) == (None, False, None)


def test_a_start_that_was_taken_up_is_cleared_but_not_a_later_one(catalog: Catalog, job: str) -> None:
    first = catalog.jobs.set_desired(job, start_from="/first", roll_back=True, claims_savepoint=CLAIMED)
    catalog.generations.claim(job, log_path="/l")
    catalog.generations.end(job, 1, state="stopped")
    later = catalog.jobs.set_desired(job, start_from="/later", roll_back=True)
    catalog.jobs.clear_start(job, first.start_after_generation)
    assert catalog.jobs.get(job) == later
    catalog.jobs.clear_start(job, later.start_after_generation)
    cleared = catalog.jobs.get(job)
    assert (cleared.start_from, cleared.roll_back, cleared.claims_savepoint) == (None, False, None)


def test_generations_go_on_after_those_that_the_store_knows(catalog: Catalog, job: str) -> None:
    assert catalog.jobs.set_desired(job, start_from="/sp", start_after=40).start_after_generation == 40
    assert catalog.generations.claim(job, log_path="/l").generation == 41
    catalog.generations.end(job, 41, state="stopped")
    assert catalog.jobs.set_desired(job, start_from="/sp", start_after=7).start_after_generation == 41


@pytest.mark.parametrize("wanted", [{"parallelism": 0}, {"max_parallelism": 0}, {"max_parallelism": 1}])
def test_an_impossible_parallelism_is_refused_and_nothing_is_changed(
    catalog: Catalog, job: str, wanted: dict[str, Any]
) -> None:
    before = catalog.jobs.get(job)
    with pytest.raises(InvalidParallelismError, match="job 'flights'"):
        catalog.jobs.set_desired(job, state="running", **wanted)
    assert catalog.jobs.get(job) == before


def test_a_cluster_keeps_the_size_seen_when_it_is_registered_again(catalog: Catalog) -> None:
    catalog.clusters.register("c", "standalone", {"a": 1}, 1)
    catalog.clusters.report("c", ready_workers=1, message="growing")
    catalog.clusters.set_desired_workers("c", 2)
    record = catalog.clusters.register("c", "standalone", {"a": 2}, 3)
    assert (record.settings, record.desired_workers, record.ready_workers) == ({"a": 2}, 3, 1)
    assert catalog.clusters.report("c", ready_workers=3).message is None
    assert catalog.clusters.all() == [catalog.clusters.get("c")]


def test_wrong_sizes_and_unknown_clusters_are_refused(catalog: Catalog) -> None:
    with pytest.raises(ConfigurationError, match="-1 workers"):
        catalog.clusters.register("c", "standalone", {}, -1)
    for act in (
        lambda: catalog.clusters.get("c"),
        lambda: catalog.clusters.set_desired_workers("c", 1),
        lambda: catalog.clusters.report("c", ready_workers=1),
    ):
        with pytest.raises(UnknownClusterError, match="known clusters: none"):
            act()
