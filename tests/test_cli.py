"""``python -m statecore`` as a shell meets it: output, exit code, one line on stderr."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from unittest.mock import patch

import pytest

from statecore.catalog import Catalog, EpochRecord, Liveness, RequestRecord, SourceBacklog
from statecore.cli import main
from statecore.runtime.control import Control, Takers
from statecore.runtime.savepoints import SavepointTaker
from statecore.runtime.side_jobs import SideJobs
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, write_definition
from statecore.snapshot.manifest import Manifest, SourcePositions
from tests.conftest import REPO
from tests.handmade import manifest, written

LONG_POSITION = json.dumps({"flights": {str(partition): 10**9 for partition in range(40)}})


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path, **environment: str) -> Done:
    """Run the command line as a pipe sees it, in this process: a hundred interpreters take minutes to start."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["statecore", *map(str, arguments)]
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, environment),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Done(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def assert_refused(done: Done, *parts: str | Path) -> None:
    """A refusal is exit code 1 and an error of three parts on stderr, without a traceback."""
    assert done.returncode == 1, done
    for line in done.stderr.splitlines():
        assert line.startswith("error: ")
        assert line.count(";") >= 2, line
    assert "Traceback" not in done.stderr
    for part in parts:
        assert str(part) in done.stderr


def test_it_is_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "statecore", "savepoint", "show", "nowhere"],
        capture_output=True, text=True, cwd=REPO, timeout=120, check=False,
    )  # fmt: skip
    assert_refused(Done(done.returncode, done.stdout, done.stderr), REPO / "nowhere")
    assert done.stdout == ""


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore.at(str(tmp_path / "store"))


def committed(store: CheckpointStore, epoch: int = 7, parallelism: int = 2, **changes: Any) -> Manifest:
    """Commit an epoch with state, sources and a job file."""
    made = written(
        store,
        parallelism,
        epoch=epoch,
        watermark_ms=1_700_000_000_000,
        artifact=store.keep_artifact("orders.py", b"def build(job): ...\n"),
        sources=(
            SourcePositions(name="flights", positions=(LONG_POSITION,)),
            SourcePositions(name="rules", positions=()),
        ),
        **changes,
    )
    store.commit(made)
    return made


@pytest.fixture
def savepoint(store: CheckpointStore) -> Path:
    path = store.write_savepoint(committed(store), "before-outage", reason="storage is down", now_ms=0)
    return Path(store.describe(path)).parent


class TestSavepoint:
    def test_show_prints_what_it_holds(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint)
        assert (done.returncode, done.stderr) == (0, "")
        for part in ("before-outage", "storage is down", "orders", "1, 7", "2 of at most 16", "totals", "k string"):
            assert part in done.stdout
        assert "total (keyed value of bigint)" in done.stdout
        assert "waiting (operator list of bigint)" in done.stdout
        assert "0–7" in done.stdout
        assert "2023-11-14 22:13:20 UTC" in done.stdout
        assert "orders.py, " in done.stdout

    def test_show_prints_where_sources_stand_and_cuts_nothing_off(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint)
        assert "sources, as operator list state" in done.stdout
        assert LONG_POSITION in done.stdout

    def test_show_tells_programs_the_same(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint, "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        facts = json.loads(done.stdout)
        assert facts["path"] == str(savepoint / "manifest.json")
        assert facts["savepoint"] == {"name": "before-outage", "reason": "storage is down", "created_ms": 0}
        assert (facts["job"], facts["lineage"], facts["epoch"], facts["rows_total"]) == ("orders", 1, 7, 30)
        assert (facts["parallelism"], facts["max_parallelism"]) == (2, 16)
        assert (facts["watermark_ms"], facts["artifact"]["name"]) == (1_700_000_000_000, "orders.py")
        assert [(each["name"], each["positions"]) for each in facts["sources"]] == [
            ("flights", [LONG_POSITION]), ("rules", []),
        ]  # fmt: skip
        (operator,) = facts["operators"]
        assert (operator["uid"], operator["key"]) == ("totals", [{"name": "k", "type": "string"}])
        shares = [(s["subtask"], s["state"], s["key_groups"], s["files"], s["rows"]) for s in operator["states"]]
        assert shares == [
            (0, "total", [[0, 7]], 1, 8),
            (0, "waiting", [], 1, 3),
            (1, "total", [[8, 15]], 1, 8),
            (1, "waiting", [], 1, 3),
        ]
        assert facts["files"] == 5
        assert facts["bytes"] > sum(s["bytes"] for s in operator["states"]) > 0

    def test_show_takes_the_manifest_file_too(self, savepoint: Path) -> None:
        assert (
            run("savepoint", "show", savepoint / "manifest.json").stdout == run("savepoint", "show", savepoint).stdout
        )

    def test_show_takes_a_checkpoint_too_and_event_time_of_any_age(self, store: CheckpointStore) -> None:
        made = manifest(watermark_ms=-62_135_596_800_001)
        store.commit(made)
        path = store.describe(store.manifest_path(made.lineage, made.epoch))
        done = run("savepoint", "show", path)
        assert done.returncode == 0, done
        assert "none, a checkpoint" in done.stdout
        assert "-62135596800001 ms" in done.stdout
        assert json.loads(run("savepoint", "show", path, "--json").stdout)["savepoint"] is None

    def test_verify_says_whole_when_it_is(self, savepoint: Path) -> None:
        done = run("savepoint", "verify", savepoint)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("whole: 5 files, ")

    def test_verify_names_every_damaged_missing_and_foreign_file(self, savepoint: Path, tmp_path: Path) -> None:
        gone, damaged, *_ = sorted((tmp_path / "store/state").rglob("*-*.*"))
        gone.unlink()
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
        (savepoint / "stranger").write_bytes(b"")
        done = run("savepoint", "verify", savepoint)
        assert_refused(done, gone, damaged, savepoint / "stranger")
        assert len(done.stderr.splitlines()) == 3
        assert done.stdout == ""

    @pytest.mark.parametrize(
        "command", [["savepoint", "show"], ["savepoint", "verify"], ["plan", "--parallelism", "2"]]
    )
    def test_where_no_savepoint_is_the_path_is_named(self, tmp_path: Path, command: list[str]) -> None:
        assert_refused(run(*command, tmp_path / "typo"), tmp_path / "typo")

    @pytest.mark.parametrize("command", ["show", "verify", "drop"])
    def test_what_is_no_manifest_is_refused_by_name(self, savepoint: Path, command: str) -> None:
        (savepoint / "manifest.json").write_text('{"format": "statecore.manifest", "version": 99}')
        assert_refused(run("savepoint", command, savepoint), savepoint / "manifest.json", "version 99")

    @pytest.mark.parametrize(
        "arguments",
        [[], ["savepoint"], ["savepoint", "show"], ["savepoint", "drop"], ["savepoint", "list", "orders"], ["typo"]],
    )
    def test_wrong_usage_is_exit_code_2(self, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("STATECORE_CATALOG", raising=False)
        done = run(*arguments)
        assert done.returncode == 2
        assert "Usage" in done.stdout + done.stderr


class TestPlan:
    def test_it_prints_what_each_subtask_will_have_and_writes_nothing(self, savepoint: Path, tmp_path: Path) -> None:
        before = sorted((tmp_path / "store").rglob("*"))
        done = run("plan", savepoint, "--parallelism", "4")
        assert (done.returncode, done.stderr) == (0, "")
        first, *_ = done.stdout.splitlines()
        assert first == (
            "orders, epoch 7 of lineage 1: parallelism 2 -> 4, max parallelism 16 -> 16, by_reference; "
            "0 bytes to write, skew 1.09"
        )
        assert [groups in done.stdout for groups in ("0–3", "4–7", "8–11", "12–15")] == [True] * 4
        assert sorted((tmp_path / "store").rglob("*")) == before

    def test_it_tells_programs_the_same(self, savepoint: Path) -> None:
        done = run("plan", savepoint, "--parallelism", "3", "--max-parallelism", "32", "--json")
        assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
        planned = json.loads(done.stdout)
        assert (planned["method"], planned["to_parallelism"], planned["to_max_parallelism"]) == ("rewrite", 3, 32)
        assert (len(planned["subtasks"]), planned["rows"]) == (3, sum(s["rows"] for s in planned["subtasks"]))
        assert planned["bytes_written"] > 0 and planned["skew"] >= 1

    def test_a_damaged_file_is_refused_by_name(self, savepoint: Path, tmp_path: Path) -> None:
        damaged = next((tmp_path / "store/state").rglob("*.parquet"))
        damaged.write_bytes(damaged.read_bytes()[:-1])
        assert_refused(run("plan", savepoint, "--parallelism", "4"), damaged)

    @pytest.mark.parametrize(("parallelism", "exit_code"), [("17", 1), ("0", 2)])
    def test_an_impossible_parallelism_is_refused(self, savepoint: Path, parallelism: str, exit_code: int) -> None:
        done = run("plan", savepoint, "--parallelism", parallelism)
        assert (done.returncode, done.stdout) == (exit_code, "")
        assert "parallelism" in done.stderr


class TestRescale:
    def test_a_job_that_does_not_run_is_started_at_its_parallelism(self, job: str) -> None:
        done = run("rescale", job, "--parallelism", 4)
        assert (done.returncode, done.stdout) == (1, "")
        assert "run `job start orders --parallelism 4`" in done.stderr

    def test_more_than_max_parallelism_is_refused(self, job: str) -> None:
        done = run("rescale", job, "--parallelism", 17)
        assert (done.returncode, done.stdout) == (1, "")
        assert "expected at most 16" in done.stderr


class Driver:
    """All of a driver but the stream: its heartbeats, what it answers, and what it leaves behind."""

    def __init__(self, url: str, store: CheckpointStore, job: str = "orders") -> None:
        self.catalog = Catalog(url)
        self._store = store
        self._job = job
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._end)

    def stop(self) -> None:
        """End the query; what Control does on a request to stop."""
        self._stopped.set()

    def __enter__(self) -> Self:
        claimed = self.catalog.claim_generation(self._job, log_path="/logs/driver-{generation}.log")
        self.generation = claimed.generation
        self._control = Control(self.catalog, self._job, self.generation)
        self._taker = SavepointTaker(self.catalog, self._job, self._store, spark=None, side_jobs=None)
        self._control.start()
        self._control.running(self, self._store.newest(), Takers(self._taker, None, SideJobs(None)))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._thread.join()
        self.catalog.close()

    def _end(self) -> None:
        self._stopped.wait()
        if self._control.request is not None:
            self._taker.take(self._control.request, self._store.newest())
            # Spark takes its time.
            time.sleep(1)
        self._control.close()
        self.catalog.end_generation(self._job, self.generation, state="stopped")


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog that every command finds in its environment."""
    made = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("STATECORE_CATALOG", made)
    return made


@pytest.fixture
def catalog(url: str) -> Iterator[Catalog]:
    with Catalog(url) as opened:
        opened.create_schema()
        yield opened


def register(catalog: Catalog, store: CheckpointStore, name: str = "orders", **changes: Any) -> None:
    definition: dict[str, Any] = {"artifact": "/jobs/orders.py", "master_url": "local[2]", "parallelism": 2}
    catalog.register_job(name, **{**definition, "store": store.files.url, "max_parallelism": 16, **changes})


@pytest.fixture
def job(catalog: Catalog, store: CheckpointStore) -> str:
    register(catalog, store)
    return "orders"


@contextmanager
def running(url: str, store: CheckpointStore, job: str = "orders") -> Iterator[Driver]:
    with Catalog(url) as catalog:
        catalog.set_desired(job, state="running")
    with Driver(url, store, job) as driver:
        yield driver


class TestSavepointsOfAJob:
    def test_create_prints_the_path_alone_and_the_job_runs_on(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store) as driver:
            done = run("savepoint", "create", job, "--name", "deploy", "--reason", "before 2.0")
            assert catalog.is_alive(catalog.newest_generation(job))
            assert driver.generation == 1
        path = f"{store.files.url}/savepoints/deploy/manifest.json"
        assert done == (0, f"{path}\n", "")
        assert store.manifest("savepoints/deploy/manifest.json").epoch == 7
        assert [(each.path, each.reason) for each in catalog.savepoints(job)] == [(path, "before 2.0")]

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
        assert [each.epoch for each in catalog.savepoints(job)] == [8]

    def test_a_copy_is_asked_for_by_its_absolute_path(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
    ) -> None:
        catalog.claim_generation(job, log_path="/logs/1.log")
        for target, expected in (("backup", str(REPO / "backup")), ("s3://bucket/x", "s3://bucket/x")):
            done = run("savepoint", "create", job, "--copy-to", target, "--timeout", "0")
            request = catalog.next_request(job)
            assert request is not None and request.kind == "savepoint"
            assert request.arguments["target"] == expected
            catalog.finish_request(request.id, result={})
            # Nobody answered in time.
            assert_refused(done, "no savepoint of orders was taken", "no answer after 0 s", "/logs/1.log")

    def test_what_the_driver_refuses_is_told(self, url: str, job: str, store: CheckpointStore) -> None:
        with running(url, store):
            assert_refused(run("savepoint", "create", job), "no savepoint of orders was taken", "no committed epoch")

    def test_without_a_driver_nothing_is_asked(self, catalog: Catalog, job: str, store: CheckpointStore) -> None:
        assert_refused(run("savepoint", "create", job), "no live driver of orders", f"{store.files.url}/manifests")
        assert catalog.next_request(job) is None

    @pytest.mark.parametrize("name", ["a/b", "..", "."])
    def test_a_name_that_is_none_of_a_folder_is_refused_before_anything_is_asked(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore, name: str
    ) -> None:
        catalog.claim_generation(job, log_path="/l")
        assert_refused(run("savepoint", "create", job, "--name", name), repr(name))
        assert catalog.next_request(job) is None

    @pytest.mark.parametrize("command", ["create", "list"])
    def test_an_unknown_job_is_refused_and_the_known_ones_are_named(self, job: str, command: str) -> None:
        assert_refused(run("savepoint", command, "typo"), "'typo' is not registered", "known jobs: orders")

    def test_list_prints_them_newest_first_with_paths_in_one_piece(
        self, catalog: Catalog, job: str, tmp_path: Path
    ) -> None:
        long = tmp_path / ("x" * 150)
        for epoch in (3, 9):
            catalog.record_savepoint(
                f"{long}/{epoch}", job=job, lineage=1, epoch=epoch, parallelism=2, reason=f"reason [{epoch}]",
                created_ms=epoch * 1000,
            )  # fmt: skip
        done = run("savepoint", "list", job)
        assert (done.returncode, done.stderr) == (0, "")
        newer, older = (done.stdout.index(f"{long}/{epoch}") for epoch in (9, 3))
        assert newer < older
        assert "1970-01-01 00:00:09" in done.stdout and "reason [9]" in done.stdout

        listed = json.loads(run("savepoint", "list", job, "--json").stdout)
        assert listed[1] == {
            "path": f"{long}/3", "job": job, "lineage": 1, "epoch": 3, "parallelism": 2, "created_ms": 3000,
            "reason": "reason [3]",
        }  # fmt: skip

    def test_a_job_without_any_has_an_empty_list(self, job: str) -> None:
        assert run("savepoint", "list", job).returncode == 0
        assert run("savepoint", "list", job, "--json").stdout == "[]\n"


class TestDrop:
    def recorded(self, catalog: Catalog, savepoint: Path) -> None:
        path = str(savepoint / "manifest.json")
        catalog.record_savepoint(path, job="orders", lineage=1, epoch=7, parallelism=2, reason="")

    @pytest.mark.parametrize("given", ["folder", "manifest", "relative", "link"])
    def test_it_goes_and_is_listed_no_more(
        self, catalog: Catalog, job: str, savepoint: Path, tmp_path: Path, given: str
    ) -> None:
        self.recorded(catalog, savepoint)
        (tmp_path / "link").symlink_to(savepoint)
        paths = {"folder": savepoint, "manifest": savepoint / "manifest.json", "link": tmp_path / "link"}
        relative = os.path.relpath(savepoint)
        done = run("savepoint", "drop", paths.get(given, relative))
        assert done == (0, f"dropped {savepoint}/manifest.json: 0 bytes freed\n", "")
        assert not (savepoint / "manifest.json").exists()
        assert catalog.savepoints(job) == []

    def test_no_catalog_is_needed(self, savepoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("STATECORE_CATALOG", raising=False)
        assert run("savepoint", "drop", savepoint).returncode == 0
        assert_refused(run("savepoint", "drop", savepoint), savepoint)

    def test_one_that_somebody_removed_is_listed_no_more(self, catalog: Catalog, job: str, savepoint: Path) -> None:
        self.recorded(catalog, savepoint)
        (savepoint / "manifest.json").unlink()
        done = run("savepoint", "drop", savepoint)
        assert done == (0, f"{savepoint} was gone already; the catalog lists it no more\n", "")
        assert catalog.savepoints(job) == []
        assert_refused(run("savepoint", "drop", savepoint), savepoint)

    def test_a_checkpoint_is_its_jobs_own(self, catalog: Catalog, savepoint: Path, store: CheckpointStore) -> None:
        checkpoint = Path(store.describe(store.manifest_path(1, 7)))
        assert_refused(run("savepoint", "drop", checkpoint), checkpoint, "belong to their job")
        assert checkpoint.exists()


class TestJob:
    def register(self, tmp_path: Path, *more: str) -> Done:
        return run(
            "job", "register", "orders", "--catalog", f"sqlite:///{tmp_path}/catalog.db",
            "--artifact", tmp_path / "job.py", "--store", tmp_path / "store",
            "--master", "local[2]", "--parallelism", "2", *more,
        )  # fmt: skip

    def test_a_job_is_registered_started_and_listed(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        done = self.register(tmp_path, "--setting", "input=a=b", "--conf", "spark.x=1")
        assert done == (0, "registered orders: parallelism 2, max parallelism 128\n", "")

        listed = run("job", "list", "--catalog", url)
        assert listed.returncode == 0
        assert [word in listed.stdout for word in ("orders", "stopped", "never started")] == [True] * 3

        done = run("job", "start", "orders", STATECORE_CATALOG=url)
        assert done == (0, "orders is to run; the supervisor starts its driver\n", "")
        with Catalog(url) as catalog:
            job = catalog.job("orders")
        assert (job.desired_state, job.parallelism, job.max_parallelism) == ("running", 2, 128)
        assert (job.store, job.artifact) == (str(tmp_path / "store"), str(tmp_path / "job.py"))
        assert (dict(job.settings), dict(job.conf)) == ({"input": "a=b"}, {"spark.x": "1"})

    def test_registering_again_changes_the_definition_but_not_what_is_wanted(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        self.register(tmp_path)
        run("job", "start", "orders", "--catalog", url)
        assert self.register(tmp_path, "--setting", "a=b").returncode == 0
        with Catalog(url) as catalog:
            assert catalog.job("orders").desired_state == "running"
            assert dict(catalog.job("orders").settings) == {"a": "b"}

    def test_another_max_parallelism_is_refused(self, tmp_path: Path) -> None:
        self.register(tmp_path)
        assert_refused(self.register(tmp_path, "--max-parallelism", "64"), "orders", "64", "128")

    def test_registering_again_without_one_keeps_the_max_parallelism_that_the_job_has(self, tmp_path: Path) -> None:
        self.register(tmp_path, "--max-parallelism", "256")
        done = self.register(tmp_path, "--parallelism", "5")
        assert done == (0, "registered orders: parallelism 5, max parallelism 256\n", "")

    @pytest.mark.parametrize("command", ["start", "stop"])
    def test_a_job_nobody_registered_is_refused_and_the_known_ones_are_named(
        self, tmp_path: Path, command: str
    ) -> None:
        self.register(tmp_path)
        assert_refused(run("job", command, "typo", "--catalog", f"sqlite:///{tmp_path}/catalog.db"), "typo", "orders")

    @pytest.mark.parametrize("more", [["--setting", "nothing"], ["--conf", "=x"], ["--parallelism", "0"]])
    def test_wrong_usage_is_exit_code_2(self, tmp_path: Path, more: list[str]) -> None:
        assert self.register(tmp_path, *more).returncode == 2
        assert "orders" not in run("job", "list", "--catalog", f"sqlite:///{tmp_path}/catalog.db").stdout

    @pytest.mark.parametrize("url", ["sqlite:////proc/no/catalog.db", "catalog.db"])
    def test_a_catalog_that_cannot_be_is_refused(self, url: str) -> None:
        assert_refused(run("job", "list", "--catalog", url), "expected")


class TestStart:
    """From a savepoint: what the driver to come finds wanted."""

    def test_a_savepoint_is_wanted_by_its_absolute_path_with_its_max_parallelism(
        self, catalog: Catalog, job: str, savepoint: Path, store: CheckpointStore
    ) -> None:
        for given in (savepoint, savepoint / "manifest.json", os.path.relpath(savepoint), "savepoints/before-outage"):
            done = run("job", "start", job, "--from", given, "--parallelism", "3")
            assert done == (
                0,
                f"orders is to run from {savepoint}/manifest.json; the supervisor starts its driver\n",
                "",
            )
            wanted = catalog.job(job)
            assert (wanted.start_from, wanted.desired_state) == (f"{savepoint}/manifest.json", "running")
            assert (wanted.parallelism, wanted.max_parallelism) == (3, 16)
            assert (wanted.roll_back, wanted.claims_savepoint) == (False, False)
            catalog.set_desired(job, state="stopped", start_from=None)

    def test_one_with_another_max_parallelism_changes_the_jobs(
        self, catalog: Catalog, job: str, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        path = elsewhere.write_savepoint(manifest(max_parallelism=64), "wide", reason="", now_ms=0)
        assert run("job", "start", job, "--from", elsewhere.describe(path), "--claim").returncode == 0
        wanted = catalog.job(job)
        assert (wanted.max_parallelism, wanted.claims_savepoint) == (64, True)

    def test_one_that_was_overtaken_needs_roll_back(
        self, catalog: Catalog, job: str, savepoint: Path, store: CheckpointStore
    ) -> None:
        committed(store, epoch=8)
        before = catalog.job(job)
        done = run("job", "start", job, "--from", savepoint)
        assert_refused(done, "epoch 8 of lineage 1", savepoint, "--roll-back")
        assert catalog.job(job) == before
        assert run("job", "start", job, "--from", savepoint, "--roll-back").returncode == 0
        assert catalog.job(job).roll_back

    def test_one_of_another_job_does_too_where_there_are_epochs(
        self, catalog: Catalog, job: str, store: CheckpointStore, tmp_path: Path
    ) -> None:
        elsewhere = CheckpointStore.at(str(tmp_path / "elsewhere"))
        path = elsewhere.describe(elsewhere.write_savepoint(manifest(job="other"), "s", reason="", now_ms=0))
        committed(store)
        assert_refused(run("job", "start", job, "--from", path), "of job 'other'", "--roll-back")

    def test_where_there_is_no_savepoint_nothing_is_changed(self, catalog: Catalog, job: str) -> None:
        before = catalog.job(job)
        assert_refused(run("job", "start", job, "--from", "savepoints/typo"), "savepoints/typo/manifest.json")
        assert catalog.job(job) == before

    @pytest.mark.parametrize("more", [["--from", "savepoints/before-outage"], ["--parallelism", "3"]])
    def test_what_a_running_driver_would_not_notice_is_refused(
        self, url: str, catalog: Catalog, job: str, savepoint: Path, store: CheckpointStore, more: list[str]
    ) -> None:
        with running(url, store):
            before = catalog.job(job)
            assert_refused(run("job", "start", job, *more), "found orders running", "job stop orders")
            assert catalog.job(job) == before
            assert run("job", "start", job).returncode == 0
        # Its driver is gone, but the supervisor may start the next at any moment.
        assert_refused(run("job", "start", job, *more), "found orders running")

    @pytest.mark.parametrize("option", ["--roll-back", "--claim"])
    def test_what_says_how_to_start_from_a_savepoint_needs_one(self, job: str, option: str) -> None:
        done = run("job", "start", job, option)
        assert done.returncode == 2
        assert "--from" in done.stderr


class TestStop:
    def test_it_prints_the_path_alone_when_the_driver_has_ended(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        committed(store)
        with running(url, store):
            done = run("job", "stop", job)
            newest = catalog.newest_generation(job)
            assert newest is not None and newest.state == "stopped"
        assert (done.returncode, done.stderr) == (0, "")
        path = Path(done.stdout.removesuffix("\n"))
        assert path.is_file() and path.is_relative_to(Path(store.files.url) / "savepoints")
        assert catalog.job(job).desired_state == "stopped"
        # What comes next finds the job stopped.
        assert run("job", "start", job, "--from", path, "--parallelism", "4").returncode == 0

    def test_without_a_driver_it_is_done_at_once_and_there_is_no_path(self, catalog: Catalog, job: str) -> None:
        catalog.set_desired(job, state="running")
        assert run("job", "stop", job) == (0, "", "orders has no live driver; nothing to stop\n")
        assert catalog.job(job).desired_state == "stopped"

    def test_a_driver_that_was_silent_and_wakes_up_finds_itself_replaced(
        self, url: str, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Liveness, "is_alive", lambda *_: False)
        with Catalog(url) as catalog:
            catalog.claim_generation(job, log_path="/l")
            assert catalog.heartbeat(job, 1)
            assert "nothing to stop" in run("job", "stop", job).stderr
            assert not catalog.heartbeat(job, 1)

    def test_before_the_first_epoch_there_is_nothing_to_keep_but_it_stops(
        self, url: str, catalog: Catalog, job: str, store: CheckpointStore
    ) -> None:
        with running(url, store):
            done = run("job", "stop", job)
        assert_refused(done, "orders is to stop, but without a savepoint", "no committed epoch")
        assert done.stdout == ""
        assert catalog.job(job).desired_state == "stopped"

    def test_a_driver_that_dies_meanwhile_is_not_waited_for_and_its_successor_is_not_stopped(
        self, url: str, catalog: Catalog, job: str
    ) -> None:
        catalog.set_desired(job, state="running")
        catalog.claim_generation(job, log_path="/logs/1.log")
        asked: list[RequestRecord] = []

        def die() -> None:
            while not asked:
                asked.extend(filter(None, [catalog.next_request(job)]))
                time.sleep(0.1)
            catalog.end_generation(job, 1, state="failed", error="killed")

        dying = threading.Thread(target=die)
        dying.start()
        done = run("job", "stop", job)
        dying.join()
        assert_refused(done, "without a savepoint", "driver ended", "/logs/1.log", "the newest epoch is kept")
        assert catalog.get_request(asked[0].id).state == "failed"
        run("job", "start", job)
        catalog.claim_generation(job, log_path="/l", if_wanted=True)
        assert catalog.next_request(job) is None

    def test_a_driver_that_does_not_answer_in_time_is_named_with_its_log(self, catalog: Catalog, job: str) -> None:
        catalog.claim_generation(job, log_path="/logs/1.log")
        done = run("job", "stop", job, "--timeout", "0.1")
        assert_refused(done, "orders is to stop, but without a savepoint", "no answer after 0.1 s", "/logs/1.log")
        # It may still come to it.
        assert catalog.next_request(job) is not None


class TestJobList:
    def test_programs_see_what_is_wanted_and_what_is(self, catalog: Catalog, job: str, store: CheckpointStore) -> None:
        register(catalog, store, "invoices")
        catalog.set_desired(job, state="running", parallelism=3)
        catalog.claim_generation(job, log_path="/logs/orders-1.log")
        catalog.record_epoch(EpochRecord(job, 2, 41, 1, 3, 10, 500, 0, 0, 0))
        catalog.record_backlog(job, 1, [SourceBacklog("in", bytes=9, files=1), SourceBacklog("rules")])
        (measured,) = catalog.backlogs(job)
        done = run("job", "list", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        invoices, orders = json.loads(done.stdout)
        assert orders == {
            "job": job, "desired": "running", "driver": "launching", "generation": 1, "parallelism": 3,
            "max_parallelism": 16, "lineage": 2, "epoch": 41, "rows_total": 500, "error": None, "log": None,
            "rows_per_second": 0.0, "backlog_records": None, "backlog_bytes": 9, "backlog_files": 1,
            "event_time_lag_ms": None, "backlog_measured_ms": measured.measured_ms,
            "sources": [
                {"name": "in", "records": None, "bytes": 9, "files": 1, "event_time_lag_ms": None},
                {"name": "rules", "records": None, "bytes": None, "files": None, "event_time_lag_ms": None},
            ],
        }  # fmt: skip
        assert (invoices["driver"], invoices["generation"], invoices["epoch"]) == ("never started", None, None)

    def test_people_see_whether_a_running_job_keeps_up_and_nothing_that_is_out_of_date(
        self, catalog: Catalog, job: str
    ) -> None:
        catalog.claim_generation(job, log_path="/l")
        catalog.heartbeat(job, 1)
        now_ms = int(time.time() * 1000)
        catalog.record_epoch(EpochRecord(job, 1, 0, 1, 3, 90_000, 90_000, now_ms - 30_000, now_ms, 30_000))
        assert re.search(r"│ – +│ +– │$", run("job", "list").stdout, re.MULTILINE)
        waiting = [
            SourceBacklog("in", bytes=2_500_000, files=3),
            SourceBacklog("rates", 1200, event_time_lag_ms=83_999),
        ]
        catalog.record_backlog(job, 1, waiting)
        table = run("job", "list").stdout
        found = re.search(r"│ +([\d,]+) │ 1,200 records, 3 files, 2\.5 MB +│ 0:01:23 │$", table, re.MULTILINE)
        assert found is not None, table
        assert 2_000 < int(found[1].replace(",", "")) <= 3_000
        catalog.end_generation(job, 1, state="stopped")
        assert "records" not in run("job", "list").stdout

    def test_why_a_driver_failed_and_where_its_log_is_stands_below_the_table(self, catalog: Catalog, job: str) -> None:
        catalog.claim_generation(job, log_path="/logs/orders-1.log")
        catalog.end_generation(job, 1, state="failed", error="MissingFileError: found no file")
        done = run("job", "list")
        assert "failed" in done.stdout
        assert "orders, generation 1: MissingFileError: found no file (log: /logs/orders-1.log)" in done.stdout

    def test_a_driver_that_is_not_heard_of_is_lost_whatever_it_last_said(
        self, catalog: Catalog, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catalog.claim_generation(job, log_path="/l")
        catalog.heartbeat(job, 1, lineage=1, epoch=4)
        monkeypatch.setattr(Liveness, "is_alive", lambda *_: False)
        (orders,) = json.loads(run("job", "list", "--json").stdout)
        # Its newest epoch is known though nobody recorded the figures.
        assert (orders["driver"], orders["lineage"], orders["epoch"]) == ("lost", 1, 4)
        assert "no supervisor runs" in orders["error"]


class TestRebuild:
    DEFINITION = JobDefinition(
        name="orders", artifact="/jobs/orders.py", store="/was", master_url="local[2]", cluster="big",
        conf={"spark.ssl.keyStorePassword": "x"}, settings={"input": "/in"}, parallelism=2, max_parallelism=16,
    )  # fmt: skip

    def lost(self, store: CheckpointStore) -> None:
        store.claim_generation(3)
        write_definition(store.files, self.DEFINITION)

    def test_what_came_back_and_what_is_still_to_do_is_told(
        self, url: str, catalog: Catalog, savepoint: Path, store: CheckpointStore
    ) -> None:
        self.lost(store)
        done = run("catalog", "rebuild", os.path.relpath(store.files.url))
        assert (done.returncode, done.stderr) == (0, "")
        first, secrets, cluster = done.stdout.splitlines()
        assert first == "orders: epoch 7 of lineage 1, 1 savepoints; it is stopped"
        assert "spark.ssl.keyStorePassword" in secrets
        assert "'big'" in cluster and "--cluster big" in cluster
        assert catalog.job("orders").store == store.files.url
        assert [each.path for each in catalog.savepoints("orders")] == [f"{savepoint}/manifest.json"]
        listed = json.loads(run("job", "list", "--json").stdout)
        assert [(each["driver"], each["generation"], each["epoch"]) for each in listed] == [("stopped", 3, 7)]
        assert run("job", "start", "orders", "--from", savepoint).returncode == 0

    def test_a_store_that_cannot_be_read_does_not_keep_the_others_away(
        self, url: str, savepoint: Path, store: CheckpointStore, tmp_path: Path
    ) -> None:
        self.lost(store)
        (savepoint / "manifest.json").write_text("{}")
        done = run("catalog", "rebuild", tmp_path / "typo", store.files.url)
        assert_refused(done, tmp_path / "typo", savepoint / "manifest.json")
        assert done.stdout.startswith("orders: epoch 7 of lineage 1, 0 savepoints")

    def test_a_catalog_that_lost_nothing_is_left_alone(self, url: str, savepoint: Path, store: CheckpointStore) -> None:
        self.lost(store)
        run("catalog", "rebuild", store.files.url)
        assert_refused(run("catalog", "rebuild", store.files.url), "'orders'", "nothing was changed")
