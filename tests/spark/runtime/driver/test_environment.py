"""Job code does not find the catalog's URL in its environment, neither in the driver nor on an executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from statecore.supervisor import CATALOG_VARIABLE
from tests.support.bench import JOB, Bench
from tests.support.jobs import environment
from tests.support.supervision import supervising
from tests.support.waiting import wait


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,2,700]"])
def test_no_subtask_has_the_catalogs_url_in_its_environment(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    told_by_driver = tmp_path / "driver"
    bench.register(
        master=master,
        artifact=Path(environment.__file__),
        conf={"spark.executor.memory": "500m"},
        settings={"driver": str(told_by_driver)},
    )
    monkeypatch.setenv(CATALOG_VARIABLE, bench.catalog_url)
    monkeypatch.setenv("A_SIGN", "of life")
    bench.catalog.jobs.set_desired(JOB, state="running", parallelism=1)
    with supervising(bench.catalog, tmp_path / "logs"):
        try:
            wait(lambda: bench.catalog.generations.newest(JOB), "a driver")
            bench.feed(1)
            bench.wait_done()
        finally:
            bench.catalog.jobs.set_desired(JOB, state="stopped")
            bench.stop("end")
    told = dict(bench.published("told", ("name", "text")))
    assert ("A_SIGN", "of life") in told
    for name, text in told:
        assert bench.catalog_url not in text, name
    driver = told_by_driver.read_text()
    assert "A_SIGN=of life" in driver and bench.catalog_url not in driver
