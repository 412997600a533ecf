"""``register``, and what all commands on jobs have in common."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statecore.catalog import Catalog
from statecore.catalog.audit import this_user
from statecore.snapshot.job_files import read_job_file
from statecore.storage import open_store
from tests.support.proxy import heedless, proxy_to
from tests.support.s3 import boto3_led_to
from tests.support.shell import Done, assert_refused, run


def definition(catalog: Catalog) -> dict[str, Any]:
    """Return what ``register`` sets."""
    job = catalog.jobs.get("orders")
    fields = ("artifact", "store", "master_url", "cluster", "conf", "settings", "parallelism", "max_parallelism")
    return {field: getattr(job, field) for field in fields}


class TestJob:
    @pytest.fixture(autouse=True)
    def unchecked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No job file is read: each check takes seconds."""
        monkeypatch.setattr("statecore.cli.register.check_job_file", lambda *_, **__: None)

    def register(self, tmp_path: Path, *more: str) -> Done:
        (tmp_path / "job.py").write_text("1")
        return run(
            "register", "orders", "--catalog", f"sqlite:///{tmp_path}/catalog.db",
            "--artifact", tmp_path / "job.py", "--store", tmp_path / "store",
            "--master", "local[2]", "--parallelism", "2", *more,
        )  # fmt: skip

    def test_a_job_is_registered_started_and_listed(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        done = self.register(tmp_path, "--setting", "input=a=b", "--conf", "spark.x=1")
        assert done == (0, "registered orders: parallelism 2 of at most 128\n", "")

        listed = run("jobs", "--catalog", url)
        assert listed.returncode == 0
        assert [word in listed.stdout for word in ("orders", "stopped", "never started")] == [True] * 3

        done = run("start", "orders", STATECORE_CATALOG=url)
        assert done == (0, "orders should run; the supervisor starts its driver\n", "")
        with Catalog(url) as catalog:
            job = catalog.jobs.get("orders")
        assert (job.desired_state, job.parallelism, job.max_parallelism) == ("running", 2, 128)
        assert (job.store, job.artifact) == (str(tmp_path / "store"), str(tmp_path / "job.py"))
        assert (dict(job.settings), dict(job.conf)) == ({"input": "a=b"}, {"spark.x": "1"})

    @pytest.mark.parametrize("is_new", [True, False])
    def test_a_store_that_tells_two_writers_that_they_created_a_file_is_refused(
        self, tmp_path: Path, s3_endpoint: str, s3_url: str, is_new: bool
    ) -> None:
        if not is_new:
            assert self.register(tmp_path).returncode == 0
        with proxy_to(s3_endpoint) as proxy, boto3_led_to(proxy.url):
            proxy.always = heedless
            done = self.register(tmp_path, "--store", s3_url)
        assert_refused(done, f"found that {s3_url} told", "use a storage, or a newer release of it")
        with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
            assert [job.store for job in catalog.jobs.all()] == ([] if is_new else [str(tmp_path / "store")])
        assert open_store(s3_url).folders("job-files") == []

    def test_registering_again_changes_the_definition_but_not_what_is_wanted(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        self.register(tmp_path)
        run("start", "orders", "--catalog", url)
        assert self.register(tmp_path, "--setting", "a=b").returncode == 0
        with Catalog(url) as catalog:
            assert catalog.jobs.get("orders").desired_state == "running"
            assert dict(catalog.jobs.get("orders").settings) == {"a": "b"}

    @pytest.mark.parametrize("master", ["locall[2]", "local[x]", "local[2", "spark:/host:7077", "", "host:7077"])
    def test_a_master_that_spark_does_not_know_is_refused(self, tmp_path: Path, master: str) -> None:
        assert_refused(self.register(tmp_path, "--master", master), f"found the master {master!r}", "correct --master")

    @pytest.mark.parametrize(
        "master",
        [
            "local",
            "local[*]",
            "local[4, 3]",
            "local-cluster[2,1,1024]",
            "spark://a:7077,b:7077",
            "yarn",
            "k8s://https://h",
        ],
    )
    def test_every_master_of_sparks_is_accepted(self, tmp_path: Path, master: str) -> None:
        assert self.register(tmp_path, "--master", master).returncode == 0

    @pytest.mark.parametrize("grace", ["0s", "-1h", "9min"])
    def test_a_grace_period_below_ten_minutes_is_refused_at_register_and_start(
        self, tmp_path: Path, grace: str
    ) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        wrong = ("--conf", f"statecore.cleanup.grace={grace}")
        assert_refused(self.register(tmp_path, *wrong), "at least 10min")
        with Catalog(url) as catalog:
            assert catalog.jobs.all() == []
        self.register(tmp_path)
        assert_refused(self.register(tmp_path, *wrong), "at least 10min")
        with Catalog(url) as catalog:
            known = catalog.jobs.get("orders")
            assert dict(known.conf) == {}
            catalog.jobs.register("orders", **definition(catalog) | {"conf": {"statecore.cleanup.grace": grace}})
        assert_refused(run("start", "orders", "--catalog", url), "at least 10min")
        with Catalog(url) as catalog:
            assert catalog.jobs.get("orders").desired_state == "stopped"

    def test_another_max_parallelism_is_refused(self, tmp_path: Path) -> None:
        self.register(tmp_path)
        assert_refused(self.register(tmp_path, "--max-parallelism", "64"), "orders", "64", "128")

    def test_registering_again_without_one_keeps_the_max_parallelism_that_the_job_has(self, tmp_path: Path) -> None:
        self.register(tmp_path, "--max-parallelism", "256")
        done = self.register(tmp_path, "--parallelism", "5")
        assert done == (0, "registered orders: parallelism 5 of at most 256\n", "")

    def test_registering_again_keeps_what_is_not_given(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        self.register(
            tmp_path, "--setting", "a=b", "--setting", "c=d", "--conf", "spark.x=1", "--max-parallelism", "64"
        )
        with Catalog(url) as catalog:
            catalog.clusters.register("local", "standalone", {}, workers=1)
            catalog.jobs.register("orders", **{**definition(catalog), "cluster": "local"})
            before = definition(catalog)
            (tmp_path / "new.py").write_text("2")
            done = run("register", "orders", "--catalog", url, "--artifact", tmp_path / "new.py")
            assert done == (0, "registered orders: parallelism 2 of at most 64\n", "")
            assert definition(catalog) == {**before, "artifact": str(tmp_path / "new.py")}
            more = ("--setting", "a=", "--setting", "e=f", "--conf", "spark.x=2", "--cluster", "")
            assert run("register", "orders", "--catalog", url, *more).returncode == 0
            after = definition(catalog)
            assert (after["settings"], after["conf"]) == ({"c": "d", "e": "f"}, {"spark.x": "2"})
            assert after["cluster"] is None

    def test_the_job_file_is_copied_and_edits_count_from_the_next_registration(self, tmp_path: Path) -> None:
        url, path = f"sqlite:///{tmp_path}/catalog.db", tmp_path / "job.py"
        self.register(tmp_path)
        with Catalog(url) as catalog:
            first = catalog.jobs.get("orders").artifact_sha256
            assert first == sha256(b"1").hexdigest()
            path.write_text("edited")
            assert run("register", "orders", "--catalog", url, "--parallelism", "4").returncode == 0
            assert catalog.jobs.get("orders").artifact_sha256 == first
            assert read_job_file(open_store(f"{tmp_path}/store"), str(path), first) == b"1"
            moved = tmp_path / "moved"
            assert run("register", "orders", "--catalog", url, "--store", moved).returncode == 0
            assert read_job_file(open_store(str(moved)), str(path), first) == b"1"
            assert run("register", "orders", "--catalog", url, "--artifact", path).returncode == 0
            assert catalog.jobs.get("orders").artifact_sha256 == sha256(b"edited").hexdigest()

    def test_the_audit_says_who_changed_what_and_shows_no_value_that_may_be_secret(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        self.register(tmp_path, "--setting", "dsn=hunter2", "--conf", "spark.x=hunter2")
        run("start", "orders", "--catalog", url)
        run("register", "orders", "--catalog", url, "--parallelism", "4")
        shown = run("audit", "orders", "--catalog", url).stdout
        newest, *_, first = [line for line in shown.splitlines() if "  run shell-" not in line]
        assert newest.endswith(f"  {this_user()}  parallelism 2 → 4")
        assert "desired_state stopped → running" in shown
        assert f"artifact None → {tmp_path}/job.py; artifact_sha256 None → {sha256(b'1').hexdigest()}" in first
        assert "conf spark.x; settings dsn" in first and "hunter2" not in shown
        told = json.loads(run("audit", "orders", "--catalog", url, "--limit", "1", "--json").stdout)
        assert [each["change"] for each in told] == [{"parallelism": [2, 4]}]

    def test_a_new_job_needs_all_that_it_cannot_do_without(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/catalog.db"
        done = run("register", "orders", "--catalog", url, "--artifact", "job.py", "--parallelism", "2")
        assert done.returncode == 2
        assert "--store, --master" in " ".join(done.stderr.split())
        assert "orders" not in run("jobs", "--catalog", url).stdout

    def test_a_definition_is_not_changed_while_a_run_changes_the_job(self, tmp_path: Path) -> None:
        self.register(tmp_path)
        with Catalog(f"sqlite:///{tmp_path}/catalog.db") as catalog:
            catalog.leases.acquire("orders", "manual__1", 60_000)
            assert_refused(self.register(tmp_path, "--parallelism", "4"), "held by 'manual__1'")
            assert catalog.jobs.get("orders").parallelism == 2

    @pytest.mark.parametrize("command", ["start", "stop"])
    def test_a_job_nobody_registered_is_refused_and_the_known_ones_are_named(
        self, tmp_path: Path, command: str
    ) -> None:
        self.register(tmp_path)
        assert_refused(run(command, "typo", "--catalog", f"sqlite:///{tmp_path}/catalog.db"), "typo", "orders")

    @pytest.mark.parametrize("more", [["--setting", "nothing"], ["--conf", "=x"], ["--parallelism", "0"]])
    def test_wrong_usage_is_exit_code_2(self, tmp_path: Path, more: list[str]) -> None:
        assert self.register(tmp_path, *more).returncode == 2
        assert "orders" not in run("jobs", "--catalog", f"sqlite:///{tmp_path}/catalog.db").stdout

    @pytest.mark.parametrize(
        ("url", "found"),
        [
            ("sqlite:////proc/no/catalog.db", "No such file or directory: '/proc/no'"),
            ("catalog.db", "catalog URL 'catalog.db' is not a database URL"),
        ],
    )
    def test_a_catalog_that_cannot_be_is_refused(self, url: str, found: str) -> None:
        assert_refused(run("jobs", "--catalog", url), found)


class TestCheck:
    """The job file is checked before the catalog has it."""

    def register(self, tmp_path: Path, text: str | None, *more: str) -> Done:
        path = tmp_path / "job.py"
        if text is not None:
            path.write_text(text)
        return run(
            "register", "orders", "--artifact", path, "--store", tmp_path / "store",
            "--master", "local", "--parallelism", "1", *more,
        )  # fmt: skip

    @pytest.mark.usefixtures("url")
    def test_a_job_file_that_cannot_run_is_refused_and_not_registered(self, tmp_path: Path) -> None:
        assert_refused(self.register(tmp_path, None), "found no job file", tmp_path / "job.py")
        assert_refused(
            self.register(tmp_path, "def build(job:\n    pass\n"), "job.py:1: SyntaxError: '(' was never closed"
        )
        assert "orders" not in run("jobs").stdout

    def test_a_change_of_the_file_or_of_its_settings_is_checked_before_it_counts(
        self, catalog: Catalog, job: str, tmp_path: Path
    ) -> None:
        before = catalog.jobs.get(job)
        assert_refused(
            self.register(tmp_path, "def build(job):\n    job.settings['in']\n"), "job.py:2 in build: KeyError: 'in'"
        )
        assert_refused(run("register", job, "--setting", "a=b"), "found no job file /jobs/orders.py")
        assert catalog.jobs.get(job) == before
        assert run("register", job, "--parallelism", "3").returncode == 0

    def test_a_package_that_is_missing_here_is_noted(self, catalog: Catalog, tmp_path: Path) -> None:
        done = self.register(tmp_path, "import not_installed_here\n")
        assert done.returncode == 0
        assert "job.py:1 imports not_installed_here, which is not installed here" in done.stderr
        assert catalog.jobs.get("orders").artifact == str(tmp_path / "job.py")
