"""``rescale``: every method, and the way back when a step fails."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from statecore.catalog import Catalog, Leases
from statecore.catalog.audit import this_user
from statecore.cli import steps
from statecore.errors import CatalogError
from statecore.runtime.driver.start_savepoint import forget_start
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.resume_point import find_resume_point
from tests.support.patience import only_impatient
from tests.support.shell import Done, assert_refused, committed, register, run
from tests.support.supervised import CLUSTER, Supervised, supervise
from tests.support.waiting import wait


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "RETRY_DELAY", timedelta(seconds=0.01))


@pytest.fixture
def sized(catalog: Catalog, store: CheckpointStore) -> str:
    """A job on a cluster of one worker, with a committed epoch."""
    catalog.clusters.register(CLUSTER, "standalone", {}, 1)
    register(catalog, store, cluster=CLUSTER, conf={"spark.cores.max": "2", "statecore.cleanup.grace": "2h"})
    committed(store)
    return "orders"


@pytest.fixture
def running_job(url: str, sized: str, store: CheckpointStore) -> Iterator[Supervised]:
    with Supervised(url, sized, store) as supervised:
        yield supervised


def test_live_the_same_driver_goes_on_at_the_new_parallelism(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    done = run("rescale", sized, "--parallelism", 4, "--workers", 2, "--reason", "drain")
    expected = "orders: method live; expected downtime: none, the job keeps running\n"
    assert (done.returncode, done.stderr) == (0, expected)
    assert done.stdout == "orders: parallelism 2 -> 4, live\n"
    assert [each.parallelism for each in catalog.generations.of(sized)] == [4]
    (recorded,) = catalog.runs.of(sized)
    assert (recorded.state, recorded.method, recorded.reason) == ("done", "live", "drain")
    assert (recorded.from_workers, recorded.to_workers) == (1, 2)
    assert catalog.leases.find(sized) is None
    run("rescale", sized, "--parallelism", 2, "--workers", 1)
    wait(lambda: running_job.sizes[-1] == (1, 2), "the cluster to shrink")
    sizes = [size for size in running_job.sizes if size[1]]
    # It grows before there are more subtasks, and shrinks when there are fewer.
    assert [size for size in sizes if size != (2, 2)] == [(1, 2), (2, 4), (1, 2)]


def test_by_reference_it_stops_with_a_savepoint_and_a_new_driver_goes_on(
    catalog: Catalog, sized: str, running_job: Supervised, store: CheckpointStore
) -> None:
    done = run("rescale", sized, "--parallelism", 4, "--method", "by_reference", "--json")
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    assert (told["method"], told["from"], told["to"]) == ("by_reference", 2, 4)
    newest, oldest = catalog.generations.of(sized)
    assert (oldest.state, newest.state, newest.parallelism) == ("stopped", "running", 4)
    (recorded,) = catalog.runs.of(sized)
    assert (recorded.run_id, recorded.state) == (told["run"], "done")
    assert list(recorded.steps) == [
        "lease", "grow_cluster", "stop_with_savepoint", "rescale_state", "restart", "verify",
    ]  # fmt: skip
    assert all(times.ended_ms is not None for times in recorded.steps.values())
    assert recorded.savepoint is not None and recorded.rescaled is not None
    assert store.manifest(recorded.savepoint).parallelism == 2 and store.manifest(recorded.rescaled).parallelism == 4
    assert catalog.leases.find(sized) is None


def test_a_rescale_keeps_a_roll_back_and_a_claim_that_no_epoch_has_followed(
    url: str, catalog: Catalog, sized: str, store: CheckpointStore
) -> None:
    newest = store.newest()
    assert newest is not None
    old = store.write_savepoint(msgspec.structs.replace(newest, epoch=5), "old", reason="", now_ms=0)
    assert run("start", sized, "--from", store.describe(old), "--roll-back", "--claim").returncode == 0
    with Supervised(url, sized, store):
        done = run("rescale", sized, "--parallelism", 4, "--method", "by_reference")
    assert done.returncode == 0, done
    point = find_resume_point(store, catalog.jobs.get(sized), 9)
    assert point.manifest is not None
    assert (point.manifest.epoch, point.manifest.parallelism, point.lineage) == (5, 4, 9)
    # As the driver does after its first commit.
    made = set(store.savepoints())
    forget_start(catalog.jobs, store, catalog.jobs.get(sized))
    assert set(store.savepoints()) == made - {old} and point.path in made
    after = catalog.jobs.get(sized)
    assert (after.start_from, after.claims_savepoint) == (None, None)


def test_rewrite_has_spark_lay_the_state_out_anew_in_between(
    catalog: Catalog,
    sized: str,
    running_job: Supervised,
    store: CheckpointStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    (submit.parent / "spark-class").touch()
    savepoints = Path(store.files.url) / "savepoints"
    submit.write_text(
        f"""#!/bin/sh
        echo "$@" > {tmp_path}/arguments
        for each; do case $each in *.properties) cp "$each" {tmp_path}/properties;; esac; done
        while [ "$1" != --savepoint ]; do shift; done
        mkdir {savepoints}/$4
        cp "$2" {savepoints}/$4/manifest.json
        """
    )
    submit.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(submit.parents[1]))
    done = run("rescale", sized, "--parallelism", 4, "--method", "rewrite", "--max-parallelism", 64)
    assert done.returncode == 0, done
    wanted = catalog.jobs.get(sized)
    assert (wanted.parallelism, wanted.max_parallelism) == (4, 64)
    (recorded,) = catalog.runs.of(sized)
    assert list(recorded.steps) == [
        "lease", "grow_cluster", "stop_with_savepoint", "rescale_state", "restart", "verify",
    ]  # fmt: skip
    assert recorded.savepoint is not None and recorded.rescaled == wanted.start_from
    # Known to the catalog, so that retention drops it in the end.
    assert store.describe(str(recorded.rescaled)) in [savepoint.path for savepoint in catalog.savepoints.of(sized)]
    arguments = (tmp_path / "arguments").read_text().split()
    program = next(index for index, each in enumerate(arguments) if each.endswith("programs/rewrite.py"))
    assert arguments[program - 1] == "--load-spark-defaults"
    options = dict(zip(arguments[: program - 1 : 2], arguments[1 : program - 1 : 2], strict=True))
    assert options["--master"] == "local[2]" and not Path(options["--properties-file"]).exists()
    assert "spark.cores.max=2" in (tmp_path / "properties").read_text().splitlines()
    assert arguments[program + 1 : program + 3] == ["--savepoint", store.describe(recorded.savepoint)]
    assert arguments[program + 5 :] == ["--parallelism", "4", "--max-parallelism", "64"]


def test_when_the_new_driver_fails_the_job_goes_back_to_its_old_size(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    running_job.fail_at = 4
    done = run("rescale", sized, "--parallelism", 4, "--workers", 2, "--method", "by_reference")
    assert done.returncode == 1
    *_, said, error = done.stderr.splitlines()
    assert said == "job 'orders' was rolled back to parallelism 2 and 1 workers, and resumes from epoch 7 of lineage 1"
    assert "failed: out of memory" in error and "/logs/" in error
    wanted = catalog.jobs.get(sized)
    assert (wanted.desired_state, wanted.parallelism, wanted.start_from) == ("running", 2, None)
    assert catalog.clusters.get(CLUSTER).desired_workers == 1
    (recorded,) = catalog.runs.of(sized)
    assert recorded.state == "failed" and "out of memory" in str(recorded.error)
    assert catalog.leases.find(sized) is None
    running_job.wait_running(2)


@pytest.mark.parametrize("method", ["live", "by_reference"])
def test_when_it_does_not_keep_up_at_its_new_size_the_job_goes_back(
    catalog: Catalog, sized: str, running_job: Supervised, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    only_impatient(monkeypatch, "verify")
    running_job.waiting = 500
    done = run("rescale", sized, "--parallelism", 4, "--method", method, "--timeout", 1)
    assert_refused_last(done, "0 epochs, 500 records wait", "a live driver at the new parallelism that keeps up")
    running_job.wait_running(2)
    (recorded,) = catalog.runs.of(sized)
    assert (recorded.state, list(recorded.steps)[-2:]) == ("failed", ["verify", "rollback"])


def test_whoever_stops_a_job_is_told_what_that_took_before(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    by_reference = ("--method", "by_reference")
    assert "expected downtime: unknown" in run("rescale", sized, "--parallelism", 4, *by_reference).stderr
    assert "in 1 earlier run)" in run("rescale", sized, "--parallelism", 2, *by_reference).stderr
    assert "in 2 earlier runs)" in run("plan", sized, "--parallelism", 4).stdout
    assert json.loads(run("plan", sized, "--parallelism", 4, "--json").stdout)["downtime_ms"] > 0


def test_when_the_cluster_cannot_grow_the_job_goes_on_as_it_was(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    running_job.cluster_error = "found no quota for 2 workers; expected some; ask for more"
    for method in ("live", "by_reference"):
        assert_refused_last(run("rescale", sized, "--parallelism", 4, "--workers", 2, "--method", method), "no quota")
        running_job.wait_running(2)
        assert catalog.clusters.get(CLUSTER).desired_workers == 1
    # Nothing was stopped for a cluster that did not come.
    assert [each.generation for each in catalog.generations.of(sized)] == [1]


@pytest.mark.parametrize("method", ["live", "by_reference"])
def test_workers_are_given_back_once_the_job_is_verified_at_fewer_subtasks(
    catalog: Catalog, sized: str, running_job: Supervised, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    only_impatient(monkeypatch, "verify")
    catalog.clusters.set_desired_workers(CLUSTER, 2)
    wait(lambda: catalog.clusters.get(CLUSTER).ready_workers == 2, "two workers")
    arguments = ("--parallelism", 1, "--workers", 1, "--method", method)
    running_job.waiting, before = 500, len(running_job.sizes)
    refused = run("rescale", sized, *arguments, "--timeout", 1)
    assert refused.returncode == 1
    # The cluster that a rollback needs was there all the time.
    assert {workers for workers, _ in running_job.sizes[before:]} == {2}
    assert [size for size in running_job.sizes if size[1] == 1] == [(2, 1)]
    running_job.waiting = 0
    running_job.wait_running(2)
    assert run("rescale", sized, *arguments).returncode == 0
    recorded, _ = catalog.runs.of(sized)
    assert list(recorded.steps)[-2:] == ["verify", "shrink_cluster"]
    assert (catalog.clusters.get(CLUSTER).desired_workers, catalog.leases.find(sized)) == (1, None)
    assert running_job.sizes[-2:] == [(2, 1), (1, 1)]


def test_surplus_workers_that_do_not_go_are_told_and_the_rescale_stays_done(
    catalog: Catalog, sized: str, running_job: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_impatient(monkeypatch, "shrink_cluster")
    # The lease has been given back, and nothing is left to renew.
    monkeypatch.setattr("statecore.cli.lease._RENEW_S", 0.05)
    catalog.clusters.set_desired_workers(CLUSTER, 2)
    wait(lambda: catalog.clusters.get(CLUSTER).ready_workers == 2, "two workers")
    running_job.stuck_workers = 2
    done = run("rescale", sized, "--parallelism", 1, "--workers", 1, "--timeout", 1)
    assert_refused_last(done, "with 2 of 1 workers ready", "expected the surplus workers to be gone")
    (recorded,) = catalog.runs.of(sized)
    assert (recorded.state, catalog.jobs.get(sized).parallelism, catalog.leases.find(sized)) == ("done", 1, None)
    assert catalog.clusters.get(CLUSTER).desired_workers == 1


def test_a_size_beyond_the_limits_of_the_cluster_is_refused_before_anything_changes(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    running_job.limits = (1, 3)
    wait(lambda: catalog.clusters.get(CLUSTER).max_workers == 3, "the limits")
    for method in ("live", "by_reference", "rewrite"):
        refused = run("rescale", sized, "--parallelism", 4, "--workers", 4, "--method", method)
        assert_refused(refused, f"found 4 workers asked for job '{sized}'; expected 1 to 3, the limits of cluster")
    assert catalog.runs.of(sized) == [] and catalog.clusters.get(CLUSTER).desired_workers == 1


def test_a_live_rescale_that_nobody_waits_for_any_more_is_not_taken_up_later(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    running_job.deaf = True
    done = run("rescale", sized, "--parallelism", 4, "--timeout", 0.05)
    assert_refused_last(done, "request 1 to rescale pending", "/logs/1.log")
    running_job.deaf = False
    assert catalog.requests.get(1).state == "failed"
    assert catalog.jobs.get(sized).parallelism == 2


@pytest.mark.parametrize("trouble", [CatalogError("database is locked"), KeyboardInterrupt()])
def test_a_job_that_could_not_be_rolled_back_is_left_to_the_supervisor(
    catalog: Catalog,
    sized: str,
    running_job: Supervised,
    monkeypatch: pytest.MonkeyPatch,
    trouble: BaseException,
) -> None:
    running_job.deaf = True
    with monkeypatch.context() as broken:
        broken.setattr(Leases, "roll_back", Mock(side_effect=trouble))
        assert run("rescale", sized, "--parallelism", 4, "--timeout", 0.05).returncode != 0
    lease = catalog.leases.find(sized)
    assert lease is not None
    assert catalog.runs.get(lease.owner).state == "running"


def test_of_two_at_once_the_second_is_refused_with_the_first_ones_run(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    running_job.deaf = True
    first = threading.Thread(target=run, args=("rescale", sized, "--parallelism", 4), daemon=True)
    first.start()
    lease = wait(lambda: catalog.leases.find(sized), "the lease")
    assert lease is not None
    command = [sys.executable, "-m", "statecore", "rescale", sized, "--parallelism", "3", "--timeout", "1"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    running_job.deaf = False
    first.join()
    assert_refused(Done(second.returncode, second.stdout, second.stderr), lease.owner)
    (recorded,) = catalog.runs.of(sized)
    assert (recorded.run_id, recorded.state, recorded.to_parallelism) == (lease.owner, "done", 4)


def test_another_shell_aborts_a_rescale_which_is_rolled_back(
    catalog: Catalog, sized: str, running_job: Supervised
) -> None:
    running_job.deaf = True
    done: list[Done] = []
    first = threading.Thread(
        target=lambda: done.append(run("rescale", sized, "--parallelism", 4, "--workers", 2)), daemon=True
    )
    first.start()
    wait(lambda: any("rescale_state" in each.steps for each in catalog.runs.of(sized)), "the request")
    command = [sys.executable, "-m", "statecore", "rescale", sized, "--abort", "--json"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    first.join()
    assert second.returncode == 0, second
    (recorded,) = catalog.runs.of(sized)
    told = json.loads(second.stdout)
    assert (told["run"], told["state"], told["error"]) == (recorded.run_id, "failed", recorded.error)
    assert f"aborted by {this_user()} at step rescale_state; job 'orders' was rolled back" in str(recorded.error)
    assert done[0].returncode == 1 and f"error: aborted by {this_user()}" in done[0].stderr
    assert (catalog.clusters.get(CLUSTER).desired_workers, catalog.leases.find(sized)) == (1, None)
    assert [(each.generation, each.parallelism) for each in catalog.generations.of(sized)] == [(1, 2)]


def test_where_nothing_is_changing_the_job_there_is_nothing_to_abort(sized: str, running_job: Supervised) -> None:
    assert_refused(run("rescale", sized, "--abort"), "found no run changing job 'orders'")
    assert run("rescale", sized, "--abort", "--parallelism", 4).returncode == 2
    assert run("rescale", sized).returncode == 2


def test_a_job_that_does_not_run_is_started_at_its_parallelism(catalog: Catalog, job: str) -> None:
    done = run("rescale", job, "--parallelism", 4)
    assert_refused(done, "job 'orders' stopped", "`statecore start orders --parallelism 4`")
    catalog.jobs.set_desired(job, state="running")
    assert_refused(run("rescale", job, "--parallelism", 4, "--method", "live"), "no live driver")


def test_more_than_max_parallelism_is_refused_unless_that_grows_too(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="running")
    supervise(catalog)
    assert_refused(run("rescale", job, "--parallelism", 17), "1 to its max parallelism 16", "method rewrite")
    more = ("--method", "rewrite", "--max-parallelism", 32, "--timeout", 0.1)
    assert_refused_last(run("rescale", job, "--parallelism", 17, *more), "no committed epoch")


def test_without_a_supervisor_nothing_is_stopped(catalog: Catalog, job: str) -> None:
    catalog.jobs.set_desired(job, state="running")
    before = catalog.jobs.get(job)
    done = run("rescale", job, "--parallelism", 4)
    assert_refused(done, "found no living supervisor", "start `statecore supervisor --logs DIRECTORY`")
    assert catalog.jobs.get(job) == before and catalog.leases.find(job) is None and catalog.runs.of(job) == []


def test_what_does_not_go_together_is_refused(job: str) -> None:
    assert run("rescale", job, "--parallelism", 4, "--max-parallelism", 32).returncode == 2
    assert run("rescale", job, "--parallelism", 4, "--method", "magic").returncode == 2
    assert_refused(run("rescale", job, "--parallelism", 4, "--workers", 2), "names no cluster")


def assert_refused_last(done, *parts: str) -> None:
    """What is done about a failure may be said before it."""
    assert_refused(done._replace(stderr=done.stderr.splitlines()[-1] + "\n"), *parts)
