"""``python -m statecore`` as a shell meets it: output, exit code, one line on stderr."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from tests.conftest import REPO
from tests.handmade import written


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "statecore", *map(str, arguments)],
        capture_output=True, text=True, cwd=REPO, timeout=120, check=False,
        env={**os.environ, "COLUMNS": "200", **environment},
    )  # fmt: skip


def assert_refused(done: subprocess.CompletedProcess[str], *parts: str | Path) -> None:
    """A refusal is exit code 1 and an error of three parts on stderr, without a traceback."""
    assert done.returncode == 1, done
    for line in done.stderr.strip().splitlines():
        assert line.startswith("error: ")
        assert line.count(";") >= 2, line
    assert "Traceback" not in done.stderr
    for part in parts:
        assert str(part) in done.stderr


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    store = CheckpointStore.at(str(tmp_path / "store"))
    path = store.write_savepoint(written(store, 2), "before-outage", reason="storage is down", now_ms=0)
    return (tmp_path / "store" / path).parent


class TestSavepoint:
    def test_show_prints_what_it_holds(self, savepoint: Path) -> None:
        done = run("savepoint", "show", savepoint)
        assert (done.returncode, done.stderr) == (0, "")
        for part in ("before-outage", "storage is down", "orders", "1, 7", "2 of at most 16", "totals", "k string"):
            assert part in done.stdout
        assert "total (keyed value of bigint)" in done.stdout
        assert "waiting (operator list of bigint)" in done.stdout
        assert "0–7" in done.stdout

    def test_show_takes_the_manifest_file_too(self, savepoint: Path) -> None:
        assert (
            run("savepoint", "show", savepoint / "manifest.json").stdout == run("savepoint", "show", savepoint).stdout
        )

    def test_verify_says_whole_when_it_is(self, savepoint: Path) -> None:
        done = run("savepoint", "verify", savepoint)
        assert (done.returncode, done.stderr.strip()) == (0, "")
        assert done.stdout.startswith("whole: 4 files, ")

    def test_verify_names_every_damaged_and_missing_file(self, savepoint: Path, tmp_path: Path) -> None:
        gone, damaged, *_ = sorted((tmp_path / "store/state").rglob("*-*.*"))
        gone.unlink()
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
        done = run("savepoint", "verify", savepoint)
        assert_refused(done, gone, damaged)
        assert len(done.stderr.strip().splitlines()) == 2
        assert done.stdout == ""

    @pytest.mark.parametrize("command", ["show", "verify"])
    def test_where_no_savepoint_is_the_path_is_named(self, tmp_path: Path, command: str) -> None:
        assert_refused(run("savepoint", command, tmp_path / "typo"), tmp_path / "typo")

    @pytest.mark.parametrize("command", ["show", "verify"])
    def test_what_is_no_manifest_is_refused_by_name(self, savepoint: Path, command: str) -> None:
        (savepoint / "manifest.json").write_text('{"format": "statecore.manifest", "version": 99}')
        assert_refused(run("savepoint", command, savepoint), savepoint / "manifest.json", "version 99")

    @pytest.mark.parametrize("arguments", [["savepoint"], ["savepoint", "show"], ["savepoint", "drop", "x"], ["typo"]])
    def test_wrong_usage_is_exit_code_2(self, arguments: list[str]) -> None:
        done = run(*arguments)
        assert done.returncode == 2
        assert "Usage" in done.stdout + done.stderr


class TestJob:
    def register(self, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
        return run(
            "job", "register", "orders", "--catalog", f"sqlite:///{tmp_path}/catalog.db",
            "--artifact", tmp_path / "job.py", "--store", tmp_path / "store",
            "--master", "local[2]", "--parallelism", "2", *more,
        )  # fmt: skip

    def test_a_job_is_registered_started_and_listed(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        done = self.register(tmp_path, "--setting", "input=a=b", "--conf", "spark.x=1")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "registered orders: parallelism 2, max parallelism 128\n"

        listed = run("job", "list", "--catalog", url)
        assert listed.returncode == 0
        assert [word in listed.stdout for word in ("orders", "stopped", "never started")] == [True] * 3

        assert run("job", "start", "orders", STATECORE_CATALOG=url).returncode == 0
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

    @pytest.mark.parametrize("command", ["start", "stop"])
    def test_a_job_nobody_registered_is_refused_and_the_known_ones_are_named(
        self, tmp_path: Path, command: str
    ) -> None:
        self.register(tmp_path)
        assert_refused(run("job", command, "typo", "--catalog", f"sqlite:///{tmp_path}/catalog.db"), "typo", "orders")

    def test_stopping_a_job_without_a_driver_is_done_at_once(self, tmp_path: Path) -> None:
        self.register(tmp_path)
        done = run("job", "stop", "orders", "--catalog", f"sqlite:///{tmp_path}/catalog.db")
        assert (done.returncode, done.stdout) == (0, "orders has no live driver; nothing to stop\n")

    @pytest.mark.parametrize("more", [["--setting", "nothing"], ["--conf", "=x"], ["--parallelism", "0"]])
    def test_wrong_usage_is_exit_code_2(self, tmp_path: Path, more: list[str]) -> None:
        assert self.register(tmp_path, *more).returncode == 2
        assert "orders" not in run("job", "list", "--catalog", f"sqlite:///{tmp_path}/catalog.db").stdout
