"""What becomes of a savepoint that a job has started from."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.catalog import Catalog, ClaimedSavepoint
from statecore.runtime.driver.start_savepoint import forget_start
from statecore.snapshot.checkpoints import CheckpointStore
from statecore.snapshot.manifest import fingerprint
from tests.support.handmade import manifest


@pytest.mark.parametrize("replaced", [False, True])
def test_the_savepoint_that_was_claimed_goes_and_another_one_in_its_place_stays(
    tmp_path: Path, catalog_url: str, replaced: bool
) -> None:
    store = CheckpointStore.at(str(tmp_path / "store"))
    path = store.write_savepoint(manifest(), "sp", reason="", now_ms=1)
    claims = ClaimedSavepoint(path, fingerprint(store.manifest(path)))
    with Catalog(catalog_url) as catalog:
        catalog.jobs.register(
            "orders", artifact="/a", store=store.files.url, master_url="local", parallelism=1, max_parallelism=16
        )
        job = catalog.jobs.set_desired("orders", start_from=path, claims_savepoint=claims)
        if replaced:
            store.files.delete(path)
            store.write_savepoint(manifest(), "sp", reason="", now_ms=2)
        for _ in range(2):
            forget_start(catalog.jobs, store, job)
        assert store.savepoints() == ([path] if replaced else [])
        assert (catalog.jobs.get("orders").start_from, catalog.jobs.get("orders").claims_savepoint) == (None, None)
