"""``cluster register``, ``list`` and ``remove``."""

from __future__ import annotations

import json
from pathlib import Path

from statecore.catalog import Catalog
from statecore.cluster import StandaloneCluster, cluster_for
from tests.support.shell import Done, assert_refused, run

SETTINGS = {
    "master_url": "spark://master:7077",
    "master_web_url": "http://master:8080",
    "run_dir": "/data/workers",
    "log_dir": "/data/logs",
}


def register(*more: str | Path | float, name: str = "big", **settings: object) -> Done:
    pairs = [word for key, value in {**SETTINGS, **settings}.items() for word in ("--setting", f"{key}={value}")]
    return run("cluster", "register", name, "--kind", "standalone", "--workers", 2, *pairs, *more)


def test_a_cluster_is_registered_as_the_supervisor_can_use_it(catalog: Catalog) -> None:
    done = register(cores_per_worker=4, drain_timeout_s=2.5)
    assert done == (0, "registered cluster big: standalone, 2 workers\n", "")
    found = catalog.clusters.get("big")
    assert isinstance(cluster_for(found), StandaloneCluster)
    assert (found.settings["cores_per_worker"], found.settings["drain_timeout_s"]) == (4, 2.5)
    assert found.settings["run_dir"] == "/data/workers" and found.desired_workers == 2


def test_what_is_left_out_stays(catalog: Catalog) -> None:
    register(cores_per_worker=4)
    catalog.clusters.set_desired_workers("big", 5)
    assert run("cluster", "register", "big", "--setting", "memory_per_worker=2g").returncode == 0
    found = catalog.clusters.get("big")
    assert (found.settings["cores_per_worker"], found.settings["memory_per_worker"]) == (4, "2g")
    assert found.desired_workers == 5
    assert run("cluster", "register", "big", "--setting", "cores_per_worker=").returncode == 0
    assert catalog.clusters.get("big").settings["cores_per_worker"] == 1


def test_what_does_not_fit_the_kind_is_refused_and_nothing_is_registered(catalog: Catalog) -> None:
    assert_refused(register(cores_per_worker="many"), "settings that do not fit the kind 'standalone'", "cores_per")
    assert_refused(register(coers=1), "coers")
    assert run("cluster", "register", "big", "--workers", 2).returncode == 2
    assert run("cluster", "register", "big", "--kind", "ec2").returncode == 2
    assert run("cluster", "register", "big", "--kind", "yarn", "--workers", 2).returncode == 2
    assert catalog.clusters.all() == []


def test_a_cluster_belongs_to_one_job(catalog: Catalog, job: str) -> None:
    register()
    assert run("register", job, "--cluster", "big").returncode == 0
    store = f"{catalog.jobs.get(job).store}-2"
    catalog.jobs.register("clicks", artifact="/c", store=store, master_url="m", parallelism=1, max_parallelism=16)
    assert_refused(
        run("register", "clicks", "--cluster", "big"),
        f"found cluster 'big' in use by job '{job}'",
        "`statecore cluster register`",
        f"`statecore register {job} --cluster=`",
    )
    assert catalog.jobs.get("clicks").cluster is None
    assert run("register", job, "--cluster=").returncode == 0
    assert run("register", "clicks", "--cluster", "big").returncode == 0


def test_a_cluster_that_a_run_resizes_is_left_to_it(catalog: Catalog, job: str) -> None:
    register()
    run("register", job, "--cluster", "big")
    catalog.leases.acquire(job, "manual__1", 60_000)
    assert_refused(run("cluster", "register", "big", "--workers", 9), "held by 'manual__1'")
    assert catalog.clusters.get("big").desired_workers == 2


def test_clusters_are_listed_with_their_jobs_and_without_their_settings(catalog: Catalog, job: str) -> None:
    register()
    register(name="small", run_dir="/hidden")
    run("register", job, "--cluster", "big")
    catalog.clusters.claim("big", "host-1")
    catalog.clusters.report("big", ready_workers=1, message="no [quota]")
    done = run("cluster", "list")
    for part in ("big", "small", "standalone", "1 ready of 2", job, "host-1", "no [quota]"):
        assert part in done.stdout
    assert "hidden" not in done.stdout
    big, small = json.loads(run("cluster", "list", "--json").stdout)
    assert (big["job"], big["workers"], big["host"]) == (job, {"ready": 1, "desired": 2}, "host-1")
    assert (small["cluster"], small["job"]) == ("small", None) and "settings" not in small


def test_a_cluster_is_removed_once_no_job_has_it(catalog: Catalog, job: str) -> None:
    register()
    run("register", job, "--cluster", "big")
    assert_refused(run("cluster", "remove", "big"), f"in use by job '{job}'", f"register {job} --cluster=")
    run("register", job, "--cluster=")
    assert run("cluster", "remove", "big") == (0, "removed cluster big; 0 workers stay\n", "")
    assert catalog.clusters.all() == []
    assert_refused(run("cluster", "remove", "big"), "cluster 'big' is not registered")
