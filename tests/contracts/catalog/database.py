from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from statecore.catalog import Catalog


def test_creating_the_schema_again_keeps_what_is_there(catalog: Catalog, job: str) -> None:
    catalog.create_schema()
    assert catalog.jobs.get(job).name == job


def test_many_threads_share_one_catalog(catalog: Catalog, job: str) -> None:
    catalog.runs.start("r", job, from_parallelism=2, to_parallelism=4)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: catalog.runs.mark_step("r", f"step {n}", started=True), range(40)))
    assert len(catalog.runs.get("r").steps) == 40


def test_a_failed_block_changes_nothing(catalog: Catalog, job: str) -> None:
    with pytest.raises(RuntimeError, match="stop"), catalog._database.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET parallelism = 9")
        raise RuntimeError("stop")
    assert catalog.jobs.get(job).parallelism == 2


def test_a_reader_is_not_held_up_by_a_writer(catalog: Catalog, catalog_url: str, job: str) -> None:
    with Catalog(catalog_url) as other, pytest.raises(RuntimeError), other._database.write() as connection:
        connection.exec_driver_sql("UPDATE jobs SET parallelism = 9")
        assert catalog.jobs.get(job).parallelism == 2
        raise RuntimeError
