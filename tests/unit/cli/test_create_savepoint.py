"""``savepoint create`` and ``list``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from tests.support.paths import REPO
from tests.support.shell import assert_refused, committed, register, run, running


class TestSavepointsOfAJob:
    def test_create_prints_the_path_alone_and_the_job_runs_on(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store) as driver:
            done = run("savepoint", "create", job, "--name", "deploy", "--reason", "before 2.0")
            assert catalog.generations.is_alive(catalog.generations.newest(job))
            assert driver.generation == 1
        path = f"{store.files.url}/savepoints/deploy/manifest.json"
        assert done == (0, f"{path}\n", "")
        assert store.manifest("savepoints/deploy/manifest.json").epoch == 7
        assert [(each.path, each.reason) for each in catalog.savepoints.of(job)] == [(path, "before 2.0")]

    def test_without_a_name_each_gets_its_own(self, url: str, job: str, store: CheckpointStore) -> None:
        committed(store)
        with running(url, store):
            first, second = (run("savepoint", "create", job).stdout for _ in range(2))
        assert first != second
        assert "/savepoints/manual-2" in first

    def test_a_name_is_a_jobs_own(self, url: str, catalog: Catalog, job: str, store: CheckpointStore) -> None:
        other = CheckpointStore.at(f"{store.files.url}-2")
        register(catalog, other, "invoices")
        committed(store)
        committed(other, job="invoices")
        with running(url, store), running(url, other, "invoices"):
            done = [run("savepoint", "create", name, "--name", "nightly") for name in (job, "invoices")]
        assert [each.stdout for each in done] == [
            f"{place.files.url}/savepoints/nightly/manifest.json\n" for place in (store, other)
        ]

    def test_a_name_that_is_taken_by_an_older_epoch_is_refused(
        self, url: str, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store):
            assert run("savepoint", "create", job, "--name", "nightly").returncode == 0
        committed(store, epoch=8)
        with running(url, store):
            done = run("savepoint", "create", job, "--name", "nightly")
        assert_refused(done, "no savepoint of orders was taken", "epoch 7", "epoch 8", "choose another name")
        assert done.stdout == ""

    def test_one_that_was_removed_by_hand_may_be_taken_again(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store):
            run("savepoint", "create", job, "--name", "nightly")
        store.files.delete("savepoints/nightly/manifest.json")
        committed(store, epoch=8)
        with running(url, store):
            assert run("savepoint", "create", job, "--name", "nightly").returncode == 0
        assert [each.epoch for each in catalog.savepoints.of(job)] == [8]

    def test_a_copy_is_asked_for_by_its_absolute_path(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
    ) -> None:
        catalog.generations.claim(job, log_path="/logs/1.log")
        for target, expected in (("backup", str(REPO / "backup")), ("s3://bucket/x", "s3://bucket/x")):
            done = run("savepoint", "create", job, "--copy-to", target, "--timeout", "0")
            request = catalog.requests.take_next(job)
            assert request is not None and request.kind == "savepoint"
            assert request.arguments["target"] == expected
            catalog.requests.finish(request.id, result={})
            # Nobody answered in time.
            assert_refused(done, "no savepoint of orders was taken", "no answer after 0 s", "/logs/1.log")

    def test_what_the_driver_refuses_is_told(self, url: str, job: str, store: CheckpointStore) -> None:
        with running(url, store):
            assert_refused(run("savepoint", "create", job), "no savepoint of orders was taken", "no committed epoch")

    def test_without_a_driver_nothing_is_asked(self, catalog: Catalog, job: str, store: CheckpointStore) -> None:
        assert_refused(run("savepoint", "create", job), "no live driver of orders", f"{store.files.url}/manifests")
        assert catalog.requests.take_next(job) is None

    @pytest.mark.parametrize("name", ["a/b", "..", "."])
    def test_a_name_that_is_none_of_a_folder_is_refused_before_anything_is_asked(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore, name: str
    ) -> None:
        catalog.generations.claim(job, log_path="/l")
        assert_refused(run("savepoint", "create", job, "--name", name), repr(name))
        assert catalog.requests.take_next(job) is None

    @pytest.mark.parametrize("command", ["create", "list"])
    def test_an_unknown_job_is_refused_and_the_known_ones_are_named(self, job: str, command: str) -> None:
        assert_refused(run("savepoint", command, "typo"), "'typo' is not registered", "known jobs: orders")

    def test_list_prints_them_newest_first_with_paths_in_one_piece(
        self, catalog: Catalog, job: str, tmp_path: Path
    ) -> None:
        long = tmp_path / ("x" * 150)
        for epoch in (3, 9):
            catalog.savepoints.record(
                f"{long}/{epoch}", job=job, lineage=1, epoch=epoch, parallelism=2, reason=f"reason [{epoch}]",
                created_ms=epoch * 1000, bytes=epoch * 10**6, asked_ms=epoch * 1000 - 2_000,
            )  # fmt: skip
        done = run("savepoint", "list", job)
        assert (done.returncode, done.stderr) == (0, "")
        newer, older = (done.stdout.index(f"{long}/{epoch}") for epoch in (9, 3))
        assert newer < older
        assert "1970-01-01 00:00:09" in done.stdout and "reason [9]" in done.stdout
        assert "9.0 MB" in done.stdout and "2 s" in done.stdout

        listed = json.loads(run("savepoint", "list", job, "--json").stdout)
        assert listed[1] == {
            "path": f"{long}/3", "job": job, "lineage": 1, "epoch": 3, "parallelism": 2, "created_ms": 3000,
            "reason": "reason [3]", "bytes": 3 * 10**6, "took_ms": 2_000,
        }  # fmt: skip

    def test_a_job_without_any_has_an_empty_list(self, job: str) -> None:
        assert run("savepoint", "list", job).returncode == 0
        assert run("savepoint", "list", job, "--json").stdout == "[]\n"
