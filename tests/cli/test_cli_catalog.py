"""``catalog upgrade`` and ``catalog rebuild``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from statecore.catalog import Catalog
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.job_definition import JobDefinition, write_definition
from tests.cli.shell import assert_refused, run


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
