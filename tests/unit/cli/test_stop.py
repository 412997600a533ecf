"""``stop``."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from statecore.catalog import Catalog, Liveness, RequestRecord
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.handmade import manifest
from tests.support.shell import assert_refused, committed, run, running
from tests.support.waiting import wait


class TestStop:
    def test_it_prints_the_path_alone_when_the_driver_has_ended(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store):
            done = run("stop", job)
            newest = catalog.generations.newest(job)
            assert newest is not None and newest.state == "stopped"
        assert (done.returncode, done.stderr) == (0, "")
        path = Path(done.stdout.removesuffix("\n"))
        assert path.is_file() and path.is_relative_to(Path(store.files.url) / "savepoints")
        assert catalog.jobs.get(job).desired_state == "stopped"
        # What comes next finds the job stopped.
        assert run("start", job, "--from", path, "--parallelism", "4").returncode == 0

    def test_while_a_run_changes_the_job_it_is_refused_with_that_runs_id_and_how_to_end_it(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store):
            catalog.leases.acquire(job, "manual__1", 60_000)
            done = run("stop", job)
            assert_refused(done, "found run 'manual__1'", "mark the run failed in Airflow")
            assert catalog.jobs.get(job).desired_state == "running"
            assert catalog.requests.take_next(job) is None
            catalog.leases.release(job, "manual__1")
            assert run("stop", job).returncode == 0
        assert catalog.leases.find(job) is None

    def test_a_change_that_nobody_goes_on_with_is_taken_back_first_and_cannot_start_the_job_again(
        self, catalog: Catalog, job: str
    ) -> None:
        catalog.jobs.set_desired(job, state="running")
        catalog.leases.acquire(job, "manual__1", 0)
        catalog.jobs.set_desired(job, state="stopped", parallelism=4)
        assert run("stop", job).returncode == 0
        assert catalog.leases.recover_expired(job) is None
        assert (catalog.jobs.get(job).desired_state, catalog.jobs.get(job).parallelism) == ("stopped", 2)

    def test_without_a_driver_it_is_done_at_once_and_there_is_no_path(
        self, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        catalog.jobs.set_desired(job, state="running")
        done = run("stop", job)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "orders is stopped; no epoch is committed, so there is no savepoint\n"
        assert catalog.jobs.get(job).desired_state == "stopped"
        committed(store)
        again = run("stop", job).stderr
        assert again.startswith("orders was stopped before") and "resumes from epoch 7 of lineage 1" in again

    def test_a_driver_that_was_silent_and_wakes_up_finds_itself_replaced(
        self, url: str, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Liveness, "is_alive", lambda *_: False)
        with Catalog(url) as catalog:
            catalog.generations.claim(job, log_path="/l")
            assert catalog.generations.heartbeat(job, 1)
            catalog.jobs.set_desired(job, state="running")
            assert "orders is stopped; no epoch is committed" in run("stop", job).stderr
            assert not catalog.generations.heartbeat(job, 1)

    def test_while_a_roll_back_is_pending_the_savepoint_is_of_what_the_job_should_start_from(
        self, catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
    ) -> None:
        old = store.write_savepoint(committed(store, epoch=5), "old", reason="", now_ms=0)
        committed(store, epoch=7)
        assert run("start", job, "--from", store.describe(old), "--roll-back").returncode == 0
        done = run("stop", job)
        assert done.returncode == 0
        assert store.open(done.stdout.strip()).manifest.epoch == 5
        wanted = catalog.jobs.get(job)
        assert (wanted.start_from, wanted.roll_back) == (store.describe(old), True)

    def test_while_a_start_from_elsewhere_is_pending_there_is_nothing_to_make_a_savepoint_of(
        self, catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        path = elsewhere.write_savepoint(manifest(epoch=5), "old", reason="", now_ms=0)
        committed(store, epoch=7)
        assert run("start", job, "--from", elsewhere.describe(path), "--roll-back").returncode == 0
        assert_refused(run("stop", job), "found no epoch of job 'orders' since it should start from", "start the job")
        assert (catalog.jobs.get(job).start_from, catalog.jobs.get(job).roll_back) == (elsewhere.describe(path), True)

    def test_when_it_is_interrupted_no_generation_stays_that_keeps_drivers_away(
        self, catalog: Catalog, job: str, store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        committed(store)
        catalog.jobs.set_desired(job, state="running")
        monkeypatch.setattr(CheckpointStore, "write_savepoint", interrupted)
        run("stop", job)
        newest = catalog.generations.newest(job)
        assert newest is not None and (newest.state, newest.error) == ("failed", "ended by KeyboardInterrupt")

    def test_before_the_first_epoch_there_is_nothing_to_keep_but_it_stops(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        with running(url, store):
            done = run("stop", job)
            assert not catalog.generations.is_alive(catalog.generations.newest(job))
        said = "orders is stopped; no epoch is committed, so there is no savepoint\n"
        assert done == (0, "", said)
        assert catalog.jobs.get(job).desired_state == "stopped"

    def test_a_driver_that_dies_meanwhile_is_not_waited_for_and_its_successor_is_not_stopped(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        catalog.jobs.set_desired(job, state="running")
        catalog.generations.claim(job, log_path="/logs/1.log")
        asked: list[RequestRecord] = []

        def die() -> None:
            request = wait(lambda: catalog.requests.take_next(job), "the request")
            assert request is not None
            asked.append(request)
            catalog.generations.end(job, 1, state="failed", error="killed")

        dying = threading.Thread(target=die, daemon=True)
        dying.start()
        done = run("stop", job)
        dying.join()
        # The savepoint is made of the newest epoch then.
        assert done.returncode == 0 and Path(done.stdout.removesuffix("\n")).is_file()
        assert catalog.requests.get(asked[0].id).state == "done"
        run("start", job)
        catalog.generations.claim(job, log_path="/l", if_wanted=True)
        assert catalog.requests.take_next(job) is None

    def test_a_driver_that_does_not_answer_in_time_is_named_with_its_log(self, catalog: Catalog, job: str) -> None:
        catalog.jobs.set_desired(job, state="running")
        catalog.generations.claim(job, log_path="/logs/1.log")
        done = run("stop", job, "--timeout", "0.1")
        assert_refused(done, "orders should stop", "request pending", "/logs/1.log")
        # It may still come to it.
        assert catalog.requests.take_next(job) is not None
