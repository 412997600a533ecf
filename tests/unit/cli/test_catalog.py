"""``catalog upgrade`` and ``catalog rebuild``."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

from statecore.catalog import Catalog, schema
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, write_definition
from tests.support.shell import assert_refused, run


class TestUpgrade:
    def test_a_new_database_gets_its_tables_and_an_old_one_is_refused_by_every_command(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        url = f"sqlite:///{path}"
        done = run("jobs", "--catalog", url)
        assert_refused(done, "no catalog in it", "`statecore catalog upgrade`")
        done = run("catalog", "upgrade", "--catalog", url)
        assert done == (0, f"migrated the catalog from revision none to {schema.head()}\n", "")
        done = run("catalog", "upgrade", "--catalog", url)
        assert done == (0, f"the catalog is already at revision {schema.head()}\n", "")
        with closing(sqlite3.connect(path)) as old, old:
            old.execute(f"UPDATE {schema.VERSION_TABLE} SET version_num = '0000'")
        for command in (
            ["jobs"],
            ["start", "flights"],
            ["supervisor", "--logs", str(tmp_path)],
            ["register", "x", "--artifact", "a", "--store", "s", "--master", "local", "--parallelism", "1"],
        ):
            assert_refused(run(*command, "--catalog", url), "at revision 0000", "catalog upgrade`")
        path.unlink()
        done = run("catalog", "upgrade", "--catalog", url, "--json")
        assert json.loads(done.stdout) == {"from": None, "to": schema.head()}


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
        assert first == "orders: epoch 7 of lineage 1, 1 savepoints, stopped"
        assert "spark.ssl.keyStorePassword" in secrets
        assert "'big'" in cluster and "--cluster big" in cluster
        assert catalog.jobs.get("orders").store == store.files.url
        assert [each.path for each in catalog.savepoints.of("orders")] == [f"{savepoint}/manifest.json"]
        listed = json.loads(run("jobs", "--json").stdout)
        assert [(each["driver"], each["generation"], each["epoch"]) for each in listed] == [("stopped", 3, 7)]
        assert run("start", "orders", "--from", savepoint).returncode == 0

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
