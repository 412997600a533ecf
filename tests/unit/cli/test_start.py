"""``start``."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from statecore.catalog import Catalog, ClaimedSavepoint
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import FileRef, StagedOutput, fingerprint
from tests.support.handmade import manifest
from tests.support.shell import assert_refused, committed, register, run, running


class TestStart:
    """From a savepoint: what the driver to come finds wanted."""

    def test_a_savepoint_is_wanted_by_its_absolute_path_with_its_max_parallelism(
        self, catalog: Catalog, job: str, savepoint: Path, store: CheckpointStore
    ) -> None:
        for given in (savepoint, savepoint / "manifest.json", os.path.relpath(savepoint), "savepoints/before-outage"):
            done = run("start", job, "--from", given, "--parallelism", "3")
            assert done == (
                0,
                f"orders should run from {savepoint}/manifest.json; the supervisor starts its driver\n",
                "",
            )
            wanted = catalog.jobs.get(job)
            assert (wanted.start_from, wanted.desired_state) == (f"{savepoint}/manifest.json", "running")
            assert (wanted.parallelism, wanted.max_parallelism) == (3, 16)
            assert (wanted.roll_back, wanted.claims_savepoint) == (False, None)
            catalog.jobs.set_desired(job, state="stopped", start_from=None)

    def test_one_with_another_max_parallelism_changes_the_jobs(
        self, catalog: Catalog, job: str, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        path = elsewhere.write_savepoint(manifest(max_parallelism=64), "wide", reason="", now_ms=0)
        assert run("start", job, "--from", elsewhere.describe(path), "--claim").returncode == 0
        wanted = catalog.jobs.get(job)
        assert wanted.max_parallelism == 64
        assert wanted.claims_savepoint == ClaimedSavepoint(
            elsewhere.describe(path), fingerprint(elsewhere.manifest(path))
        )

    def test_one_that_was_overtaken_needs_roll_back(
        self, catalog: Catalog, job: str, savepoint: Path, store: CheckpointStore
    ) -> None:
        committed(store, epoch=8)
        before = catalog.jobs.get(job)
        done = run("start", job, "--from", savepoint)
        assert_refused(done, "epoch 8 of lineage 1", savepoint, "--roll-back")
        assert catalog.jobs.get(job) == before
        assert run("start", job, "--from", savepoint, "--roll-back").returncode == 0
        assert catalog.jobs.get(job).roll_back

    def test_one_of_another_job_does_too_where_there_are_epochs(
        self, catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        path = elsewhere.describe(elsewhere.write_savepoint(manifest(job="other"), "s", reason="", now_ms=0))
        committed(store)
        assert_refused(run("start", job, "--from", path), "of job 'other'", "--roll-back")

    def test_one_with_unpublished_rows_is_refused_until_they_are_published_or_left(
        self, catalog: Catalog, job: str, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        rows = StagedOutput(sink="alerts", file=FileRef(path="staged/x", size=1, sha256="0" * 64), rows=1)
        asked = msgspec.structs.replace(manifest(job="other", epoch=7), outputs=(rows,))
        marker = tmp_path / "elsewhere/_published/alerts/1-6"
        marker.parent.mkdir(parents=True)
        marker.touch()
        path = elsewhere.describe(elsewhere.write_savepoint(asked, "s", reason="", now_ms=0))
        before = catalog.jobs.get(job)
        refused = run("start", job, "--from", path)
        assert_refused(refused, "epoch 7 of job 'other'", "sinks ['alerts']", "--skip-unpublished")
        assert catalog.jobs.get(job) == before
        assert json.loads(run("savepoint", "show", path, "--json").stdout)["unpublished"] == ["alerts"]
        assert run("start", job, "--from", path, "--skip-unpublished").returncode == 0
        catalog.jobs.set_desired(job, state="stopped", start_from=None)
        marker.rename(marker.with_name("1-7"))
        assert run("start", job, "--from", path).returncode == 0

    def test_of_its_own_newest_epoch_the_job_publishes_what_is_not(
        self, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        rows = StagedOutput(sink="alerts", file=FileRef(path="staged/x", size=1, sha256="0" * 64), rows=1)
        newest = msgspec.structs.replace(manifest(epoch=7), outputs=(rows,))
        store.commit(newest)
        store.write_savepoint(newest, "s", reason="", now_ms=0)
        assert run("start", job, "--from", "savepoints/s").returncode == 0

    def test_where_there_is_no_savepoint_nothing_is_changed(self, catalog: Catalog, job: str) -> None:
        before = catalog.jobs.get(job)
        assert_refused(run("start", job, "--from", "savepoints/typo"), "savepoints/typo/manifest.json")
        assert catalog.jobs.get(job) == before

    @pytest.mark.parametrize("more", [["--from", "savepoints/before-outage"], ["--parallelism", "3"]])
    def test_what_a_running_driver_would_not_notice_is_refused(
        self, url: str, catalog: Catalog, job: str, savepoint: Path, store: CheckpointStore, more: list[str]
    ) -> None:
        with running(url, store):
            before = catalog.jobs.get(job)
            assert_refused(run("start", job, *more), "found orders running", "stop orders")
            assert catalog.jobs.get(job) == before
            again = run("start", job)
            assert (again.returncode, again.stderr) == (0, "")
            assert again.stdout.startswith("orders is running already: generation 1, since 20")
        # Its driver is gone, but the supervisor may start the next at any moment.
        assert_refused(run("start", job, *more), "found orders running")

    def test_lost_records_are_accepted_once_and_by_name(self, catalog: Catalog, job: str) -> None:
        assert run("start", job, "--accept-lost-records").returncode == 0
        assert catalog.jobs.get(job).accept_lost_records
        assert catalog.jobs.audit(job)[0].change["accept_lost_records"] == [False, True]
        assert run("start", job).returncode == 0
        assert not catalog.jobs.get(job).accept_lost_records
        assert run("start", job, "--accept-lost-records").returncode == 0
        catalog.jobs.set_desired(job, state="stopped")
        assert not catalog.jobs.get(job).accept_lost_records, "given for one start"
        catalog.jobs.set_desired(job, state="running")
        catalog.generations.claim(job, log_path="")
        catalog.generations.heartbeat(job, 1)
        assert run("start", job, "--accept-lost-records").returncode == 0
        assert not catalog.jobs.get(job).accept_lost_records, "its driver runs, and lacks nothing"

    def test_while_a_run_changes_the_job_it_is_refused_with_that_runs_id(self, catalog: Catalog, job: str) -> None:
        catalog.leases.acquire(job, "manual__1", 60_000)
        before = catalog.jobs.get(job)
        assert_refused(run("start", job), "held by 'manual__1'")
        assert catalog.jobs.get(job) == before

    def test_it_takes_more_workers_for_a_job_whose_drivers_fail_for_want_of_them(
        self, catalog: Catalog, store: CheckpointStore
    ) -> None:
        catalog.clusters.register("local", "standalone", {}, workers=1)
        register(catalog, store, cluster="local")
        assert run("start", "orders", "--parallelism", "4", "--workers", "2").returncode == 0
        assert (catalog.jobs.get("orders").parallelism, catalog.clusters.get("local").desired_workers) == (4, 2)
        failed = catalog.generations.claim("orders", log_path="")
        catalog.generations.end("orders", failed.generation, state="failed", error="no executor joined")
        # The supervisor goes on to start drivers; the next one finds more workers.
        assert run("start", "orders", "--workers", "3").returncode == 0
        assert catalog.jobs.get("orders").desired_state == "running"
        assert catalog.clusters.get("local").desired_workers == 3

    def test_workers_of_a_job_whose_cluster_is_not_ours_are_refused(self, catalog: Catalog, job: str) -> None:
        before = catalog.jobs.get(job)
        assert_refused(run("start", job, "--workers", "2"), "2 workers asked for", "names no cluster")
        assert catalog.jobs.get(job) == before
        assert catalog.leases.find(job) is None

    @pytest.mark.parametrize("option", ["--roll-back", "--claim", "--skip-unpublished"])
    def test_what_says_how_to_start_from_a_savepoint_needs_one(self, job: str, option: str) -> None:
        done = run("start", job, option)
        assert done.returncode == 2
        assert "--from" in done.stderr
